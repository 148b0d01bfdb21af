/* Sweeps over a vocabulary: AVX2. */
#if defined(__AVX2__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/sample_body.h"
#else
typedef int sample_avx2_unused; /* other architectures */
#endif
