/* The few facts that are read from ELF files without loading them. All input is untrusted. */
#ifndef ROSE_JIT_JIT_ELF_H
#define ROSE_JIT_JIT_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JIT_MAX_ENTRIES = 16 };

/* What a kernel function uses. */
struct jit_entry {
    char name[64];
    int registers;        /* a thread */
    int64_t shared_bytes; /* static, a block */
    int64_t stack_bytes;  /* local memory, a thread */
    int64_t spill_stores,
        spill_loads; /* bytes of code's spills; -1: unknown (only the compiler's log says) */
};

/* The GNU build id of a 64-bit ELF file in lower-case hexadecimal; false when it has none. */
bool jit_elf_build_id(const uint8_t *data, size_t n, char out[65]);
/* Is this a 64-bit ELF image for a GPU? */
bool jit_elf_is_cubin(const uint8_t *data, size_t n);
/* The __global__ functions of a cubin; returns their number, at most JIT_MAX_ENTRIES, 0 when it is no valid
 * cubin. */
int jit_elf_entries(const uint8_t *data, size_t n, struct jit_entry *out);

#endif
