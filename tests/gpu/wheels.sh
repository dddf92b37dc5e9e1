#!/usr/bin/env bash
# Puts the Python packages of tests/gpu/wheels.txt into FOLDER/wheels, for a bundle in FOLDER whose machine has no network. Without
# them the part peers leaves DALI and nvImageCodec out.
#
#   tests/gpu/wheels.sh [FOLDER] [PYTHON]     default: target/gpu-bundle 3.12, the version of the Python over there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:-target/gpu-bundle}/wheels
mkdir -p "$folder"
python3 -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --only-binary=:all: --target "$folder" \
    --implementation cp --python-version "${2:-3.12}" --platform manylinux_2_28_x86_64 --requirement tests/gpu/wheels.txt
du -sh "$folder"
