#include "kernels/cpu/weight_fp8.h"

#include <string.h>

#include "kernels/cpu/matmul_inner.h"

/* The exponent moved to float32's place; the bias of 7 becomes one of 127 by a multiplication, which is right for subnormals too. */
void matmul_fp8_panel_portable(const uint8_t *codes, int columns, void *panel)
{
    float *to = panel;
    for (int i = 0; i < columns * CPU_GROUP; i++) {
        union {
            uint32_t u;
            float f;
        } v = {(codes[i] & 0x7Fu) << 20 | (codes[i] & 0x80u) << 24};
        to[i] = v.f * 0x1p120f;
    }
}

static fp8_panel_fn *panel_of(bool rough)
{
#if defined(__x86_64__)
    enum cpu_isa isa = cpu_isa();
    if (rough) return matmul_fp8_pairs_avx512;
    if (isa == CPU_ISA_AMX || isa == CPU_ISA_AVX512) return matmul_fp8_panel_avx512;
    if (isa == CPU_ISA_AVX2) return matmul_fp8_panel_avx2;
#else
    (void)rough;
#endif
    return matmul_fp8_panel_portable;
}

void matmul_fp8(const struct matmul_kernels *kernels, const struct cpu_weight *w, size_t group, const uint8_t *tile, int height, bool rough, float *out)
{
    _Alignas(MATMUL_ALIGN) float panel[FP8_PIECE * CPU_GROUP], part[MATMUL_OUT_FLOATS];
    const uint8_t *data = w->data + group * w->group_bytes, *codes = data + w->codes_at;
    const float *scale = (const float *)(const void *)data;
    const struct cpu_format *f32 = cpu_format(DTYPE_F32);
    fp8_panel_fn *decode = panel_of(rough);
    int blocks = cpu_weight_blocks(w), row_bytes = rough ? MATMUL_ACT_FLOAT_BYTES / 2 : MATMUL_ACT_FLOAT_BYTES;
    memset(out, 0, (size_t)height * CPU_GROUP * sizeof *out);
    for (int b = 0; b < blocks; b += FP8_PIECE_BLOCKS, scale += CPU_GROUP) {
        int n = ROSE_MIN(blocks - b, (int)FP8_PIECE_BLOCKS);
        decode(codes, n * CPU_BLOCK, panel);
#if defined(__x86_64__)
        if (rough)
            matmul_dot_bf16((const uint8_t *)panel, tile, height, n, part);
        else
#endif
            kernels->dot_float(f32, (const uint8_t *)panel, tile, height, n, part);
        for (int h = 0; h < height; h++)
            for (int r = 0; r < CPU_GROUP; r++) out[h * CPU_GROUP + r] += scale[r] * part[h * CPU_GROUP + r];
        codes += (size_t)n * CPU_BLOCK * CPU_GROUP;
        tile += (size_t)n * (size_t)row_bytes * (size_t)height;
    }
}
