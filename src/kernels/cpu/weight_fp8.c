#include "kernels/cpu/weight_fp8.h"

#include <string.h>

enum { ROWS = CPU_GROUP };

bool weight_fp8_has_nan(const uint8_t *codes, size_t n)
{
    uint64_t found = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) { /* 0x7f + 1 carries into the bit above the code's seven */
        uint64_t v;
        memcpy(&v, codes + i, 8);
        found |= (v & 0x7F7F7F7F7F7F7F7Full) + 0x0101010101010101ull;
    }
    for (; i < n; i++) found |= (uint64_t)(codes[i] & 0x7F) + 1;
    return found & 0x8080808080808080ull;
}

bool weight_fp8_pack(const struct cpu_weight *w, const struct tensor *source, void *data, size_t begin, size_t end)
{
    size_t k = (size_t)w->k;
    bool good = true;
    for (size_t g = begin; g < end; g++) {
        uint8_t *group = (uint8_t *)data + g * w->group_bytes, *codes = group + w->codes_at;
        size_t rows = ROSE_MIN((size_t)ROWS, (size_t)w->n - g * ROWS);
        if (rows < ROWS || k % CPU_BLOCK) memset(group, 0, w->group_bytes);
        for (size_t r = 0; r < rows; r++) {
            const uint8_t *from = (const uint8_t *)source->data + (g * ROWS + r) * k;
            float *scale = (float *)(void *)group + r;
            good &= !weight_fp8_has_nan(from, k);
            for (size_t c = 0; c < k; c += FP8_PIECE, scale += ROWS) *scale = tensor_scale(source, (int64_t)(g * ROWS + r), (int64_t)c);
            for (size_t c = 0; c < k; c++) codes[c * ROWS + r] = from[c];
        }
    }
    return good;
}

void weight_fp8_row(const struct cpu_weight *w, int32_t row, float *out)
{
    const uint8_t *group = w->data + (size_t)(row / ROWS) * w->group_bytes, *codes = group + w->codes_at + row % ROWS;
    const float *scale = (const float *)(const void *)group + row % ROWS;
    for (int32_t c = 0; c < w->k; c++) {
        dtype_decode(DTYPE_F8_E4M3, codes + (size_t)c * ROWS, &out[c], 1);
        out[c] *= scale[c / FP8_PIECE * ROWS];
    }
}
