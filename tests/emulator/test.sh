#!/usr/bin/env bash
# Builds the emulator into target/emulator, or the folder given, and tests it.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${1-$here/../../target/emulator}"
"$here/build.sh" "$out"
EMULATOR="$(cd "$out" && pwd)"
export EMULATOR

# Every function of the project's ptx.cuh must be in the emulator's.
functions() { grep -oE '^__device__ __forceinline__ [a-z0-9_]+ [a-z0-9_]+\(' "$1" | sed -E 's/.* ([a-z0-9_]+)\($/\1/' | sort -u; }
missing="$(comm -23 <(functions "$here/../../kernels/cu/ptx.cuh") <(functions "$here/device/ptx.cuh"))"
if [ -n "$missing" ]; then
    echo "tests/emulator/device/ptx.cuh lacks functions of kernels/cu/ptx.cuh:" $missing >&2
    exit 1
fi

cd "$here/selftest"
export PYTHONDONTWRITEBYTECODE=1
python3 test_kernels.py
# Fewer OS threads than blocks, and threads in an order of their own.
OCELLUS_EMULATOR_THREADS=1 OCELLUS_EMULATOR_SEED=3 python3 test_kernels.py
python3 test_driver.py
OCELLUS_EMULATOR_ORDER=lazy python3 test_driver.py
python3 test_faults.py
