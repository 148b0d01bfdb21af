/* Norms: portable. */
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/norm_body.h"
#include "kernels/cpu/isa.h"

norm_kernel *norm_cpu(void)
{
#if defined(__x86_64__)
    if (cpu_isa() >= CPU_ISA_AVX512) return norm_rows_avx512;
    if (cpu_isa() >= CPU_ISA_AVX2) return norm_rows_avx2;
#endif
    return norm_rows_portable;
}
