/* Element-wise kernels: AVX2. */
#if defined(__AVX2__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/elementwise_body.h"
#else
typedef int elementwise_avx2_unused; /* other architectures */
#endif
