#!/usr/bin/env bash
# Every training behind docs/science/reproduction.md, of 25 s by `adamw`, 8 s by `fast` and 100 s by `paper` on one H200.
#   DATA=data PEOPLE=cifar_n_human.npz RESULTS=mine scripts/reproduce_images.sh
# Run it from the root of a checkout. A second run continues where the first was ended; RESULTS=results runs
# only what is missing there.
set -eu
data="${DATA:-data}"
people="${PEOPLE:-$data/cifar_n_human.npz}"
results="${RESULTS:-reproduced}"
python="${PYTHON:-python}"
run() { "$python" -m experiments.images "$@" --data-dir "$data"; }
mean1="--method tdef --method mild:total=mean1"

# The reproduction: decoupled weight decay. First the choice of its strength, for TDEF, on held-out training rows.
one="run table1 --setup I --cost error"
for decay in 0.001 0.1 0.5 1 2 4 8 16; do
    $one --method tdef --seeds 1 --validation --weight-decay $decay --results "$results/decay.jsonl"
done
for decay in 2 8; do
    $one --method mild:total=mean1 --seeds 1 --validation --weight-decay $decay --results "$results/decay.jsonl"
done
$one $mean1 --results "$results/table1.jsonl"
$one --method uniform --method uniform:rewards=contrast --method ldam --method ce --seeds 3 --results "$results/table1.jsonl"
run table1 --setup II --setup III --cost error $mean1 --seeds 3 --results "$results/table1.jsonl"
# With costs: the strength of the baseline rewards is chosen on held-out training rows.
costs="run table1 --setup I --cost cost"
$costs --method tdef --method uniform --method uniform:rewards=contrast --method uniform:rewards=baseline,strength=0.25 \
    --method uniform:rewards=baseline,strength=0.5 --seeds 1 --validation --results "$results/strength.jsonl"
run table1 --cost cost $mean1 --method ldam --method uniform:rewards=baseline,strength=0.5 --seeds 3 --results "$results/table1.jsonl"
svhn="--dataset svhn5000 --batch-size 256 --epochs 100"
run table1 $svhn --cost error --seeds 8 $mean1 --results "$results/table1.jsonl"
run table1 $svhn --cost cost --seeds 3 $mean1 --results "$results/table1.jsonl"
run severe $svhn --seeds 3 --experts synthetic $mean1 --results "$results/severe.jsonl"
# CIFAR-100: weight decay for TDEF, then the size of MILD's margins, both on held-out training rows.
hundred="--dataset cifar100 --epochs 25"
for decay in 0.5 2 8; do
    run table1 $hundred --setup I --cost error $mean1 --seeds 1 --validation --weight-decay $decay --results "$results/decay.jsonl"
done
hundred="$hundred --weight-decay 2"
run table1 $hundred --setup II --cost error --seeds 1 --validation --method tdef --method uniform:rewards=contrast \
    --method mild:rewards=contrast,total=mean1 --method uniform:total=mean0.3 --method mild --method mild:total=mean3 \
    --method mild:total=mean10 --method mild:total=mean30 --results "$results/margins.jsonl"
for strength in 0.02 0.05 0.1; do
    baseline=uniform:rewards=baseline,strength=$strength
    run table1 $hundred --setup II --cost error --seeds 1 --validation --method $baseline,total=mean10 --method $baseline \
        --results "$results/margins.jsonl"
done
run table1 $hundred --cost error $mean1 --method mild:total=mean10 --method $baseline --seeds 3 --results "$results/table1.jsonl"
run severe $hundred --experts synthetic $mean1 --method mild:total=mean10 --seeds 3 --results "$results/severe.jsonl"
run table1 $hundred --cost cost --method tdef --method mild:total=mean10 --seeds 3 --results "$results/table1.jsonl"
run table1 --dataset cifar100 --setup I --cost error $mean1 --seeds 1 --results "$results/table1.jsonl"
# Tiny ImageNet: weight decay for each method, then the size of MILD's margins, both on held-out training rows.
tiny="--dataset tiny-imagenet --epochs 25"
for decay in 0.5 2 8; do
    run table1 $tiny --setup I --cost error $mean1 --method plugin --seeds 1 --validation --weight-decay $decay --results "$results/decay.jsonl"
