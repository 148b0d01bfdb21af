/* Kernel sources: the files inside the binary, and what one kernel includes. */
#ifndef ROSE_JIT_JIT_SOURCE_H
#define ROSE_JIT_JIT_SOURCE_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

/* The root that sources have for the compiler. It is absolute so that the working directory does not get into
 * the line tables. */
#define JIT_VIRTUAL_ROOT "/rose/src/"

/* A row of the table that src/jit/embed writes. */
struct jit_embedded {
    const char *path; /* "kernels/cuda/rmsnorm.cu" */
    const char *begin, *end;
};
extern const struct jit_embedded *const jit_source_embedded;
extern const size_t jit_source_embedded_count;

/* A file, read once per library so that all kernels of one jit see the same text. */
struct jit_file {
    char *path;
    struct str text; /* NUL-terminated */
    char *marked;    /* the same behind a #line with its virtual path: what the compiler is given */
    char sha256[65];
    const char *overridden; /* its path in the override directory, or NULL: it is the binary's */
};

/* All files that were asked for. Not thread-safe; jit.c holds its lock. */
struct jit_library {
    struct arena arena;
    const char *override_dir; /* a directory laid out like src/, or NULL */
    struct jit_file **files;
    size_t count, capacity;
};
void jit_source_init(struct jit_library *library, const char *override_dir);
void jit_source_free(struct jit_library *library);
/* NULL when there is no such file and *err is not set (ROSE_OK), or when reading it failed. */
enum rose_status jit_source_file(struct jit_library *library, struct str path, const struct jit_file **out,
                                 struct rose_error *err);

enum { JIT_MAX_FILES = 256 };

/* One kernel with everything it can include. Conditional includes count even where the condition is false, so
 * the set may be too large but never too small. An include that no file answers is left to the compiler,
 * which says where it stands. */
struct jit_closure {
    const struct jit_file *main;
    const struct jit_file *file[JIT_MAX_FILES]; /* sorted by path, the main file included */
    int files;
    const char *name[JIT_MAX_FILES]; /* as written in #include, and the file it means */
    const struct jit_file *meant[JIT_MAX_FILES];
    int names;
};
/* kernel: "rmsnorm" for kernels/cuda/rmsnorm.cu. */
enum rose_status jit_source_closure(struct jit_library *library, const char *kernel, struct jit_closure *out,
                                    struct rose_error *err);

/* The architectures that a kernel's "// arch: sm_80 sm_90a" line (one of its first 40) names: does it name
 * this one? A kernel without the line, or another architecture, is an error that says so. */
enum rose_status jit_source_check_arch(const struct jit_file *file, const char *arch, struct rose_error *err);
/* The list on the line, as written; n 0: there is none. */
struct str jit_source_arches(struct str text);

#endif
