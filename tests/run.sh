#!/usr/bin/env bash
# All tests with one command, from a fresh clone on Debian or Ubuntu with Rust installed.
#
#   tests/run.sh            everything; installs what is missing and says what
#   tests/run.sh --quick    formatting, lints and tests only; installs nothing
#
# What it installs: Debian packages through apt (as root or through sudo), Python wheels into .venv, cargo-deny into
# target/tools. Running it again installs nothing twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=false
case "${1-}" in
    "") ;;
    --quick) quick=true ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac

# C compiler and nasm: the feature libjpeg and the fuzzing engine. libjpeg-turbo-progs: djpeg, the tests' reference.
# GStreamer: the plugin crate. libclang: bindgen. libjpeg: the emulator's nvJPEG.
packages=(gcc g++ make nasm pkg-config python3 python3-venv libjpeg-turbo-progs libgstreamer1.0-dev gstreamer1.0-tools
    libclang-dev libjpeg-dev)
deny_version=0.20.2
tools="$PWD/target/tools"
python="$PWD/.venv/bin/python"

timings=()
current=""
started=0
begin() {
    current=$1 started=$SECONDS
    printf '\n==> %s\n' "$current"
}
end() {
    timings+=("$(printf '%5d s  %s' $((SECONDS - started)) "$current")")
    current=""
}
step() {
    begin "$1"
    shift
    "$@"
    end
}
report() {
    status=$?
    printf '\n'
    [ ${#timings[@]} -eq 0 ] || printf '%s\n' "${timings[@]}"
    printf '%5d s  in all\n' "$SECONDS"
    if [ "$status" -ne 0 ]; then echo "FAILED: ${current:-tests/run.sh} (status $status)"; else echo "all passed"; fi
}
trap report EXIT

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "no dpkg here: install the equivalents of ${packages[*]} yourself"
        return
    fi
    local missing=() package
    for package in "${packages[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "all there: ${packages[*]}"
        return
    fi
    echo "installing ${missing[*]}"
    local root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_wheels() {
    if cmp -s tests/requirements.txt .venv/requirements.txt; then
        echo "all there in .venv"
        return
    fi
    echo "installing tests/requirements.txt into .venv"
    python3 -m venv --clear .venv
    "$python" -m pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
    cp tests/requirements.txt .venv/requirements.txt
}

# Unoptimised: it is built once and runs for two seconds.
install_cargo_deny() {
    if [ "$("$tools/bin/cargo-deny" --version 2>/dev/null)" = "cargo-deny $deny_version" ]; then
        echo "cargo-deny $deny_version is there"
        return
    fi
    echo "installing cargo-deny $deny_version into target/tools"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        CARGO_TARGET_DIR="$tools/build" \
        cargo install --quiet --locked --no-default-features --root "$tools" --version "$deny_version" cargo-deny
    rm -rf "$tools/build"
}

workspace() {
    local members=(--workspace)
    if ! pkg-config --exists 'gstreamer-1.0 >= 1.20'; then
        echo "skipped gst-plugin-ocellus: no GStreamer development files"
        members+=(--exclude gst-plugin-ocellus)
    fi
    cargo "$1" --locked "${members[@]}" "${@:2}"
}

formatting() {
    cargo fmt --all --check
    local crate
    for crate in fuzz peers onnx-proto-gen; do cargo fmt --manifest-path "tests/$crate/Cargo.toml" --check; done
}

# The second one is also the check that the program builds without its default features.
clippy() {
    workspace clippy --all-targets -- -D warnings
    cargo clippy --locked -p ocellus --all-targets --no-default-features --features libjpeg -- -D warnings
}

documentation() {
    RUSTDOCFLAGS=-Dwarnings workspace doc --no-deps
}

# The committed declarations of nvJPEG against the header in NVIDIA's wheel.
nvjpeg_bindings() {
    local header=("$PWD"/.venv/lib/python3*/site-packages/nvidia/cu13/include/nvjpeg.h)
    local flags=(--locked -p ocellus-sys --features bindgen)
    OCELLUS_NVJPEG_HEADER=${header[0]} cargo clippy "${flags[@]}" --all-targets -- -D warnings
    OCELLUS_NVJPEG_HEADER=${header[0]} cargo test "${flags[@]}" --lib declarations
}

# The GPU path without a GPU: what the emulator can do and CI has time for. Everything runs on a real one by tests/gpu.
emulated() {
    local libraries="$PWD/target/emulator"
    tests/emulator/build.sh "$libraries"
    on_emulator() {
        env OCELLUS_CUDA_LIBS="$libraries" LD_LIBRARY_PATH="$libraries" OCELLUS_CACHE_DIR="$PWD/target/emulator-cache" REQUIRE_GPU=1 \
            cargo test --locked -p tests "$@"
    }
    on_emulator --test gpu_ops --test gpu_conv --test gpu_top_k --test gpu_preprocess --test gpu_classify --test gpu_network \
        --test gpu_allocations --test gpu_engine --test gpu_interrupt --test gpu_faults --test gpu_parity --test gpu_single
    # What is let go before the work that uses it is done.
    OCELLUS_EMULATOR_ORDER=lazy on_emulator --test gpu_top_k --test gpu_preprocess --test gpu_single
    # Kernels as they are cut for Hopper.
    OCELLUS_EMULATOR_CC=90 on_emulator --test gpu_preprocess -- large_scales random_batches work_for_every
    # Architectures with the least shared memory.
    OCELLUS_EMULATOR_CC=86 on_emulator --test gpu_preprocess large_scales
}

readme_command() {
    local rows=target/readme-rows.jsonl
    mkdir -p target
    cargo run --locked --release -- classify samples/photos >"$rows"
    "$python" - "$rows" <<'PYTHON'
import json, pathlib, sys

rows = {pathlib.Path(row["path"]).name: row for row in map(json.loads, open(sys.argv[1]))}
photos = {photo.name for photo in pathlib.Path("samples/photos").iterdir()}
assert rows.keys() == photos, f"rows for {sorted(rows)}, photos {sorted(photos)}"
for name, row in sorted(rows.items()):
    print(f"{name:18} {row['top'][0]['score']:.2f} {row['top'][0]['label']}")
assert rows["panda.jpg"]["top"][0]["label"] == "giant panda"
PYTHON
}

if ! $quick; then
    step "Debian packages" install_packages
    step "Python wheels" install_wheels
    step "cargo-deny" install_cargo_deny
fi
# tests/tests/networks.rs has ONNX Runtime make what it compares with.
if [ -x "$python" ]; then export OCELLUS_TEST_PYTHON="$python"; fi
# tests/tests/kernels_compile.rs compiles every GPU kernel with NVRTC, which needs no GPU; nor does NVTX.
nvidia=("$PWD"/.venv/lib/python3.*/site-packages/nvidia/cu13/lib)
if [ -z "${OCELLUS_CUDA_LIBS-}" ] && [ -d "${nvidia[0]}" ]; then export OCELLUS_CUDA_LIBS="${nvidia[0]}" REQUIRE_NVRTC=1 REQUIRE_NVTX=1; fi
step "formatting" formatting
step "lints" clippy
# The command-line tests build the program themselves; here, so that a build error is not a test's.
step "build" cargo build --locked -p ocellus
step "tests" workspace test
if ! $quick; then
    # Of the whole workspace, so that no dependency is built a second time with other features.
    step "tests with libjpeg" workspace test --features tests/libjpeg --lib --test decode --test decode_layouts --test torture
    step "the GPU's emulator" tests/emulator/test.sh
    step "kernels on the emulator" emulated
    step "documentation" documentation
    step "licences, bans, sources" "$tools/bin/cargo-deny" check licenses bans sources
    step "golden data" tests/golden/check.sh "$python"
    step "declarations of nvJPEG" nvjpeg_bindings
    step "fuzzing" tests/fuzz/run.sh 15
    step "README: classify samples/photos" readme_command
fi
