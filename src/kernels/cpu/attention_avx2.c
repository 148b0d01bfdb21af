/* Attention tiles: AVX2. */
#if defined(__AVX2__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/attention_body.h"
#else
typedef int attention_avx2_unused; /* other architectures */
#endif
