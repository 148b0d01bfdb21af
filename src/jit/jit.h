/* JIT: kernel sources specialised by constants, compiled for an exact architecture, kept in two caches
 * (memory, disk).
 *
 *     jit_open -> jit_request (any number: computes keys, compiles nothing) -> jit_compile_all (parallel,
 * with progress)
 *              -> jit_info / jit_function
 *
 * Compiling takes only scalars, launches nothing and needs no GPU. A kernel's key is its closure of source
 * text, sorted constants, flags, architecture and compiler; nothing else gets into its code. A compiled
 * kernel is looked for in memory, then in the cache directory, then in the bundles (exported trees, whose
 * entries may come from another compiler), then compiled. All functions may be called from any thread. */
#ifndef ROSE_JIT_JIT_H
#define ROSE_JIT_JIT_H

#include "base/status.h"
#include "base/str.h"
#include "device/device.h"
#include "jit/jit_elf.h"

struct jit;
struct jit_kernel; /* lives as long as its jit */

/* -Dname=value. name: [A-Za-z_][A-Za-z0-9_]*. The value is text, or when text is NULL the number. Text:
 * letters, digits and any of _ . + - ( ) */
struct jit_constant {
    const char *name;
    const char *text;
    int64_t value;
};
#define JIT_INT(constant, number) ((struct jit_constant){.name = (constant), .value = (number)})
#define JIT_TEXT(constant, string) ((struct jit_constant){.name = (constant), .text = (string)})
enum { JIT_MAX_CONSTANTS = 64 };

/* After each kernel that jit_compile_all got ready. */
struct jit_progress {
    int done, total, compiled; /* compiled: not found in any cache */
    double seconds;            /* since jit_compile_all began */
    const struct jit_kernel *kernel;
};

/* Strings are copied; all may be NULL. */
struct jit_options {
    const char *cache_dir;      /* "$XDG_CACHE_HOME/rose" or "$HOME/.cache/rose"; NULL: memory only */
    const char *override_dir;   /* a directory laid out like src/: its files replace those in the binary */
    const char *const *bundles; /* exported trees, searched after the cache */
    int bundles_count;
    const char *nvrtc_path; /* a library or a directory; NULL: search */
    const char *cuda_home, *venv,
        *home;   /* values of CUDA_HOME, VIRTUAL_ENV or CONDA_PREFIX, HOME, for the search */
    int threads; /* compile threads; 0: one a core */
    void (*message)(void *user, const char *line); /* said once: the cache cannot be written, … */
    void (*progress)(void *user,
                     const struct jit_progress *progress); /* one call at a time, from any thread */
    void *user;
};

enum rose_status jit_open(const struct jit_options *options, struct jit **out, struct rose_error *err);
/* Kernels vanish with it. Functions loaded on a device stay until the device is closed. */
void jit_close(struct jit *jit);

/* The kernel kernels/cuda/<kernel>.cu with these constants for this architecture ("sm_90a"). Equal requests
 * give the same pointer. */
enum rose_status jit_request(struct jit *jit, const char *kernel, const char *arch,
                             const struct jit_constant *constants, int n, const struct jit_kernel **out,
                             struct rose_error *err);
/* Get every requested kernel ready. All are tried; the first error in the order of requests is returned, with
 * file and line. */
enum rose_status jit_compile_all(struct jit *jit, struct rose_error *err);

enum jit_origin { JIT_NOT_READY, JIT_COMPILED, JIT_FROM_CACHE, JIT_FROM_BUNDLE, JIT_FAILED };
struct jit_info {
    const char *kernel, *arch, *name; /* "rmsnorm", "sm_90a", "rmsnorm.<hash>" */
    const char *const *constants;     /* "HIDDEN=4096", sorted */
    int constants_count;
    enum jit_origin origin;
    const char *compiler; /* "nvrtc13-65be0db342ad" */
    double compile_ms;    /* what the compiler took, whenever that was */
    double ready_ms;      /* what this process took */
    const void *cubin;    /* NULL before it is ready */
    size_t cubin_bytes;
    const char *log;
    const struct jit_entry *entries; /* its __global__ functions: registers, shared memory, stack, spills */
    int entries_count;
};
struct jit_info jit_info(const struct jit_kernel *kernel);

/* The function on a CUDA device: what program_launch.kernel takes. entry NULL: the only __global__ function
 * of the kernel. */
enum rose_status jit_function(const struct jit_kernel *kernel, struct device *device, const char *entry,
                              void **out, struct rose_error *err);

/* Write all ready kernels as a tree that `bundles` can name: a fleet without NVRTC starts from it. *count:
 * entries written. */
enum rose_status jit_export(struct jit *jit, const char *dir, int *count, struct rose_error *err);

/* A table of all kernels: constants, registers, shared memory, stack, spills, bytes, compile time, where it
 * came from. */
void jit_print_kernels(struct jit *jit, struct strbuf *out);
/* "kernels 12/40, 3 compiled, 0.4 s: rmsnorm" */
void jit_print_progress(const struct jit_progress *progress, struct strbuf *out);

/* The closure's text with #line marks; PTX (needs NVRTC). */
enum rose_status jit_print_source(const struct jit_kernel *kernel, struct strbuf *out,
                                  struct rose_error *err);
enum rose_status jit_print_ptx(struct jit *jit, const struct jit_kernel *kernel, struct strbuf *out,
                               struct rose_error *err);

/* "nvrtc13-65be0db342ad (/usr/local/cuda/lib64/libnvrtc.so.13)" or "none; looked in …". */
void jit_print_compiler(const struct jit *jit, struct strbuf *out);

/* The kernels in the binary, one by one: false past the last. arches as on the file's "// arch:" line. */
bool jit_list(int i, struct str *kernel, struct str *arches);

#endif
