/* The same cases with the AMX kernels on emulated tiles (tests/kernels/module.mk). */
#define FIXTURE_ONLY 3
#include "test_attention.c"
