/* Runs a CUDA kernel's source on the CPU and looks for its mistakes.
 *
 *     const struct simt_kernel *k = simt_kernel("src/kernels/cuda/scale.cu", "scale", "ROSE_ARCH=900 N=96");
 *     struct scale_params p = {
 *         .x = simt_buffer("x", bytes, data), // holds data
 *         .y = simt_buffer("y", bytes, NULL), // unwritten: reading it is a fault until a kernel wrote it
 *         .rows = 5};
 *     struct simt_launch l = {.kernel = k, .grid = {2}, .block = {64}, .seed = 7};
 *     struct simt_report r = simt_launch(&l, &p);
 *     CHECK_SIMT_CLEAN(r);
 *     ... compare p.y ...
 *     simt_reset(); // frees all buffers
 *
 * See docs/simt.md. Errors of use (a .cu that does not compile, a missing file) end the test program with a
 * message. */
#ifndef ROSE_SIMT_H
#define ROSE_SIMT_H

#include "simt_device.h"

enum simt_fault {
    SIMT_CLEAN,
    SIMT_BOUNDS,     /* access outside every buffer, or across the end of one */
    SIMT_MISALIGNED, /* address not a multiple of the access size */
    SIMT_UNWRITTEN,  /* read of memory that nobody wrote */
    SIMT_RACE,       /* two accesses, one a write, that nothing orders */
    SIMT_IN_FLIGHT,  /* access to memory that an asynchronous copy or product still reads or writes */
    SIMT_PROXY,      /* generic writes read by the asynchronous proxy without fence.proxy.async */
    SIMT_DIVERGENT,  /* barrier or warp operation without all of its participants */
    SIMT_MASK,       /* warp operation whose lanes disagree about the mask or the operation */
    SIMT_DEADLOCK,   /* every thread waits, or spins on a value that nobody will change */
    SIMT_EARLY,      /* access to a predecessor's data before griddepcontrol.wait */
    SIMT_TRAP,       /* the kernel trapped */
    SIMT_RESOURCE,   /* more shared memory, registers, tensor memory or threads than the architecture has */
    SIMT_MISUSE,     /* an instruction's operand breaks a rule of the PTX reference */
    SIMT_FAULTS
};

struct simt_report {
    enum simt_fault fault;
    char message[1024]; /* what, where (file:line, block, thread), and the other access */
    uint64_t switches;  /* how often a thread was resumed */
};

struct simt_kernel;
/* Compiles `file` (a path from the repository's root) with the constants "NAME=value NAME=value ...",
 * ROSE_ARCH among them, and returns its entry point. Cached on disk (by content) and in the process. */
const struct simt_kernel *simt_kernel(const char *file, const char *entry, const char *constants);

/* Global memory with guard zones. data NULL: unwritten. */
void *simt_buffer(const char *name, size_t bytes, const void *data);
/* The same, but nobody may write it (weights): it is readable before griddepcontrol.wait. */
void *simt_constant(const char *name, size_t bytes, const void *data);
/* A multicast address over the same number of bytes of n buffers (the GPUs of a group): only multimem reaches
 * it. */
void *simt_multimem(void *const *replicas, int n, size_t bytes);
/* Whether every byte was written, by the host or a kernel; the first that was not goes to *offset. */
bool simt_written(const void *buffer, size_t *offset);
void simt_reset(void); /* frees every buffer */

struct simt_launch {
    const struct simt_kernel *kernel;
    uint32_t grid[3], block[3]; /* 0 counts as 1 */
    uint32_t cluster;           /* blocks a cluster along x; 0 or 1: none */
    size_t shared_bytes;        /* dynamic shared memory */
    bool cooperative;           /* all blocks resident at once */
    bool dependent;             /* launched with programmatic dependence: see SIMT_EARLY */
    bool allow_unwritten;       /* reads of unwritten memory give poison without a fault */
    uint32_t resident;          /* blocks at a time; 0: 4 (all, where cooperative) */
    uint64_t seed;              /* order of threads, of blocks and of asynchronous completions */
    size_t stack_bytes;         /* a thread's stack; 0: 64 KiB */
};
/* Runs the grid to its end or to the first fault. */
struct simt_report simt_launch(const struct simt_launch *launch, const void *params);

const char *simt_fault_name(enum simt_fault fault);

#define CHECK_SIMT(report, want)                                                                            \
    do {                                                                                                    \
        const struct simt_report *r_ = &(report);                                                           \
        if (r_->fault != (want))                                                                            \
            test_failures_++, fprintf(stderr, "%s:%d: simt says %s, expected %s: %s\n", __FILE__, __LINE__, \
                                      simt_fault_name(r_->fault), simt_fault_name(want), r_->message);      \
    } while (0)
#define CHECK_SIMT_CLEAN(report) CHECK_SIMT(report, SIMT_CLEAN)

#endif
