#!/usr/bin/env bash
# bundle_test.sh CMAKE BUILD_FOLDER SCRATCH: the installed bundle finds every library beside itself but for those of the C
# library, is small, and runs.
set -euo pipefail
cmake=$1 build=$2 bundle=$3
rm -rf "$bundle"
for component in program cuda bundle; do
  "$cmake" --install "$build" --prefix "$bundle" --component "$component" --strip >/dev/null
done
for program in "$bundle"/bin/quire "$bundle"/tests/test_gpu "$bundle"/tests/test_golden "$bundle"/tests/test_integration; do
  libraries=$(ldd "$program")
  outside=$(awk -v bundle="$bundle/" '$2 == "=>" && index($3, bundle) != 1 &&
    $1 !~ /^(libc|libm|libdl|librt|libpthread|libresolv)\.so/ { print $1 }' <<<"$libraries")
  if [ -n "$outside" ]; then
    echo "$program takes from outside the bundle:" $outside
    exit 1
  fi
done
size=$(du -sm "$bundle" | cut -f1)
if [ "$size" -ge 60 ]; then
  echo "the bundle has $size MB"
  exit 1
fi
[ -s "$bundle/COMMIT" ]
"$bundle/bin/quire" --version
"$bundle/bin/quire" bench "$bundle/configs/quickstart.yaml" run.device=cpu model.layers=1 --steps 1 --warmup 0
QUIRE_GOLDEN_DIR="$bundle/tests/golden" "$bundle/tests/test_golden" | tail -n 1
rm -rf "$bundle"
