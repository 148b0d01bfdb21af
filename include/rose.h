/* Rose: the public interface of the serving engine. Copyright the Rose authors, Apache-2.0.
 *
 * A rose_device holds one memory plan and one worker pool. A rose_engine is one model with one engine
 * thread; several may share a device. Requests go in with rose_submit, everything that happens to them
 * comes out of rose_events, and every accepted id ends in exactly one final event. Handles are opaque.
 * Every fallible call returns a status (0 is success) and fills a caller's rose_error.
 *
 * Threads: rose_submit, rose_cancel, rose_tokenize, rose_detokenize, rose_render and rose_engine_stats may be
 * called from any thread; rose_events from one thread at a time.
 */
#ifndef ROSE_H
#define ROSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ROSE_VERSION "0.1.0"

enum rose_status {
    ROSE_OK = 0,
    ROSE_INVALID,     /* the caller's argument or request is wrong */
    ROSE_FORMAT,      /* a file does not follow its format */
    ROSE_UNSUPPORTED, /* valid, but not something this build can do */
    ROSE_NOT_FOUND,   /* a file, model, tensor or name is missing */
    ROSE_IO,          /* the operating system refused */
    ROSE_NO_MEMORY,   /* memory of the host, the device or the cache pool */
    ROSE_LIMIT,       /* a stated limit would be exceeded (context length, queue, size) */
    ROSE_BUSY,        /* try again later */
    ROSE_CANCELLED,
    ROSE_DEVICE,   /* the accelerator or its driver failed */
    ROSE_INTERNAL, /* a bug in Rose */
};

/* What went wrong, in a sentence that names the cause and the fix. Callers own the struct. */
struct rose_error {
    char message[1024];
    char file[256]; /* the input it concerns, empty if none */
    int line;       /* 1-based, 0 if unknown */
    int column;     /* 1-based, 0 if unknown */
    int64_t offset; /* byte offset into the input, -1 if unknown */
};

/* A static name such as "invalid" or "no_memory". */
const char *rose_status_name(enum rose_status status);

#ifdef __cplusplus
}
#endif
#endif
