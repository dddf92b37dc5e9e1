#!/usr/bin/env bash
# Everything that a machine with an NVIDIA GPU needs to test and measure this checkout, in one folder: programs, tests,
# models, photos. It needs neither Rust nor the sources there.
#
#   tests/gpu/bundle.sh [FOLDER]      default: target/gpu-bundle
#
# It uses no network. tests/gpu/wheels.sh FOLDER adds what some of the programs that are measured beside Ocellus need.
# PROFILE=dev builds the tests without release optimisation (faster to build; figures always come from release code).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bundle=${1:-target/gpu-bundle}
profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
tests=(gpu_conv gpu_ops gpu_top_k gpu_preprocess gpu_network gpu_engine gpu_classify gpu_parity gpu_single gpu_faults gpu_bench)

rm -rf "$bundle"
mkdir -p "$bundle/bin" "$bundle/tests/gpu" "$bundle/tests/golden"

cargo build --locked --release -p ocellus
cp "$target/release/ocellus" "$bundle/bin/"
flags=(--locked --profile "$profile" -p tests)
cargo build "${flags[@]}" --bin resnet50
output=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
cp "$output/resnet50" "$bundle/bin/"
for name in "${tests[@]}"; do
    program=$(cargo test "${flags[@]}" --test "$name" --no-run --message-format=json |
        python3 -c 'import json, sys
found = [m["executable"] for m in map(json.loads, sys.stdin) if m.get("reason") == "compiler-artifact" and m["target"]["name"] == sys.argv[1] and m["executable"]]
print(found[-1])' "$name")
    cp "$program" "$bundle/bin/$name"
done
strip "$bundle"/bin/*

cp -r configs samples "$bundle/"
cp -r tests/golden/decode "$bundle/tests/golden/"
# The tests read these below the workspace's root.
touch "$bundle/Cargo.toml"
cp tests/gpu/run.sh tests/gpu/soak.sh tests/gpu/*.py "$bundle/tests/gpu/"
git rev-parse HEAD >"$bundle/commit"

# Photos to compare precisions on; they are not ours to publish, so they are taken from the test data where it is.
data=${OCELLUS_TEST_DATA:-../shared/data}
if [ -d "$data/imagenet-500" ]; then
    mkdir -p "$bundle/data/imagenet-500"
    find "$data/imagenet-500" -name '*.jpg' -o -name '*.JPEG' | sort | head -n 200 | xargs cp -t "$bundle/data/imagenet-500"
    cp "$data/imagenet-500/labels.tsv" "$bundle/data/imagenet-500/"
fi
du -sh "$bundle"
