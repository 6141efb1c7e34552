#!/usr/bin/env bash
# Everything that needs a GPU, in one call: all gpu tests of a bundle (README.md), the sanitizers of CUDA, and the
# quickstart. Goes on after a failure; the last lines say what passed. Ends with 1 when something failed.
#   experiments/gpu/check.sh BUNDLE [CORPUS] [RESULT.json]
# CORPUS: a file that `quire prepare` made with splits train and held_out; `./bootstrap demo` leaves one in quickstart/.
set -uo pipefail
if [ ! -x "${1:-}/bin/quire" ]; then
  echo "check.sh: error: '${1:-}' is no bundle; usage: check.sh BUNDLE [CORPUS] [RESULT.json]" >&2
  exit 2
fi
bundle=$(realpath "$1")
corpus=${2:-}
if [ -n "$corpus" ] && [ ! -f "$corpus" ]; then
  echo "check.sh: error: $corpus: no such corpus; quire prepare makes one" >&2
  exit 2
fi
result=${3:-}
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export QUIRE_TEST_DEVICE=cuda QUIRE_GOLDEN_DIR="$bundle/tests/golden"
names=() outcomes=()

check() {
  local name=$1 started=$SECONDS status=0
  shift
  echo "== $name: $*"
  "$@" >"$scratch/log" 2>&1 || status=$?
  tail -n 25 "$scratch/log"
  if grep -q 'no GPU can be used' "$scratch/log"; then status=skipped; fi
  names+=("$name")
  outcomes+=("$status")
  echo "== $name: $([ "$status" = 0 ] && echo passed || echo "status $status"), $((SECONDS - started)) s"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo 'nvidia-smi is not there'
"$bundle/bin/quire" --version
check kernels "$bundle/tests/test_gpu"
check golden "$bundle/tests/test_golden"
check mechanisms "$bundle/tests/test_integration" '--gtest_filter=*Mechanism*-*trivial*:*/two_halves:*in_a_file*'
for tool in memcheck racecheck; do
  if command -v compute-sanitizer >/dev/null; then
    check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$bundle/tests/test_gpu" '--gtest_filter=CudaOpTable*'
  else
    echo "== $tool: compute-sanitizer is not there"
  fi
done
if [ -n "$corpus" ]; then
  check quickstart "$bundle/bin/quire" train "$bundle/configs/quickstart.yaml" run.device=cuda \
    data.corpus="$(realpath "$corpus")" --run-dir "$scratch/run"
  check quickstart-eval "$bundle/bin/quire" eval "$scratch/run" --json
  check quickstart-bench "$bundle/bin/quire" bench "$bundle/configs/quickstart.yaml" run.device=cuda --steps 50 --profile
fi

failed=0
for i in "${!names[@]}"; do
  printf '%-18s %s\n' "${names[$i]}" "$([ "${outcomes[$i]}" = 0 ] && echo passed || echo "status ${outcomes[$i]}")"
  [ "${outcomes[$i]}" = 0 ] || failed=1
done
if [ -n "$result" ]; then
  python3 "$here/write_result.py" "$result" "$bundle" "${names[*]}" "${outcomes[*]}" "$0 $*"
fi
exit $failed
