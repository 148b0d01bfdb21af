/* Norms: AVX512. */
#if defined(__AVX512F__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/norm_body.h"
#else
typedef int norm_avx512_unused; /* other architectures */
#endif
