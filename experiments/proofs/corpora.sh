#!/bin/sh
# Makes the corpora of a study in the current folder, with the program in PATH. Files that are there are kept.
#
#     sh experiments/proofs/corpora.sh proofs|code|copying
set -e
here=$(cd "$(dirname "$0")" && pwd)

# Runs the command behind $1 unless the file or folder $1 is there.
make() {
  output=$1
  shift
  [ -e "$output" ] || "$@"
}

twice() {
  make twice.h5 quire prepare --split train=twice/train --split valid=twice/valid --tokenizer spm:spm.model \
    --output twice.h5
}

case $1 in
  proofs) make proofs python3 "$here/../corpora/make.py" proofs --letters drop --no-corpus --output proofs ;;
  code) make code python3 "$here/../corpora/make.py" code --no-corpus --output code ;;
  copying)
    make twice python3 "$here/twice.py" --output twice
    make spm.model quire tokenizer train --input twice/train --vocab-size 512 --output spm.model
    twice
    exit
    ;;
  *)
    echo "corpora.sh: give proofs, code or copying" >&2
    exit 2
    ;;
esac
make spm.model quire tokenizer train --input "$1/train" --vocab-size 2048 --space-runs --max-sentences 100000 \
  --output spm.model
make "$1.h5" quire prepare --split "train=$1/train" --split "valid=$1/valid" --tokenizer spm:spm.model --output "$1.h5"
make twice python3 "$here/twice.py" "$1/train" --output twice
twice
