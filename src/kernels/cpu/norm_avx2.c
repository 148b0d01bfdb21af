/* Norms: AVX2. */
#if defined(__AVX2__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/norm_body.h"
#else
typedef int norm_avx2_unused; /* other architectures */
#endif
