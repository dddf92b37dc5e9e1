#!/usr/bin/env bash
# One job that runs long, over good and bad files without end: memory of host and GPU must stay as it is, and the rate too.
#
#   tests/gpu/soak.sh SECONDS [OPTION...]      options of `ocellus classify`, such as --device cuda --model NET.onnx
#
# In a bundle (tests/gpu/bundle.sh) or a checkout. Prints one line of JSON; exit code 1 where something grew, slowed down, or
# came out otherwise than before. Other programs may use other GPUs: CUDA_VISIBLE_DEVICES says which one is meant.
#
# OCELLUS_TEST_PROGRAM   the program (default: bin/ocellus, else that of target/release)
# SOAK_JSON              a file that gets the line as well
# SOAK_LIGHT=1           no picture of more than a megapixel: for the CPU and the emulator
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

case "${1-}" in
    "" | *[!0-9]*) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
program=${OCELLUS_TEST_PROGRAM:-$PWD/bin/ocellus}
[ -x "$program" ] || program=${CARGO_TARGET_DIR:-target}/release/ocellus
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

corpus() { "$program" bench corpus --size "$1" --pictures "$2" "$scratch/$1" >/dev/null; }
corpus 500x375 48
corpus 333x500 8
if [ -z "${SOAK_LIGHT-}" ]; then
    corpus 1920x1080 8
    corpus 6000x4000 1
fi
python3 -B tests/gpu/soak.py "$program" "$scratch" "$@"
