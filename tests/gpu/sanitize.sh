#!/bin/sh
# sanitize.sh TOOL PROGRAM: all op cases under one of compute-sanitizer's tools.
command -v compute-sanitizer >/dev/null || { echo "no GPU can be used: compute-sanitizer is not there"; exit 0; }
exec compute-sanitizer --tool "$1" --error-exitcode 9 "$2" '--gtest_filter=CudaOpTable*'
