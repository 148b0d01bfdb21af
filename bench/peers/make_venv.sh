#!/bin/sh
# Makes the Python environment of the golden references: CPU torch, transformers, tokenizers.
#
#     bench/peers/make_venv.sh [DIR]        default: <user cache>/rose-dev/venv
#
# The torch wheel is linked against CUDA libraries of several GB that a CPU run never calls. It is
# installed without its dependencies; of those only the small CUDA runtime comes along, because
# importing torch runs it. The others become one tiny library that only has to exist.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
req=$here/../../tests/golden/requirements.txt
venv=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rose-dev/venv}
cc=${CC:-cc}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
py=$venv/bin/python

# 1. torch and accelerate alone, then everything else with its dependencies.
grep -E '^(torch|accelerate)==' "$req" > "$venv/alone.txt"
grep -v -E '^(torch|accelerate)==' "$req" > "$venv/rest.txt"
"$py" -m pip install -q --no-deps -r "$venv/alone.txt"
# pip complains here that torch's dependencies are missing; that is the point.
"$py" -m pip install -q -r "$venv/rest.txt" > "$venv/pip.log" 2>&1 || { cat "$venv/pip.log" >&2; exit 1; }

# 2. The libraries that torch's link to, and nobody here has: the runtime is real, the others are
#    links to one library in which every function says "no device".
lib=$("$py" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin) + "/lib")')
needed=$(for f in "$lib"/*.so*; do
    readelf -d "$f" 2>/dev/null | sed -n 's/.*NEEDED.*\[\(.*\)\].*/\1/p'
done | sort -u)
cudart=$(printf '%s\n' "$needed" | grep '^libcudart\.so\.' || true)
if [ -n "$cudart" ]; then
    "$py" -m pip install -q --no-deps "nvidia-cuda-runtime==${cudart##*.}.*"
    found=$(find "${lib%/torch/lib}/nvidia" -name "$cudart" | head -n 1)
    ln -sf "${found:?the CUDA runtime package holds no $cudart}" "$lib/$cudart"
    for f in "$lib"/libc10*.so "$lib"/libtorch*.so; do
        readelf --dyn-syms -W "$f" | awk '$7 == "UND" { print $8 }'
    done | sort -u | grep -E '^(cu(blas|dnn|fft|sparse|solver|pti|File)|nccl|nvrtc|nvshmem)' > "$venv/absent.txt"
    sed 's/@.*//; s/.*/int &(void) { return 100; }/' "$venv/absent.txt" > "$venv/absent.c"
    # The loader insists that a versioned symbol is defined with its version.
    sed -n 's/\(.*\)@\(.*\)/\2 { \1; };/p' "$venv/absent.txt" |
        awk '{ v[$1] = v[$1] " " $3 } END { for (k in v) print k " {" v[k] " };" }' > "$venv/absent.map"
    "$cc" -w -fno-builtin -shared -fPIC -nostdlib -Wl,--version-script="$venv/absent.map" \
        "$venv/absent.c" -o "$lib/libabsent.so"
    for so in $needed; do
        case $so in
        libcudart*) ;;
        libcu* | libnvrtc* | libnccl* | libnvshmem*) ln -sf libabsent.so "$lib/$so" ;;
        esac
    done
fi

# 3. It works, or this fails.
"$py" -c 'import torch, transformers, tokenizers, gguf, accelerate, safetensors, sentencepiece, jinja2
assert not torch.cuda.is_available()
torch.set_num_threads(1)
x = torch.ones(8, 8)
assert torch.allclose(x @ x, 8 * x)
print("torch", torch.__version__, "transformers", transformers.__version__, "tokenizers", tokenizers.__version__)'
echo "$py"
