/* The cache on disk: one directory an entry, published by one rename.
 *
 *     ROOT/nvrtc13-65be0db342ad/sm_90a/rmsnorm.<hash>/key.txt        everything the code depends on
 *                                                     source.cu      the text, all files
 *                                                     kernel.cubin
 *                                                     log.txt        the compiler's, with registers and
 * spills checksum       of these, as sha256sum -c reads it ROOT/nvrtc13-…/sm_90a/.lock.rmsnorm.<hash>   held
 * (flock) by the process that compiles ROOT/nvrtc13-…/sm_90a/.tmp.XXXXXX/           an entry being written;
 * left behind only by a crash
 *
 * An exported directory is the same tree. */
#ifndef ROSE_JIT_JIT_CACHE_H
#define ROSE_JIT_JIT_CACHE_H

#include "base/status.h"
#include "base/str.h"

/* What identifies an entry. */
struct jit_cache_id {
    const char *nvrtc, *arch, *name; /* name: "rmsnorm.<hash>" */
    struct str key;                  /* the text of key.txt */
};

/* Contents; all owned, cubin aligned to 16. */
struct jit_cache_entry {
    char *cubin;
    size_t cubin_n;
    char *log; /* NUL-terminated */
    size_t log_n;
};
void jit_cache_entry_free(struct jit_cache_entry *entry);

/* Load and verify: key equal, checksums right, a GPU's ELF. False on anything else: a miss. */
bool jit_cache_load(const char *root, const struct jit_cache_id *id, struct jit_cache_entry *out);
/* Write an entry and publish it. One that is there already and verifies stays; a bad one is replaced. */
enum rose_status jit_cache_store(const char *root, const struct jit_cache_id *id, struct str source,
                                 const struct jit_cache_entry *entry, struct rose_error *err);

/* Become the one process that compiles this entry. *fd >= 0: yes, unlock when done. -1: the directory cannot
 * be written, or another process held the lock for longer than timeout_s (it hangs): compile without. done()
 * is asked while waiting, and ends it. */
void jit_cache_lock(const char *root, const struct jit_cache_id *id, double timeout_s,
                    bool (*done)(void *arg), void *arg, int *fd);
void jit_cache_unlock(const char *root, const struct jit_cache_id *id, int fd);

/* Remove temporary directories below ROOT/nvrtc/arch that are older than an hour. */
void jit_cache_sweep(const char *root, const struct jit_cache_id *id);
/* The compilers that a tree has entries of, newest name first; names are malloc'ed. Returns their number, at
 * most max. */
int jit_cache_compilers(const char *root, char **names, int max);

#endif
