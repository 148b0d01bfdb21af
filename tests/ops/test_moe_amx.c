/* The same cases with the AMX kernels on emulated tiles (tests/kernels/module.mk). */
#include "test_moe.c"
