#!/usr/bin/env bash
# Every training behind docs/reproduction.md: 483, of 8 s by `fast` and 100 s by `paper` alone on one H200.
#   DATA=data PEOPLE=cifar_n_human.npz RESULTS=mine scripts/reproduce_images.sh
# A second run goes on where the first was ended. RESULTS=results runs only what is missing there.
set -eu
data="${DATA:-data}"
people="${PEOPLE:-$data/cifar_n_human.npz}"
results="${RESULTS:-reproduced}"
run() { mild reproduce "$@" --data-dir "$data"; }
mean1="--method tdef --method mild:total=mean1"

run classifier --protocol fast --protocol paper --results "$results/classifier.json"
for rate in 1e-3 2e-3 8e-3 1.6e-2; do
    run classifier --lr $rate --results "$results/classifier.json"
done

run readings --robustness --results "$results/readings.jsonl"
run readings --scale unit --results "$results/readings-unit.jsonl"

table1="run table1 --results $results/table1.jsonl"
$table1 --method tdef --method mild --method mild:total=mean1 --method tuned:rewards=any
$table1 --setup I --cost error --protocol paper --seeds 3 --method tdef --method mild \
    --method mild:rewards=contrast,counts=reward,total=1
$table1 --setup III --cost error --lr 1e-3 --seeds 3 --method mild
$table1 --dataset cifar100 --setup I --setup III --seeds 3 $mean1
$table1 --dataset svhn5000 --batch-size 256 --seeds 3 $mean1 --method tuned

run table2 --results "$results/table2.jsonl" --seeds 3 $mean1 --method tuned
severe="run severe --results $results/severe.jsonl"
$severe --experts synthetic --method tdef --method mild --method tuned:rewards=any
$severe --experts real $mean1 --method tuned
run people --people "$people" --results "$results/people.jsonl" --seeds 3 $mean1 --method tuned

mild reproduce show "$results"
