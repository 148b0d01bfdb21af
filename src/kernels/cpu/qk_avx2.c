/* QK-norm, rotary embedding, cache write: AVX2. */
#if defined(__AVX2__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/qk_body.h"
#else
typedef int qk_avx2_unused; /* other architectures */
#endif
