/* Cache blocks: portable. */
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/kv_body.h"
