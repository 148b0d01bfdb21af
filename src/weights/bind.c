#include "weights/bind.h"

#include <stdio.h>
#include <stdlib.h>

#include "weights/weights_internal.h"

enum { LISTED = 20, REPORTED = 10000 };

struct bind {
    const struct weights *w;
    uint8_t *used; /* [weights_count] */
    struct strbuf lines;
    size_t problems, unsupported; /* of which types that Rose only knows by name */
};

enum rose_status bind_open(const struct weights *w, struct bind **out, struct rose_error *err)
{
    struct bind *b = calloc(1, sizeof *b);
    *out = NULL;
    if (b) b->used = calloc(w->count + 1, 1);
    if (!b || !b->used) {
        free(b);
        return status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    b->w = w;
    *out = b;
    return ROSE_OK;
}

static void note(struct bind *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct bind *b, const char *fmt, ...)
{
    if (b->problems++ >= REPORTED) return;
    va_list args;
    va_start(args, fmt);
    strbuf_vprintf(&b->lines, fmt, args);
    va_end(args);
    strbuf_addc(&b->lines, '\n');
}

static bool is_weight(enum dtype d)
{
    return d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16 || (d >= DTYPE_Q4_0 && d <= DTYPE_MXFP4);
}

/* Equal when leading ones are left out of both. */
static bool same_shape(const struct weights_tensor *t, int ndim, const int64_t *shape)
{
    int i = 0, j = 0;
    while (i < t->ndim && t->shape[i] == 1) i++;
    while (j < ndim && shape[j] == 1) j++;
    if (t->ndim - i > ndim - j) return false;
    for (; ndim - j > t->ndim - i; j++) /* a wildcard may stand for one of the ones */
        if (shape[j] != -1) return false;
    for (; i < t->ndim; i++, j++)
        if (shape[j] != t->shape[i] && shape[j] != -1) return false;
    return true;
}

/* Shape as asked for, wildcards filled in from the file's shape, aligned at the innermost dimension. */
static struct tensor view_as(const struct weights_tensor *t, int ndim, const int64_t *shape)
{
    struct tensor v = {.dtype = t->tensor.dtype, .ndim = ndim, .data = t->tensor.data};
    for (int j = 0; j < ndim; j++) {
        int i = t->ndim - ndim + j;
        v.shape[j] = shape[j] != -1 ? shape[j] : i >= 0 ? t->shape[i] : 1;
    }
    return v;
}

/* Bytes that the element or the block's widest field is read with. */
static size_t alignment_of(enum dtype d)
{
    return d == DTYPE_F32 ? 4 : d == DTYPE_MXFP4 || d == DTYPE_F8_E4M3 ? 1 : 2;
}

bool bind_want(struct bind *b, const char *name, int ndim, const int64_t *shape, int flags,
               struct tensor *out)
{
    const struct weights_tensor *t = weights_find(b->w, name);
    char want[192], have[192];
    *out = (struct tensor){0};
    if (ndim < 0 || ndim > TENSOR_MAX_DIMS)
        return note(b, "%s: a view cannot have %d dimensions", name, ndim), false;
    weights_shape_text(ndim, shape, want);
    if (!t) {
        if (!(flags & BIND_OPTIONAL)) note(b, "missing: %s, expected with shape %s", name, want);
        return false;
    }
    b->used[t - b->w->tensors] = 1;
    enum dtype d = t->tensor.dtype;
    bool plain = d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16;
    if (!same_shape(t, ndim, shape)) {
        weights_shape_text(t->ndim, t->shape, have);
        return note(b, "%s has shape %s, expected %s", name, have, want), false;
    }
    if (d == DTYPE_F8_E4M3 && !(flags & BIND_FP8)) {
        b->unsupported++;
        return note(b, "%s has type %s, which needs a \"quantization_config\" in config.json that says how it is scaled", name, t->type), false;
    }
    if (!is_weight(d) && d != DTYPE_F8_E4M3) {
        b->unsupported++;
        return note(b, "%s has type %s, which Rose cannot compute with", name, t->type), false;
    }
    if ((flags & BIND_PLAIN) && !plain)
        return note(b, "%s has type %s, expected F32, F16 or BF16", name, t->type), false;
    if ((uintptr_t)t->tensor.data % alignment_of(d))
        return note(b, "%s (%s) lies at byte %llu of %s, which is not a multiple of %zu", name, t->type,
                    (unsigned long long)t->offset, t->file, alignment_of(d)),
               false;
    *out = view_as(t, ndim, shape);
    return true;
}

/* Greedy with one point of return: O(pattern * text). */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;
    while (*text) {
        if (*pattern == '*')
            star = ++pattern, from = text;
        else if (*pattern == *text)
            pattern++, text++;
        else if (star)
            pattern = star, text = ++from;
        else
            return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

void bind_ignore(struct bind *b, const char *pattern)
{
    for (size_t i = 0; i < b->w->count; i++)
        if (!b->used[i] && matches(pattern, b->w->tensors[i].name.p)) b->used[i] = 2;
}

size_t bind_unused(const struct bind *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->w->count; i++) n += !b->used[i];
    return n;
}

size_t bind_problems(const struct bind *b)
{
    return b->problems;
}

/* The lines that fit, and how many did not. */
static enum rose_status fill_error(struct bind *b, struct rose_error *err)
{
    enum rose_status s = b->unsupported == b->problems ? ROSE_UNSUPPORTED : ROSE_FORMAT;
    if (!err) return s;
    status_at(err, s, b->w->path, -1, "%.400s does not fit the model (%zu problem%s):", b->w->path,
              b->problems, b->problems == 1 ? "" : "s");
    size_t n = strlen(err->message), shown = 0;
    enum { TAIL = 40 }; /* "\n  and N more" */
    struct str text = strbuf_str(&b->lines);
    for (size_t at = 0; at < text.n && shown < LISTED; shown++) {
        size_t end = (size_t)str_find(text, STR("\n"), at); /* every line ends in one */
        if (n + 3 + (end - at) + TAIL >= sizeof err->message) break;
        n += (size_t)snprintf(err->message + n, sizeof err->message - n, "\n  %.*s", (int)(end - at),
                              text.p + at);
        at = end + 1;
    }
    if (shown < b->problems)
        snprintf(err->message + n, sizeof err->message - n, "\n  and %zu more", b->problems - shown);
    return s;
}

enum rose_status bind_finish(struct bind *b, struct strbuf *report, struct rose_error *err)
{
    char shape[192];
    for (size_t i = 0; i < b->w->count; i++) {
        const struct weights_tensor *t = &b->w->tensors[i];
        if (b->used[i]) continue;
        weights_shape_text(t->ndim, t->shape, shape);
        note(b, "unexpected: %s, %s with shape %s", t->name.p, t->type, shape);
    }
    enum rose_status s = ROSE_OK;
    if (b->lines.failed)
        s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    else if (b->problems)
        s = fill_error(b, err);
    if (report && b->lines.n) strbuf_add(report, b->lines.p, b->lines.n);
    strbuf_free(&b->lines);
    free(b->used);
    free(b);
    return s;
}
