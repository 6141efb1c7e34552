#!/usr/bin/env bash
# Starts ranks with Open MPI's mpirun on this machine, also as root in a container:
#   configs/launch/container.sh RANKS quire train run.yaml
# SIGTERM, SIGINT, SIGHUP and SIGUSR1 to this script (docker stop -t 120, Ctrl-C, a closed terminal) let all ranks finish
# their step and save; it then ends with 75, and the run goes on with quire train --resume. MPIRUN_OPTIONS holds further
# options of mpirun, such as "--hostfile configs/launch/hostfile".
set -euo pipefail
[ $# -ge 2 ] || {
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
ranks=$1
shift

# mpirun refuses root, whom containers have, unless it is told twice.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# --oversubscribe: a container may see fewer cores than the ranks that are asked for.
# --bind-to none: quire divides the cores among the ranks of a host; bound ranks would have one core each.
# single_copy none: containers forbid a process to read the memory of another (CMA), which Open MPI 4 finds out too late.
# setsid: Ctrl-C reaches this script only; mpirun would answer it by killing the ranks after a second.
# shellcheck disable=SC2086
setsid mpirun -np "$ranks" --oversubscribe --bind-to none --quiet \
  --mca btl_vader_single_copy_mechanism none ${MPIRUN_OPTIONS:-} "$@" &
mpirun=$!
# The one signal that mpirun passes on to the ranks as it is.
trap 'kill -USR1 $mpirun 2>/dev/null || true' TERM INT HUP USR1
code=0
while :; do
  wait $mpirun && code=0 || code=$?
  kill -0 $mpirun 2>/dev/null || break
done
exit $code
