/* Which instruction set the CPU kernels use: found once, or named by the user (device_options.isa).
 *
 * Every kernel file has variants by suffix: portable C, _avx2 (with FMA, F16C), _avx512 (F BW VL DQ VNNI),
 * _amx (AVX-512 with BF16, and AMX int8 and bf16 tiles). Each level includes those before it. */
#ifndef ROSE_KERNELS_CPU_ISA_H
#define ROSE_KERNELS_CPU_ISA_H

#include "base/status.h"

enum cpu_isa { CPU_ISA_PORTABLE, CPU_ISA_AVX2, CPU_ISA_AVX512, CPU_ISA_AMX, CPU_ISA_COUNT };

/* Use this level from now on: "portable", "avx2", "avx512", "amx", or "auto" (also NULL): the best this
 * machine has. Call before any program is recorded; ROSE_UNSUPPORTED when the machine lacks it, and the level
 * in use stays. */
enum rose_status cpu_isa_select(const char *name, struct rose_error *err);
/* The level in use; without a call of cpu_isa_select the best one. Cheap: one relaxed load. */
enum cpu_isa cpu_isa(void);
/* What the machine and the operating system offer, whatever is selected. Asks the kernel for AMX's
 * permission. */
bool cpu_isa_available(enum cpu_isa isa);
/* "portable", "avx2", … */
const char *cpu_isa_name(enum cpu_isa isa);

#endif
