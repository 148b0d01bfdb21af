/* The engine's tests on a GPU: answers alone equal those under load, with few pages, cancels and prefix hits, bit for bit
 * (--deterministic); a fault ends every request and a new context serves again. From the repository's root. */
#define ENGINE_GPU
#define ENGINE_REQUESTS 12
#include "engine/test_engine_cuda.c"
