#!/bin/sh
# Makes the corpora of the studies on the default task in the current folder, with the program in PATH. Files that are
# there are kept.
#
#     sh experiments/recall/corpora.sh
set -e
here=$(cd "$(dirname "$0")" && pwd)

# Runs the command behind $1 unless the file or folder $1 is there.
make() {
  output=$1
  shift
  [ -e "$output" ] || "$@"
}

make bytes.h5 quire prepare --task recall --split train=300 --output bytes.h5
make spm.model quire tokenizer train --input bytes.h5 --vocab-size 512 --output spm.model
make near.h5 quire prepare --task recall --tokenizer spm:spm.model --set near_share=1 --set facts=2 --set mentions=6 \
  --split train=3000 --split valid=40 --output near.h5
make task.h5 quire prepare --task recall --tokenizer spm:spm.model --split train=4000 --split valid=40 --output task.h5
make twice python3 "$here/../proofs/twice.py" --syllables --distinct 5 --output twice
make twice.h5 quire prepare --split train=twice/train --split valid=twice/valid --tokenizer spm:spm.model \
  --output twice.h5
