#!/usr/bin/env bash
# Builds the emulator: libcuda.so.1, libnvrtc.so.13 and libnvjpeg.so.13 into target/emulator, or the folder given.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
out="${1-$here/../../target/emulator}"
mkdir -p "$out/build"
out="$(cd "$out" && pwd)"
cxx="${CXX-g++}"
read -ra extra <<<"${CXXFLAGS-}"
flags=(-std=c++17 -O3 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -ffp-contract=off -pthread "-I$here" "-I$out/build" "${extra[@]}")

# The headers that kernels are compiled with, as string literals.
{
    echo '// Made by build.sh.'
    echo 'static const struct { const char* name; const char* text; } kDeviceHeaders[] = {'
    for header in "$here"/device/*; do printf '{"%s", R"EMULATOR(%s\n)EMULATOR"},\n' "$(basename "$header")" "$(cat "$header")"; done
    echo '};'
} >"$out/build/embedded.hpp.new"
cmp -s "$out/build/embedded.hpp.new" "$out/build/embedded.hpp" || mv "$out/build/embedded.hpp.new" "$out/build/embedded.hpp"

mapfile -t headers < <(find "$here" "$out/build/embedded.hpp" -name '*.h*')

# library SONAME GROUP... [-lNAME...]: GROUP.cpp and GROUP/*.cpp, compiled where they or a header changed since.
library() {
    local soname=$1 objects=() links=() group source object
    shift
    for group in "$@"; do
        if [[ $group == -l* ]]; then links+=("$group"); continue; fi
        for source in "$here/$group.cpp" "$here/$group"/*.cpp; do
            [ -e "$source" ] || continue
            object="$out/build/$group-$(basename "$source" .cpp).o"
            if [ ! -e "$object" ] || [ -n "$(find "$source" "${headers[@]}" -newer "$object" -print -quit)" ]; then
                "$cxx" "${flags[@]}" -c "$source" -o "$object"
            fi
            objects+=("$object")
        done
    done
    # Renamed into place: a process that has the old one mapped keeps it.
    "$cxx" "${extra[@]}" -shared -pthread -Wl,-soname,"$soname" -Wl,--no-undefined "${objects[@]}" "${links[@]}" -ldl -o "$out/$soname.new"
    mv "$out/$soname.new" "$out/$soname"
}

library libnvrtc.so.13 nvrtc
library libcuda.so.1 driver machine
library libnvidia-ml.so.1 nvml

if compgen -G "$here/nvjpeg*" >/dev/null; then
    if printf '#include <cstdio>\n#include <jpeglib.h>\n' | "$cxx" -fsyntax-only -x c++ - 2>/dev/null; then
        library libnvjpeg.so.13 nvjpeg -ljpeg
    else
        echo "no libnvjpeg.so.13: there is no jpeglib.h (libjpeg62-turbo-dev or libjpeg-turbo8-dev has it)" >&2
    fi
fi
