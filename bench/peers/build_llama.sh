#!/bin/sh
# Builds the peer, llama.cpp, from the sdist of the PyPI package llama-cpp-python.
#
#     bench/peers/build_llama.sh [DIR]      default: <user cache>/rose-dev/llama.cpp
#
# Makes DIR/native (all that this processor has), DIR/avx2 (AVX2, FMA and F16C only) and, on a
# processor with AMX, DIR/avx512 (AVX-512 with VNNI and BF16, no AMX; elsewhere it is a link to
# native). Each holds llama-bench, llama-batched-bench, llama-completion, llama-tokenize,
# llama-server, llama-quantize, llama-embedding and peer-tokens (tokens.c beside this script). The variants differ
# in one library, so only that is built three times. JOBS sets the number of compilers.
set -eu
version=0.3.36
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rose-dev
dir=${1:-$cache/llama.cpp}
jobs=${JOBS:-2}
tools="llama-bench llama-batched-bench llama-completion llama-tokenize llama-server llama-quantize llama-embedding"

for tool in cmake gcc g++ python3 tar; do
    command -v $tool > /dev/null || { echo "build_llama: $tool is missing" >&2; exit 1; }
done
mkdir -p "$dir" "$cache/dl"

# 1. The source. pip asks an sdist for its metadata, which needs its build backend: a small venv.
sdist=$cache/dl/llama_cpp_python-$version.tar.gz
if [ ! -f "$sdist" ]; then
    python3 -m venv "$dir/pip"
    "$dir/pip/bin/pip" install -q scikit-build-core
    "$dir/pip/bin/pip" download -q --no-deps --no-build-isolation --no-binary llama-cpp-python \
        -d "$cache/dl" "llama-cpp-python==$version"
fi
src=$dir/src
if [ ! -f "$src/CMakeLists.txt" ]; then
    rm -rf "$dir/unpack"
    mkdir "$dir/unpack"
    tar -xzf "$sdist" -C "$dir/unpack"
    mv "$dir/unpack/llama_cpp_python-$version/vendor/llama.cpp" "$src"
    rm -rf "$dir/unpack"
fi

# 2. gcc 12 believes that _tile_loadconfig reads 8 of the 64 bytes and drops the stores of the
#    others, so the stock build dies on an AMX machine. One line makes all of them visible.
mmq=$src/ggml/src/ggml-cpu/amx/mmq.cpp
if ! grep -q '"r"(&tc)' "$mmq"; then
    sed -i 's/^\( *\)_tile_loadconfig(&tc);/\1__asm__ volatile("" :: "r"(\&tc) : "memory");\n&/' "$mmq"
    grep -q '"r"(&tc)' "$mmq" || { echo "build_llama: the AMX patch found no place in $mmq" >&2; exit 1; }
fi

# 3. build NAME TARGETS FLAGS…
build() {
    name=$1 targets=$2
    shift 2
    cmake -S "$src" -B "$dir/build-$name" -DCMAKE_BUILD_TYPE=Release -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
        -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=ON -DLLAMA_BUILD_APP=OFF -DGGML_CCACHE=OFF "$@" > "$dir/build-$name.log" 2>&1 &&
        nice -n 10 cmake --build "$dir/build-$name" -j "$jobs" --target $targets >> "$dir/build-$name.log" 2>&1 || {
        tail -n 30 "$dir/build-$name.log" >&2
        exit 1
    }
}
# variant NAME FLAGS…: native's programs with another ggml-cpu.
variant() {
    name=$1
    shift
    build "$name" ggml-cpu -DGGML_NATIVE=OFF "$@"
    rm -rf "${dir:?}/$name"
    cp -a "$dir/native" "$dir/$name"
    cp -a "$dir/build-$name"/bin/libggml-cpu.so* "$dir/$name/"
}

build native "$tools"
rm -rf "$dir/native"
cp -a "$dir/build-native/bin" "$dir/native"
# shellcheck disable=SC2016
gcc -O2 -I "$src/include" -I "$src/ggml/include" "$here/tokens.c" -o "$dir/native/peer-tokens" \
    -L "$dir/native" -lllama -lggml -lggml-base -Wl,-rpath,'$ORIGIN' -Wl,-rpath-link,"$dir/native"

base="-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON -DGGML_FMA=ON -DGGML_F16C=ON"
# shellcheck disable=SC2086
variant avx2 $base
if grep -qw amx_tile /proc/cpuinfo; then
    # shellcheck disable=SC2086
    variant avx512 $base -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON
else
    rm -rf "$dir/avx512"
    ln -s native "$dir/avx512"
fi
"$dir/native/llama-bench" --help > /dev/null
echo "$dir"
