/* ELF files as a cache or a library directory may hold them. */
#include <stdint.h>

#include "jit/jit_elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jit_entry entries[JIT_MAX_ENTRIES];
    char id[65];
    jit_elf_build_id(data, size, id);
    jit_elf_entries(data, size, entries);
    return 0;
}