done
tiny="$tiny --weight-decay 2"
sizes="--method mild:total=mean3 --method mild:total=mean10"
run table1 $tiny --setup I --cost error --seeds 1 --validation $sizes --results "$results/margins.jsonl"
run table1 $tiny --setup II --setup III --cost error --seeds 1 --validation --method mild:total=mean1 $sizes --results "$results/margins.jsonl"
tables="$mean1 --method mild:total=mean10 --results $results/table1.jsonl"
run table1 $tiny --setup I --cost error --seeds 2 $tables --method plugin
run table1 $tiny --setup II --cost error --seeds 2 $tables
run table1 $tiny --setup II --cost error --seeds 1 --method plugin --results "$results/table1.jsonl"
run table1 $tiny --setup III --cost error --seeds 1 $tables --method plugin
# Experts that are trained: with errors, with costs, severe; the size of MILD's margins on held-out training rows.
run table2 --epochs 25 $mean1 --seeds 3 --results "$results/table2.jsonl"
run severe --epochs 25 --experts real $mean1 --seeds 3 --results "$results/severe.jsonl"
run table2 --epochs 25 --setup II --cost error --validation $mean1 --method mild:total=mean3 --method mild:total=mean10 \
    --method mild:total=mean30 --seeds 1 --results "$results/margins.jsonl"
run table2 --epochs 25 --setup II --cost error --validation $mean1 --seeds 1 --weight-decay 0.5 --results "$results/margins.jsonl"
run table2 --epochs 25 --holdout $mean1 --seeds 3 --results "$results/table2.jsonl"
# People.
annotated="run people --people $people --epochs 25 $mean1 --seeds 3 --results $results/people.jsonl"
$annotated --dataset cifar10
$annotated --dataset cifar100 --weight-decay 2
# One cell by the paper's words.
$one --protocol paper --decay decoupled --method tdef --method mild --seeds 2 --results "$results/table1.jsonl"
run severe --experts synthetic $mean1 --method ldam --seeds 3 --results "$results/severe.jsonl"
# The gain at every strength of decoupled decay, and at coupled ones.
for decay in 0 0.001 0.1 0.5 1; do
    $one $mean1 --seeds 2 --weight-decay $decay --results "$results/sweep.jsonl"
done
for decay in 1e-5 1e-4 1e-3 5e-3; do
    $one $mean1 --seeds 2 --decay coupled --weight-decay $decay --results "$results/sweep.jsonl"
done
# The mechanism: rows on which several experts are right.
controls="--method tdef-smoothed --method tdef-smoothed-half --method tdef-dropped"
$one $mean1 --method uniform --seeds 1 --ambiguous 0 --results "$results/mechanism.jsonl"
for share in 0.1 0.3; do
    $one $mean1 --method uniform $controls --seeds 1 --ambiguous $share --results "$results/mechanism.jsonl"
done

# Earlier: coupled decay.
fast() { run "$@" --protocol fast; }

run classifier --protocol fast --protocol paper --results "$results/classifier.json"
for rate in 1e-3 2e-3 8e-3 1.6e-2; do
    fast classifier --lr $rate --results "$results/classifier.json"
done

fast readings --robustness --seeds 3 --results "$results/readings.jsonl"
fast readings --scale unit --seeds 3 --results "$results/readings-unit.jsonl"

table1="run table1 --results $results/table1.jsonl"
$table1 --protocol fast --method tdef --method mild --method mild:total=mean1 --method tuned:rewards=any
$table1 --setup I --cost error --protocol paper --seeds 3 --method tdef --method mild \
    --method mild:rewards=contrast,counts=reward,total=1
$table1 --protocol fast --setup III --cost error --lr 1e-3 --seeds 3 --method mild
$table1 --protocol fast --dataset cifar100 --setup I --setup III --seeds 3 $mean1
$table1 --protocol fast --dataset svhn5000 --batch-size 256 --seeds 3 $mean1 --method tuned

fast table2 --results "$results/table2.jsonl" --seeds 3 $mean1 --method tuned
severe="fast severe --results $results/severe.jsonl"
$severe --experts synthetic --method tdef --method mild --method tuned:rewards=any
$severe --experts real $mean1 --method tuned
fast people --people "$people" --results "$results/people.jsonl" --seeds 3 $mean1 --method tuned

"$python" -m experiments.show "$results"
