/* Cache blocks: AVX512. */
#if defined(__AVX512F__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/kv_body.h"
#else
typedef int kv_avx512_unused; /* other architectures */
#endif
