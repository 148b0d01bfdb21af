/* Sweeps over a vocabulary: portable. */
#include "kernels/cpu/elementwise_vec.h"
#include "kernels/cpu/sample_body.h"
