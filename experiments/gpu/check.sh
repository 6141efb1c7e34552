#!/usr/bin/env bash
# Runs what needs a GPU, in stages of nine minutes at most, each with its own result; a stage that fails does not keep the
# others from running. Ends with 1 when one failed.
#   experiments/gpu/check.sh BUNDLE [--corpus FILE] [--results FOLDER] [--seconds N] [STAGE ...]
# BUNDLE: see README.md. FILE: what `quire prepare` made with splits train and held_out, for quickstart; `./bootstrap demo`
# leaves one in quickstart/. FOLDER gets check-STAGE.json for each stage, and check-STAGE.log while it runs. N: when all of
# it has taken so long, a stage that is running ends and the others are left out. Without STAGE: all of them, in this order:
stages=(machine products attention kernels golden training mechanisms quickstart memcheck racecheck)
set -uo pipefail
stop() {
  echo "check.sh: error: $1" >&2
  exit 2
}
usage="usage: check.sh BUNDLE [--corpus FILE] [--results FOLDER] [--seconds N] [STAGE ...]; stages: ${stages[*]}"
[ -x "${1:-}/bin/quire" ] || stop "'${1:-}' is no bundle; $usage"
command="$0 $*"
bundle=$(realpath "$1")
shift
corpus='' results='' seconds='' wanted=()
while [ $# -gt 0 ]; do
  case $1 in
    --corpus | --results) [ $# -ge 2 ] || stop "$1 needs a path; $usage" ;;&
    --corpus)
      corpus=$(realpath "$2")
      [ -f "$corpus" ] || stop "$2: no such corpus; quire prepare makes one"
      shift 2
      ;;
    --results)
      mkdir -p "$2" || stop "$2: the folder cannot be made"
      results=$(realpath "$2")
      shift 2
      ;;
    --seconds)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || stop "--seconds needs a number of seconds; $usage"
      seconds=$2
      shift 2
      ;;
    *)
      [[ " ${stages[*]} " == *" $1 "* ]] || stop "there is no stage '$1'; $usage"
      wanted+=("$1")
      shift
      ;;
  esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=("${stages[@]}")
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
limit=540
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export QUIRE_TEST_DEVICE=cuda QUIRE_GOLDEN_DIR="$bundle/tests/golden"

# A program's tests in several processes, some at a time: a kernel that fails ends its own process (3), and others go on.
in_shards() {
  local shards=$1 at_once=$2 status=0 shard ended
  shift 2
  trap 'cat "$scratch"/shard-*; exit 124' TERM  # the stage takes too long
  for ((shard = 0; shard < shards; ++shard)); do
    [ "$shard" -lt "$at_once" ] || wait -n
    {
      GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$@" >"$scratch/shard-$shard" 2>&1
      echo $? >"$scratch/status-$shard"
    } &
  done
  wait
  for ((shard = 0; shard < shards; ++shard)); do
    cat "$scratch/shard-$shard"
    read -r ended <"$scratch/status-$shard" || ended=1
    [ "$ended" = 0 ] || status=$ended
  done
  rm "$scratch"/shard-* "$scratch"/status-*
  return "$status"
}

run_stage() {
  local kernels='--gtest_filter=CudaOpTable*:*CudaAttention*:*CudaBlocks*'
  case $1 in
    machine)
      nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader && "$bundle/bin/quire" --version &&
        "$bundle/bin/quire" bench "$bundle/configs/quickstart.yaml" run.device=cuda --steps 5 --warmup 2
      ;;
    products) in_shards 2 2 "$bundle/tests/test_gpu" '--gtest_filter=*gemm*:*matmul*:*linear*:*feed_forward*' ;;
    attention) in_shards 8 4 "$bundle/tests/test_gpu" '--gtest_filter=*attention*:*CudaAttention*' ;;
    kernels) in_shards 16 4 "$bundle/tests/test_gpu" '--gtest_filter=-*Training*:*Nccl*' ;;
    golden) "$bundle/tests/test_golden" ;;
    training) in_shards 4 1 "$bundle/tests/test_gpu" '--gtest_filter=*Training*:*Nccl*' ;;
    mechanisms) in_shards 16 4 "$bundle/tests/test_integration" '--gtest_filter=*Mechanism*' ;;
    quickstart)
      "$bundle/bin/quire" train "$bundle/configs/quickstart.yaml" run.device=cuda data.corpus="$corpus" \
        --run-dir "$scratch/run" && "$bundle/bin/quire" eval "$scratch/run" --json &&
        "$bundle/bin/quire" bench "$bundle/configs/quickstart.yaml" run.device=cuda --steps 200 &&
        "$bundle/bin/quire" bench "$bundle/configs/quickstart.yaml" run.device=cuda --steps 50 --profile
      ;;
    memcheck | racecheck)
      # Kernels of quire alone: those of libraries are many times as many, and libraries try calls that may fail.
      local filter=--kernel-name
      compute-sanitizer --help | grep -q -e --kernel-name || filter=--filter
      in_shards 16 4 compute-sanitizer --tool "$1" "$filter" kns=quire --report-api-errors no --error-exitcode 9 \
        "$bundle/tests/test_gpu" "$kernels"
      ;;
  esac
}

# A stage that there is no machine or corpus for is left out, with a word.
missing_for() {
  case $1 in
    quickstart) [ -n "$corpus" ] || echo 'it needs --corpus' ;;
    memcheck | racecheck) command -v compute-sanitizer >/dev/null || echo 'compute-sanitizer is not there' ;;
  esac
}

export -f run_stage in_shards
export bundle corpus scratch
failed=0 summary=()
for stage in "${wanted[@]}"; do
  reason=$(missing_for "$stage")
  rest=$((${seconds:-$limit} - (${#seconds} ? SECONDS : 0)))
  [ "$rest" -gt 5 ] || reason="$seconds s are over" failed=1
  if [ -n "$reason" ]; then
    summary+=("$(printf '%-12s not run: %s' "$stage" "$reason")")
    continue
  fi
  echo "== $stage"
  started=$SECONDS status=0 given=$((rest < limit ? rest : limit))
  log=${results:-$scratch}/check-$stage.log
  timeout -k 15 "$given" bash -c "run_stage $stage" >"$log" 2>&1 || status=$?
  skipped=$(grep -c '^\[  SKIPPED \] .*ms)' "$log")
  outcome=passed
  [ "$skipped" = 0 ] || outcome="passed, $skipped tests skipped"
  [ "$status" = 0 ] || outcome="status $status"
  [ "$status" != 124 ] || outcome="not done after $given s"
  # Tests skip themselves where there is no GPU.
  ! grep -q 'no GPU can be used' "$log" || outcome=skipped
  tail -n 25 "$log"
  [[ "$outcome" == passed* ]] || failed=1
  summary+=("$(printf '%-12s %s, %d s' "$stage" "$outcome" $((SECONDS - started)))")
  if [ -n "$results" ]; then
    python3 "$here/write_result.py" "$results/check-$stage.json" "$bundle" "$outcome" $((SECONDS - started)) \
      "$command" "$log" && rm "$log" || failed=1
  fi
done
echo
printf '%s\n' "${summary[@]}"
exit $failed
