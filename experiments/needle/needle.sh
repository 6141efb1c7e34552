#!/usr/bin/env bash
# Trains a small DRT to find a passkey in at most 2048 bytes and asks it in documents of up to 64 times that length.
#   experiments/needle/needle.sh WORK CORPUS [SEED [KEY=VALUE ...]]
# CORPUS: a corpus of bytes with a split held_out, as ./bootstrap demo makes it. The command goes on where it stopped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
quire=${QUIRE_PROGRAM:-$here/../../build/native/bin/quire}
work=${1:?"usage: needle.sh WORK CORPUS [SEED [KEY=VALUE ...]]"}
corpus=${2:?"usage: needle.sh WORK CORPUS [SEED [KEY=VALUE ...]]"}
seed=${3:-1}
corpus=$(realpath "$corpus")
mkdir -p "$work"

run=$work/run-$seed
if [ -e "$run/config.yaml" ]; then
  "$quire" train --resume "$run"
else
  "$quire" train "$here/drt.yaml" data.corpus="$corpus" data.mix.0.corpus="$corpus" data.mix.1.corpus="$corpus" \
    run.seed="$seed" "${@:4}" --run-dir "$run"
fi
"$quire" needle "$run" --lengths "${LENGTHS:-512,2k,16k,128k}" --depths 0,0.25,0.5,0.75,1 --samples "${SAMPLES:-10}" \
  --filler "$corpus:held_out" --svg "$work/needle-$seed.svg" model.stack.drt.carry.length=4096 |
  tee "$work/needle-$seed.txt"
