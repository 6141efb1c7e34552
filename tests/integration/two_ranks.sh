#!/usr/bin/env bash
# Trains with two ranks for twelve steps and prints their losses: two_ranks.sh QUIRE MPIRUN
set -euo pipefail
quire=$1
launcher=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$quire" prepare --task recall --set length=800 --split train=12 --split valid=2 --output "$folder/corpus.h5" >&2
cat >"$folder/run.yaml" <<YAML
run: {name: two, seed: 3, threads: 1}
data: {corpus: $folder/corpus.h5, split: train, subsequence: 32, rows: 3}
model: {width: 32, layers: 2, heads: 2, position: {kind: xl}, attention: {softmax: {carry: {kind: hidden, length: 32}}}}
optimizer: {lr: 1e-2}
schedule: {kind: cosine, warmup: 2, steps: 12}
evaluate: {every: 0}
log: {every: 1}
YAML
"$launcher" -np 2 "$quire" train "$folder/run.yaml" --run-dir "$folder/run" >&2
grep -o '"loss":[^,]*' "$folder/run/metrics.jsonl"
