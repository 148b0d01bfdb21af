/* Element-wise kernels: portable. */
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/elementwise_body.h"
#include "kernels/cpu/isa.h"

const struct elementwise_kernels *elementwise_cpu(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_ISA_AVX512) return &elementwise_kernels_avx512;
    if (cpu_isa() >= CPU_ISA_AVX2) return &elementwise_kernels_avx2;
#endif
    return &elementwise_kernels_portable;
}
