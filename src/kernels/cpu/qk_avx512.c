/* QK-norm, rotary embedding, cache write: AVX512. */
#if defined(__AVX512F__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/qk_body.h"
#else
typedef int qk_avx512_unused; /* other architectures */
#endif
