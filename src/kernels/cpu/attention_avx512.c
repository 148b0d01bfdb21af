/* Attention tiles: AVX512. */
#if defined(__AVX512F__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/attention_body.h"
#else
typedef int attention_avx512_unused; /* other architectures */
#endif
