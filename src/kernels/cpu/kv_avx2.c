/* Cache blocks: AVX2. */
#if defined(__AVX2__)
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/kv_body.h"
#else
typedef int kv_avx2_unused; /* other architectures */
#endif
