/* Sweeps over a vocabulary: AVX512. */
#if defined(__AVX512F__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/sample_body.h"
#else
typedef int sample_avx512_unused; /* other architectures */
#endif
