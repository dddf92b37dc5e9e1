#!/usr/bin/env bash
# Tests and measures on a machine with an NVIDIA GPU, its driver and CUDA's libraries, in a folder that
# tests/gpu/bundle.sh made.
#
#   tests/gpu/run.sh [OUTPUT]           everything but sanitizer and soak (default OUTPUT: output)
#   tests/gpu/run.sh OUTPUT PART...     some of: doctor tests agreement bench gpus peers sanitizer soak
#
# OUTPUT gets report.json and logs.tar.gz, both written anew after every part; what an earlier run of the same commit left in
# report.json stays where this run does not measure it again.
#
# TIME_LIMIT          seconds for everything; what is not done by then is left out or stopped, and said so (default: none)
# SANITIZER_SECONDS   of those, for the part sanitizer (default 480); SANITIZER_TOOLS: memcheck,racecheck,initcheck
# SANITIZER_GO_ON     jobs.json of a run of that part whose time ended, in its logs (a whole path): what was clean is not run again
# SOAK_SECONDS        seconds of the part soak (default 600)
# TEST_PROGRAMS       at once in the part tests (default 3), each with RUST_TEST_THREADS tests (default 8): a job may take
#                     several gigabytes of the GPU
# NUMBER_OF_JOBS      processes at once in the part sanitizer (default: cores - 2)
# OCELLUS_CACHE_DIR   keeps compiled kernels for the next run, which sanitizer saves minutes with (default: none are kept)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

output=${1:-output}
[ $# -gt 0 ] && shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(doctor tests agreement bench gpus peers)
for part in "${parts[@]}"; do
    case $part in
        doctor | tests | agreement | bench | gpus | peers | sanitizer | soak) ;;
        *) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
    esac
done
mkdir -p "$output"
output=$(cd "$output" && pwd)
bin=$PWD/bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
logs=$scratch/logs
mkdir "$logs"

export REQUIRE_GPU=1 OCELLUS_TEST_ROOT=$PWD OCELLUS_TEST_PROGRAM=$bin/ocellus OCELLUS_TEST_DATA=$PWD/data
export OCELLUS_CACHE_DIR=${OCELLUS_CACHE_DIR:-$scratch/cache}

left() { echo $((${TIME_LIMIT:-86400} - SECONDS)); }
# Says what runs, keeps what it prints, and prints its end.
logged() {
    local name=$1 time=$2 status=124
    shift 2
    [ "$time" -lt "$(left)" ] || time=$(left)
    echo "==> $name"
    if [ "$time" -gt 0 ]; then
        timeout --kill-after 10 "$time" "$@" >"$logs/$name.log" 2>&1
        status=$?
    fi
    [ "$status" != 124 ] || echo "out of time" >>"$logs/$name.log"
    echo "$status" >"$logs/$name.status"
    [ "$BASHPID" = $$ ] || echo "<== $name"
    tail -n "${TAIL:-3}" "$logs/$name.log"
}

doctor() { TAIL=30 logged doctor 120 "$bin/ocellus" doctor; }

# Several programs at a time: much of what one takes is compiling kernels, or waiting. Why a test failed is printed when it does: a
# program whose time ends takes with it what it kept.
tests() {
    local program
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-8}
    for program in "$bin"/gpu_*; do
        while [ "$(jobs -rp | wc -l)" -ge "${TEST_PROGRAMS:-3}" ]; do wait -n; done
        logged "$(basename "$program")" 600 "$program" --nocapture &
    done
    wait
}

# Labels in half precision beside those of the CPU in single.
agreement() {
    [ -d data/imagenet-500 ] || return
    local model device
    for model in efficientnet-lite0 squeezenet1.1; do
        for device in cpu cuda; do
            logged "agreement-$model-$device" 120 "$bin/ocellus" classify data/imagenet-500 --model "$model" \
                --device "$device" -o "$logs/agreement-$model-$device.jsonl" --overwrite
        done
    done
}

measure() { TAIL=20 logged "bench-$1" 120 "$bin/ocellus" bench "${@:2}" --json "$logs/bench-$1.json"; }

resnet=$scratch/resnet50.onnx
with_resnet() { [ -f "$resnet" ] || "$bin/resnet50" "$resnet"; }

bench() {
    local size
    with_resnet
    measure startup startup
    measure infer-resnet50 infer --model "$resnet" --batch 1,32,256
    measure infer-resnet50-portable infer --model "$resnet" --batch 256 --portable
    measure infer-efficientnet infer --batch 1,32,256
    for size in 500x375 1920x1080; do
        measure "decode-$size" decode --size "$size"
        measure "decode-auto-$size" decode --path auto --size "$size"
        measure "preprocess-$size" preprocess --size "$size"
        measure "e2e-resnet50-$size" e2e --size "$size" --model "$resnet"
    done
    measure e2e-efficientnet e2e --size 500x375
    # What --profile costs. (--stats writes what every job counts.)
    measure e2e-efficientnet-profiled e2e --size 500x375 --seconds 3 --profile "$scratch/trace.json"
    # A few seconds each.
    measure latency-efficientnet latency
    measure latency-efficientnet-engines latency --path engines
    measure latency-resnet50 latency --model "$resnet"
}

# All GPUs of the machine at once. What one does is part of bench.
gpus() {
    [ "$(nvidia-smi -L | wc -l)" -gt 1 ] || return 0
    with_resnet
    measure e2e-efficientnet-gpus e2e --size 500x375 --device cuda:all
    measure e2e-resnet50-gpus e2e --size 500x375 --model "$resnet" --device cuda:all
}

# Other programs; wheels/ has those that are not installed.
peers() {
    corpus() { logged "corpus-$1" 60 "$bin/ocellus" bench corpus --size "$1" --pictures "$2" "$scratch/corpora/$1"; }
    corpus 500x375 1024
    corpus 1920x1080 256
    TAIL=20 logged peers 420 env PYTHONPATH="$PWD/wheels" LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}:/usr/local/cuda/lib64" \
        python3 tests/gpu/peers.py "$scratch/corpora" --json "$logs/peers.json"
}

sanitizer() {
    local seconds=${SANITIZER_SECONDS:-480}
    [ "$seconds" -lt $(($(left) - 10)) ] || seconds=$(($(left) - 10))
    TAIL=100 logged sanitizer $((seconds + 20)) env PATH="$PATH:/usr/local/cuda/bin" python3 tests/gpu/sanitizer.py "$logs/sanitizer" --seconds "$seconds" \
        --tools "${SANITIZER_TOOLS:-memcheck,racecheck,initcheck}" ${NUMBER_OF_JOBS:+--jobs "$NUMBER_OF_JOBS"} \
        ${SANITIZER_GO_ON:+--go-on "$SANITIZER_GO_ON"}
}

# One job that runs long. CUDA_VISIBLE_DEVICES keeps it on a GPU of its own.
soak() {
    local seconds=${SOAK_SECONDS:-600}
    SOAK_JSON=$logs/soak.json logged soak $((seconds + 300)) tests/gpu/soak.sh "$seconds" --device cuda
}

for part in "${parts[@]}"; do
    "$part"
    python3 tests/gpu/report.py "$logs" "$(cat commit)" "$output/report.json" >"$logs/report.txt"
    tar czf "$output/logs.tar.gz.new" -C "$scratch" logs && mv "$output/logs.tar.gz.new" "$output/logs.tar.gz"
done
cat "$logs/report.txt"
echo "$SECONDS s in all"
