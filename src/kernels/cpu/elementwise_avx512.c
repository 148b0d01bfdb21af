/* Element-wise kernels: AVX512. */
#if defined(__AVX512F__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/elementwise_body.h"
#else
typedef int elementwise_avx512_unused; /* other architectures */
#endif
