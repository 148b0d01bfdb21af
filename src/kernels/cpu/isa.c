#define _GNU_SOURCE
#include "kernels/cpu/isa.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* XCR0: what the operating system saves at a context switch. Intel SDM vol. 1, 13.3. */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xE6, XCR0_AMX = 0x60000 };
enum { ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA_ = 18 };

static unsigned long long xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long)hi << 32 | lo;
}

static bool has_bits(unsigned long long value, unsigned long long bits)
{
    return (value & bits) == bits;
}

static enum cpu_isa detect(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return CPU_ISA_PORTABLE;
    /* FMA 12, OSXSAVE 27, AVX 28, F16C 29 */
    if (!has_bits(c, 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29)) return CPU_ISA_PORTABLE;
    unsigned long long saved = xcr0();
    if (!has_bits(saved, XCR0_AVX) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return CPU_ISA_PORTABLE;
    /* AVX2 5, BMI2 8 */
    if (!has_bits(b, 1u << 5 | 1u << 8)) return CPU_ISA_PORTABLE;
    /* ebx: F 16, DQ 17, BW 30, VL 31; ecx: VNNI 11 */
    if (!has_bits(saved, XCR0_AVX512) || !has_bits(b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) ||
        !has_bits(c, 1u << 11))
        return CPU_ISA_AVX2;
#if defined(ROSE_AMX_EMULATE)
    return CPU_ISA_AMX; /* a test build: tiles are plain C */
#else
    /* edx: AMX-BF16 22, AMX-TILE 24, AMX-INT8 25; leaf 7.1 eax: AVX512_BF16 5 */
    unsigned a1 = 0, b1, c1, d1;
    if (!has_bits(d, 1u << 22 | 1u << 24 | 1u << 25) || !has_bits(saved, XCR0_AMX) ||
        !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) || !has_bits(a1, 1u << 5))
        return CPU_ISA_AVX512;
    /* Linux hands out the 8 KiB of tile state only to processes that ask; threads started later inherit it.
     */
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA_) == 0 ? CPU_ISA_AMX
                                                                                   : CPU_ISA_AVX512;
#endif
}
#else
static enum cpu_isa detect(void)
{
    return CPU_ISA_PORTABLE;
}
#endif

static const char *const names[CPU_ISA_COUNT] = {"portable", "avx2", "avx512", "amx"};
static atomic_int best_found, selected; /* 1 + level; 0: not known yet */

static enum cpu_isa best(void)
{
    int found = atomic_load_explicit(&best_found, memory_order_relaxed);
    if (!found) {
        found = 1 + (int)detect(); /* two threads may both look: they find the same */
        atomic_store_explicit(&best_found, found, memory_order_relaxed);
    }
    return (enum cpu_isa)(found - 1);
}

bool cpu_isa_available(enum cpu_isa isa)
{
    return isa <= best();
}

const char *cpu_isa_name(enum cpu_isa isa)
{
    return isa < CPU_ISA_COUNT ? names[isa] : "unknown";
}

enum cpu_isa cpu_isa(void)
{
    int s = atomic_load_explicit(&selected, memory_order_relaxed);
    return s ? (enum cpu_isa)(s - 1) : best();
}

enum rose_status cpu_isa_select(const char *name, struct rose_error *err)
{
    if (!name || !*name || !strcmp(name, "auto")) {
        atomic_store(&selected, 0);
        return ROSE_OK;
    }
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        if (strcmp(name, names[i])) continue;
        if (!cpu_isa_available((enum cpu_isa)i))
            return status_set(err, ROSE_UNSUPPORTED,
                              "this CPU has no %s; the best it has is %s (use \"auto\")", name,
                              names[best()]);
        atomic_store(&selected, i + 1);
        return ROSE_OK;
    }
    return status_set(err, ROSE_INVALID,
                      "unknown instruction set \"%s\": use auto, portable, avx2, avx512 or amx", name);
}
