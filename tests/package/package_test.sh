#!/usr/bin/env bash
# package_test.sh CMAKE BUILD_FOLDER SCRATCH: an installed quire has nothing but the folders of a prefix, completes commands,
# and is found by a project of its user, whose program says the same as quire generate.
set -euo pipefail
cmake=$1 build=$2 scratch=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rm -rf "$scratch"
mkdir -p "$scratch"
prefix=$scratch/prefix
"$cmake" --install "$build" --prefix "$prefix" >/dev/null
[ "$(ls "$prefix" | tr '\n' ' ')" = "bin include lib share " ]

head -n 1 "$prefix/share/man/man1/quire.1" | grep -q '^\.TH QUIRE 1'
grep -q '^\.SS quire tokenizer train$' "$prefix/share/man/man1/quire.1"
# shellcheck disable=SC1091,SC2034
completed() {
  source "$prefix/share/bash-completion/completions/quire"
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  _quire 2>/dev/null
  echo "${COMPREPLY[*]}"
}
[ "$(completed quire tra)" = "train trace" ]
[ "$(completed quire train --res)" = "--resume" ]
[ "$(completed quire train a.yaml schedule.st)" = "schedule.steps=" ]
[ "$(completed quire tokenizer train --vocab)" = "--vocab-size" ]

mkdir "$scratch/texts"
for text in 1 2; do printf 'the cat sat on the mat %s. %.0s' "$text" {1..60} >"$scratch/texts/$text.txt"; done
quire=$prefix/bin/quire
"$quire" prepare --input "$scratch/texts" --output "$scratch/corpus.h5" >/dev/null
"$quire" train "$prefix/share/quire/configs/quickstart.yaml" data.corpus="$scratch/corpus.h5" data.subsequence=64 data.rows=2 \
  model.width=32 model.layers=1 model.heads=2 model.mlp.hidden=32 schedule.steps=20 schedule.warmup=1 evaluate.every=0 \
  optimizer.lr=1e-2 --run-dir "$scratch/run" 2>/dev/null
cp -r "$here" "$scratch/project"
"$cmake" -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
"$cmake" --build "$scratch/project/build" >/dev/null
likely=$("$scratch/project/build/next_token" "$scratch"/run/checkpoints/step-00000020 "the cat s")
[ "$(wc -l <<<"$likely")" = 5 ]
best=$("$quire" generate "$scratch/run" --prompt "the cat s" --length 1 --temperature 0 2>/dev/null)
[ "$(head -n 1 <<<"$likely" | cut -c9-)" = "$best" ]
rm -rf "$scratch"
