/* NVRTC by dlopen: where it is, which one it is, and compiling with it. */
#ifndef ROSE_JIT_JIT_NVRTC_H
#define ROSE_JIT_JIT_NVRTC_H

#include "jit/jit_source.h"

/* Where to look. All may be NULL. */
struct jit_places {
    const char *path;      /* a library file, or a directory that holds one; nothing else is then tried */
    const char *cuda_home; /* CUDA_HOME or CUDA_PATH */
    const char *venv;      /* VIRTUAL_ENV or CONDA_PREFIX: wheels of nvidia-cuda-nvrtc below it */
    const char *home;      /* ~/.local wheels */
};

/* Found, but not necessarily loaded: loading takes 0.1 s, and a warm start needs only the identity. */
struct jit_nvrtc {
    char path[1024]; /* empty: none was found, and looked says where */
    char id[48];     /* "nvrtc13-65be0db342ad": major version and build id. Equal ids compile equally. */
    char looked[900];
    void *library;
    int (*version)(int *major, int *minor);
    int (*create)(void **program, const char *source, const char *name, int headers,
                  const char *const *header_text, const char *const *header_name);
    int (*destroy)(void **program);
    int (*compile)(void *program, int options, const char *const *option);
    int (*log_size)(void *program, size_t *bytes);
    int (*log)(void *program, char *text);
    int (*cubin_size)(void *program, size_t *bytes);
    int (*cubin)(void *program, char *data);
    int (*ptx_size)(void *program, size_t *bytes);
    int (*ptx)(void *program, char *text);
    const char *(*error_string)(int result);
};

/* Look for the library and read its identity. Finding none is no error: path is then empty. */
enum rose_status jit_nvrtc_find(const struct jit_places *places, struct jit_nvrtc *out,
                                struct rose_error *err);
/* Load it; once is enough. ROSE_NOT_FOUND says where it was looked for. */
enum rose_status jit_nvrtc_load(struct jit_nvrtc *nvrtc, struct rose_error *err);
void jit_nvrtc_unload(struct jit_nvrtc *nvrtc);

/* Options other than -D and the architecture: part of every key. */
extern const char *const jit_nvrtc_flags[];
extern const size_t jit_nvrtc_flags_count;

/* Compile a closure; any number of threads may at a time. options are all options, in order. ptx: PTX text
 * instead of a cubin. *out is malloc'ed with *out_n bytes, *log malloc'ed or NULL (also after failures). An
 * error in the source names file and line. */
enum rose_status jit_nvrtc_compile(struct jit_nvrtc *nvrtc, const struct jit_closure *closure,
                                   const char *const *options, int count, bool ptx, char **out, size_t *out_n,
                                   char **log, struct rose_error *err);
/* The first error of a compiler's log as a status with file and line: of src/, or where the file that stands for it lies. */
enum rose_status jit_nvrtc_log_error(const char *log, const struct jit_closure *kernel, struct rose_error *err);

#endif
