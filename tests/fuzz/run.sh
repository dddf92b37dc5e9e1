#!/usr/bin/env bash
# Fuzzes the parsers of files that come from outside.
#
#   tests/fuzz/run.sh [SECONDS [TARGET...]]     60 seconds for each of all targets by default
#
# Builds with the stable toolchain: libFuzzer with LLVM's coverage instrumentation, no sanitizer (the code is safe Rust;
# panics, overflows, hangs and memory above 2 GiB are what can go wrong). What it learns is kept in target/fuzz/corpus,
# an input that crashes in target/fuzz/faults.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root=$(cd ../.. && pwd)
seconds=${1:-60}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=(onnx_import model_card job_file exif jpeg_header)

host=$(rustc -vV | sed -n 's/^host: //p')
# With --target the flags do not reach build scripts and macros, which have no fuzzing engine to link with.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
export CARGO_TARGET_DIR="$root/target/fuzz/build"
cargo build --locked --release --target "$host"

python="$root/.venv/bin/python"
[ -x "$python" ] || python=python3
"$python" seeds.py "$root" "$root/target/fuzz/seeds"

fuzz() {
    local target=$1 work="$root/target/fuzz"
    mkdir -p "$work/corpus/$target" "$work/faults"
    "$CARGO_TARGET_DIR/$host/release/$target" "$work/corpus/$target" "$work/seeds/$target" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$work/faults/$target-" >"$work/$target.log" 2>&1 || {
        tail -n 40 "$work/$target.log"
        echo "$target: fault; the input is in $work/faults"
        return 1
    }
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log") inputs, no fault"
}

# As many at once as there are cores.
running=()
failed=false
for target in "${targets[@]}"; do
    fuzz "$target" &
    running+=($!)
    if [ ${#running[@]} -ge "$(nproc)" ]; then
        wait "${running[0]}" || failed=true
        running=("${running[@]:1}")
    fi
done
for job in "${running[@]}"; do wait "$job" || failed=true; done
! $failed
