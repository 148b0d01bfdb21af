/* Errors: fill the caller's rose_error and return the status in one expression. */
#ifndef ROSE_BASE_STATUS_H
#define ROSE_BASE_STATUS_H

#include "rose.h"

#define ROSE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Fill *err (may be NULL) with a formatted sentence, no place; returns status. */
enum rose_status status_set(struct rose_error *err, enum rose_status status, const char *fmt, ...) ROSE_PRINTF(3, 4);

/* The same with the file the error stands in and the byte offset there (-1: unknown). */
enum rose_status status_at(struct rose_error *err, enum rose_status status, const char *file, int64_t offset,
                           const char *fmt, ...) ROSE_PRINTF(5, 6);

/* The same with line and column (1-based) for texts. */
enum rose_status status_at_line(struct rose_error *err, enum rose_status status, const char *file, int line,
                                int column, const char *fmt, ...) ROSE_PRINTF(6, 7);

/* Put "context: " before the message already in *err; returns status unchanged. */
enum rose_status status_wrap(struct rose_error *err, enum rose_status status, const char *fmt, ...) ROSE_PRINTF(3, 4);

/* Return early with the status of a failed call. */
#define ROSE_TRY(call)                                                                                        \
    do {                                                                                                      \
        enum rose_status rose_try_status_ = (call);                                                           \
        if (rose_try_status_ != ROSE_OK) return rose_try_status_;                                             \
    } while (0)

#define ROSE_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ROSE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define ROSE_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Checked size arithmetic: false on overflow. */
static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline size_t size_round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

#endif
