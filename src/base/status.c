#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const char *rose_status_name(enum rose_status status)
{
    static const char *const names[] = {"ok", "invalid", "format", "unsupported", "not_found", "io",
                                        "no_memory", "limit", "busy", "cancelled", "device", "internal"};
    return (unsigned)status < ROSE_COUNT(names) ? names[status] : "unknown";
}

/* Messages quote files and requests, and may be cut: what a terminal takes for a command, and what is no UTF-8 (which no answer may carry), becomes '?'. Lines and tabs stay. */
static void plain(char *message)
{
    uint32_t c;
    size_t n;
    for (char *p = message, *end = p + strlen(p); p < end; p += n) {
        n = utf8_decode((struct str){p, (size_t)(end - p)}, &c);
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c == UTF8_INVALID) memset(p, '?', n);
    }
}

static void fill(struct rose_error *err, const char *file, int line, int column, int64_t offset, const char *fmt,
                 va_list args)
{
    if (!err) return;
    vsnprintf(err->message, sizeof err->message, fmt, args);
    plain(err->message);
    snprintf(err->file, sizeof err->file, "%s", file ? file : "");
    err->line = line;
    err->column = column;
    err->offset = offset;
}

enum rose_status status_set(struct rose_error *err, enum rose_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, NULL, 0, 0, -1, fmt, args);
    va_end(args);
    return status;
}

enum rose_status status_at(struct rose_error *err, enum rose_status status, const char *file, int64_t offset,
                           const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, file, 0, 0, offset, fmt, args);
    va_end(args);
    return status;
}

enum rose_status status_at_line(struct rose_error *err, enum rose_status status, const char *file, int line,
                                int column, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fill(err, file, line, column, -1, fmt, args);
    va_end(args);
    return status;
}

enum rose_status status_wrap(struct rose_error *err, enum rose_status status, const char *fmt, ...)
{
    if (!err || status == ROSE_OK) return status;
    char inner[sizeof err->message];
    memcpy(inner, err->message, sizeof inner);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->message)
        snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", inner);
    plain(err->message);
    return status;
}
