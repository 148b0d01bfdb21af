/* Compile processes. NVRTC holds one lock for the whole process while it compiles, so threads alone gain
 * nothing: each thread of a batch has a forked child that knows (by copy-on-write) everything the parent
 * knew, is sent numbers, and answers with results. A compiler that crashes takes a child with it, not the
 * server. Children never run longer than the batch and die with the parent. */
#ifndef ROSE_JIT_JIT_WORKER_H
#define ROSE_JIT_JIT_WORKER_H

#include <sys/types.h>

#include "base/status.h"

struct jit_worker {
    pid_t pid;
    int fd; /* -1: there is none */
};

/* What a job gives: both texts malloc'ed, NULL when there is none. */
struct jit_result {
    enum rose_status status;
    struct rose_error error;
    char *cubin, *log; /* log is NUL-terminated */
    size_t cubin_n;
};

/* Fork a child that answers calls with job(arg, number, &result). *out has fd -1 when the system refuses. */
void jit_worker_start(struct jit_worker *out, void (*job)(void *arg, int number, struct jit_result *result),
                      void *arg);
/* Let the child do a job. False: it died; *out says so, and fd is -1 from then on. */
bool jit_worker_call(struct jit_worker *worker, int number, struct jit_result *out);
void jit_worker_stop(struct jit_worker *worker);

#endif
