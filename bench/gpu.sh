#!/bin/sh
# Kernels on a GPU: checks, then measurements, into ${OUT:-bench/results}/h200.csv.
#
#   bench/gpu.sh [--no-sweep] [--no-torch] [--table]     --table: h200.csv alone, without the checks and the products' tables
#
# The programs are built beforehand, where there is a compiler (make BUILD=build-gpu gpu-programs); NVRTC compiles the kernels here.
# They are those of "make gpu-programs" and need nothing else. BUILD= names another build directory.
set -u
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build-gpu}
OUT=${OUT:-bench/results}
sweep=--sweep torch=yes table= rc=0
for a; do
    case $a in
    --no-sweep) sweep= ;;
    --no-torch) torch= ;;
    --table) table=yes ;;
    *) echo "usage: bench/gpu.sh [--no-sweep] [--no-torch] [--table]" >&2; exit 2 ;;
    esac
done
mkdir -p "$OUT"
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader 2>/dev/null
if [ -z "$table" ]; then
    echo "== checks"
    for i in 0 1 2 3 4 5 6 7; do timeout 120 "$BUILD/tests/gpu/gpu_ops" --share $i/8 & pids="${pids:-} $!"; done
    for p in $pids; do wait "$p" || rc=1; done
    timeout 60 "$BUILD/tests/gpu/gpu_matmul" || rc=1
fi
echo "== measurements"
timeout 200 "$BUILD/bench/gpu_ops" $sweep --csv "$OUT/h200.csv" || rc=1
timeout 200 "$BUILD/tests/gpu/gpu_moe_sample" --csv "$OUT/h200_moe_sample.csv" || rc=1
# One table: dispatch, combine, sampling and the grid barrier below the rest (they have no column of dependent launches).
if [ -s "$OUT/h200.csv" ]; then
    grep -v '^op,' "$OUT/h200_moe_sample.csv" | sed 's/^\([^,]*,[^,]*,[^,]*\),/\1,,/' >> "$OUT/h200.csv"
fi
[ -n "$table" ] && exit $rc
timeout 200 "$BUILD/bench/gpu_matmul" --layers --blas --rows 1,4,8,16,32,64,128,256,1024,4096 --csv "$OUT/h200_matmul.csv" || rc=1
timeout 120 "$BUILD/bench/gpu_fp8" || rc=1
timeout 200 "$BUILD/tests/gpu/gpu_moe" --csv "$OUT/h200_moe.csv" || rc=1
if [ -n "$torch" ] && python3 -c 'import torch' 2>/dev/null; then
    echo "== torch, the same method"
    timeout 90 python3 bench/peers/gpu_torch.py 60 "$OUT/h200_torch.csv" || rc=1
fi
exit $rc
