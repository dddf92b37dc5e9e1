#!/usr/bin/env bash
# Makes the golden data again and compares it with what is committed: tests/golden/check.sh [PYTHON]
#
# A generator is a file tests/golden/NAME/generate.py. It takes a folder and writes into it exactly the files that lie
# beside it. Where they hold results of ONNX Runtime, only names and sizes are compared: the last bits depend on the CPU.
# A line "needs: PROGRAM..." in it names programs without which it is passed over.
set -euo pipefail
# Absolute, its links not followed: a virtual environment's Python is a link.
python=$(realpath -s "$(command -v "${1:-python3}")")
cd "$(dirname "${BASH_SOURCE[0]}")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

sizes() {
    (cd "$1" && find . -type f ! -name generate.py ! -path '*/__pycache__/*' -printf '%p %s\n' | sort)
}
same() {
    if grep -q onnxruntime "$1/generate.py"; then
        diff <(sizes "$1") <(sizes "$fresh/$1")
    else
        diff -r --exclude=generate.py --exclude=__pycache__ "$1" "$fresh/$1"
    fi
}

failed=false
shopt -s nullglob
for generator in */generate.py; do
    name=$(dirname "$generator")
    for program in $(sed -n 's/^needs: //p' "$generator"); do
        if ! command -v "$program" >/dev/null; then
            echo "skipped $name: no $program here"
            continue 2
        fi
    done
    mkdir "$fresh/$name"
    "$python" "$generator" "$fresh/$name"
    if same "$name"; then
        echo "$name: $(find "$fresh/$name" -type f | wc -l) files, no drift"
    else
        echo "$name: differs from what $generator makes"
        failed=true
    fi
done
! $failed
