/* GGUF: open, read everything that is offered, bind. */
#include "fuzz_weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_weights(data, size, "GGUF");
}
