#!/usr/bin/env bash
# Trains a small model with landmarks and asks it for facts that lie beyond its local length.
#   experiments/landmark/recall.sh WORK [SEED [KEY=VALUE ...]]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
quire=${QUIRE_PROGRAM:-$here/../../build/native/bin/quire}
work=${1:?"usage: recall.sh WORK [SEED [KEY=VALUE ...]]"}
seed=${2:-1}
mkdir -p "$work"

signs=(--task recall --set length=4096 --set 'kinds=[signs]' --set facts=3)
[ -e "$work/learn.h5" ] || "$quire" prepare "${signs[@]}" --set nearest=24 --set farthest=96 --set near_share=0.8 \
  --split train=4000 --split valid=40 --output "$work/learn.h5"
[ -e "$work/far.h5" ] || "$quire" prepare "${signs[@]}" --set nearest=288 --set farthest=448 --set near_share=0 \
  --split valid=40 --seed 2 --output "$work/far.h5"

run=$work/run-$seed
if [ -e "$run/config.yaml" ]; then
  "$quire" train --resume "$run"
else
  "$quire" train "$here/recall.yaml" data.corpus="$work/learn.h5" run.seed="$seed" "${@:3}" --run-dir "$run"
fi
echo "local tokens, blocks read of up to 256 stored: accuracy on recalled tokens"
for local in 64 128; do
  for blocks in 0 1 4; do
    "$quire" eval "$run" data.corpus="$work/far.h5" data.subsequence=$local model.attention.landmark.top_k=$blocks \
      model.attention.landmark.carry.length=256 --json >"$work/eval-$seed-$local-$blocks.json"
    python3 -c 'import json, sys; e = json.load(open(sys.argv[1])); r = e["recall"]; print(sys.argv[2], sys.argv[3],
      "%.3f" % r["accuracy"], "perplexity %.2f" % r["perplexity"], "bits per byte %.4f" % e["bits_per_byte"])' \
      "$work/eval-$seed-$local-$blocks.json" $local $blocks
  done
done
