/* QK-norm, rotary embedding, cache write: portable. */
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/qk_body.h"
#include "kernels/cpu/isa.h"

qk_kernel *qk_cpu(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_ISA_AVX512) return qk_rows_avx512;
    if (cpu_isa() >= CPU_ISA_AVX2) return qk_rows_avx2;
#endif
    return qk_rows_portable;
}

size_t qk_scratch(const struct qk_params *p)
{
    return sizeof(float) * (2 * (size_t)p->rotary_dim + (size_t)p->kv_heads * (size_t)p->head_dim);
}
