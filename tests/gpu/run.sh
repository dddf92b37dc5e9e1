#!/usr/bin/env bash
# Tests and measures on a machine with an NVIDIA GPU, its driver and CUDA's libraries, in a folder that
# tests/gpu/bundle.sh made.
#
#   tests/gpu/run.sh [OUTPUT]           everything; report.json and logs go to OUTPUT (default: output)
#   tests/gpu/run.sh OUTPUT PART...     some of: doctor tests agreement bench peers
#   SANITIZER=1 tests/gpu/run.sh OUTPUT tests    the tests under compute-sanitizer's memcheck, racecheck and initcheck
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

output=${1:-output}
[ $# -gt 0 ] && shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(doctor tests agreement bench peers)
mkdir -p "$output"
output=$(cd "$output" && pwd)
bin=$PWD/bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

export REQUIRE_GPU=1 OCELLUS_TEST_ROOT=$PWD OCELLUS_TEST_PROGRAM=$bin/ocellus OCELLUS_TEST_DATA=$PWD/data
export OCELLUS_CACHE_DIR=$scratch/cache

has() { [[ " ${parts[*]} " == *" $1 "* ]]; }
# Says what runs, keeps what it prints, and prints its end.
logged() {
    local name=$1
    shift
    echo "==> $name"
    "$@" >"$output/$name.log" 2>&1
    local status=$?
    echo "$status" >"$output/$name.status"
    tail -n "${TAIL:-3}" "$output/$name.log"
}

has doctor && TAIL=30 logged doctor "$bin/ocellus" doctor

if has tests; then
    for program in "$bin"/gpu_*; do
        name=$(basename "$program")
        if [ "${SANITIZER:-0}" = 1 ]; then
            for tool in memcheck racecheck initcheck; do
                logged "$tool-$name" compute-sanitizer --tool "$tool" --error-exitcode 9 "$program" --test-threads 1
            done
        else
            logged "$name" timeout 300 "$program"
        fi
    done
fi

# Labels in half precision beside those of the CPU in single.
if has agreement && [ -d data/imagenet-500 ]; then
    for model in efficientnet-lite0 squeezenet1.1; do
        for device in cpu cuda; do
            logged "agreement-$model-$device" "$bin/ocellus" classify data/imagenet-500 --model "$model" \
                --device "$device" -o "$output/agreement-$model-$device.jsonl" --overwrite
        done
    done
fi

if has bench; then
    "$bin/resnet50" "$scratch/resnet50.onnx"
    bench() { TAIL=20 logged "bench-$1" "$bin/ocellus" bench "${@:2}" --json "$output/bench-$1.json"; }
    bench startup startup
    bench infer-resnet50 infer --model "$scratch/resnet50.onnx" --batch 1,32,256
    bench infer-resnet50-portable infer --model "$scratch/resnet50.onnx" --batch 256 --portable
    bench infer-efficientnet infer --batch 1,32,256
    for size in 500x375 1920x1080; do
        bench "decode-$size" decode --size "$size"
        bench "preprocess-$size" preprocess --size "$size"
    done
    bench e2e-efficientnet e2e --size 500x375
    bench e2e-resnet50 e2e --size 500x375 --model "$scratch/resnet50.onnx"
fi

if has peers; then
    "$bin/ocellus" bench corpus --size 500x375 --pictures 256 "$scratch/500x375"
    "$bin/ocellus" bench corpus --size 1920x1080 --pictures 64 "$scratch/1920x1080"
    TAIL=20 logged peers python3 tests/gpu/peers.py "$scratch" --json "$output/peers.json"
fi

python3 tests/gpu/report.py "$output" "$(cat commit)"
