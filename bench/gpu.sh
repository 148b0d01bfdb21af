#!/bin/sh
# Kernels on a GPU: checks, then measurements, into ${OUT:-bench/results}.
#
#   bench/gpu.sh [--sweep] [--parts PART,...]      without --parts all of them, in this order
#
#   checks     every op's cases beside their reference
#   ops1 ops2  norms, QK, activations, quantisers, small ops, pages: half of the table each
#   moe        dispatch and combine, sampling, the grid barrier
#   compile    all kernels of a model from an empty cache
#   products   matrix products; experts: FP8 and experts; torch: the peers, by the same method
#
# ops1, ops2, moe and compile make h200.csv, of 90 seconds at most each; rows are written as they come, and h200.csv is put together
# anew after each of them, so that a run cut short leaves what it had. Parts may be run one by one, of the same programs; --parts table
# only puts h200.csv together.
# --sweep: other plans of each op too (not in h200.csv).
#
# The programs are built beforehand, where there is a compiler (make BUILD=build-gpu gpu-programs); NVRTC compiles the kernels here.
# BUILD= names another build directory.
set -u

BUILD=${BUILD:-build-gpu}
OUT=${OUT:-bench/results}
parts="checks ops1 ops2 moe compile products experts torch" sweep= rc=0
while [ $# -gt 0 ]; do
    case $1 in
    --sweep) sweep=yes ;;
    --parts) shift; parts=$(echo "${1:-}" | tr , ' ') ;;
    *) echo "usage: bench/gpu.sh [--sweep] [--parts checks,ops1,ops2,moe,compile,products,experts,torch]" >&2; exit 2 ;;
    esac
    shift
done
mkdir -p "$OUT/parts"

# The driver keeps what ptxas made in ~/.nv, which would make a second compilation look like nothing.
export CUDA_CACHE_DISABLE=1

# h200.csv from the parts that are there. Dispatch, combine, sampling, the grid barrier and models have no column of dependent launches.
table() {
    echo 'op,shape,us,us dependent,bytes,ops,TB/s,% of limit,clone us,us/clone,predicted us,plan' > "$OUT/h200.csv"
    for p in ops1 ops2; do
        [ -s "$OUT/parts/$p.csv" ] && grep -v '^op,' "$OUT/parts/$p.csv" >> "$OUT/h200.csv"
    done
    for p in moe compile; do
        [ -s "$OUT/parts/$p.csv" ] && grep -v '^op,' "$OUT/parts/$p.csv" | sed 's/^\([^,]*,[^,]*,[^,]*\),/\1,,/' >> "$OUT/h200.csv"
    done
}

checks() {
    pids= failed=0
    for i in 0 1 2 3 4 5 6 7; do timeout 120 "$BUILD/tests/gpu/gpu_ops" --share $i/8 & pids="$pids $!"; done
    for p in $pids; do wait "$p" || failed=1; done
    timeout 60 "$BUILD/tests/gpu/gpu_matmul" || failed=1
    return $failed
}

# From a new process, without a cache, to all of a model's kernels compiled: milliseconds, as microseconds.
compile() {
    failed=0
    : > "$OUT/parts/compile.csv"
    for m in bench/models/*/; do
        m=$(basename "$m") cache=$(mktemp -d)
        from=$(date +%s%N)
        XDG_CACHE_HOME=$cache timeout 60 "$BUILD/rose" kernels "bench/models/$m" > "$cache/log" 2>&1 || failed=1
        to=$(date +%s%N)
        echo "compile model,$m cold,$(((to - from) / 1000)),,,,,,,3000000," >> "$OUT/parts/compile.csv"
        tail -1 "$cache/log"
        rm -rf "$cache"
    done
    tail -n 9 "$OUT/parts/compile.csv"
    return $failed
}

nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader 2>/dev/null
for part in $parts; do
    echo "== $part"
    case $part in
    checks) checks ;;
    ops1) timeout 90 "$BUILD/bench/gpu_ops" --share 0/2 --csv "$OUT/parts/ops1.csv" ;;
    ops2) timeout 90 "$BUILD/bench/gpu_ops" --share 1/2 --csv "$OUT/parts/ops2.csv" ;;
    moe) timeout 90 "$BUILD/tests/gpu/gpu_moe_sample" --csv "$OUT/parts/moe.csv" ;;
    compile) compile ;;
    products)
        timeout 200 "$BUILD/bench/gpu_matmul" --layers --blas --rows 1,4,8,16,32,64,128,256,1024,4096 --csv "$OUT/h200_matmul.csv" ;;
    experts) timeout 120 "$BUILD/bench/gpu_fp8" && timeout 200 "$BUILD/tests/gpu/gpu_moe" --csv "$OUT/h200_moe.csv" ;;
    torch)
        if python3 -c 'import torch' 2>/dev/null; then timeout 90 python3 bench/peers/gpu_torch.py 60 "$OUT/h200_torch.csv"; fi ;;
    table) ;; # h200.csv of the parts in $OUT/parts, from whichever runs they are
    *) echo "no part $part" >&2; exit 2 ;;
    esac || rc=1
    table
done
if [ -n "$sweep" ]; then
    timeout 300 "$BUILD/bench/gpu_ops" --sweep --csv "$OUT/h200_sweep.csv" || rc=1
fi
exit $rc
