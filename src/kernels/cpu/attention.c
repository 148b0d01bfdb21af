/* Attention tiles: portable. */
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/attention_body.h"
