/* The same cases with the AMX kernels on emulated tiles (module.mk). */
#define ROSE_TEST_AMX
#include "test_cpu_matmul.c"
