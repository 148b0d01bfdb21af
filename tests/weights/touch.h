/* Reads everything that an open checkpoint offers, as an inspecting and binding user would. For tests on
 * damaged files and for the fuzzers: whatever was accepted must be readable to its last byte. */
#ifndef ROSE_TESTS_WEIGHTS_TOUCH_H
#define ROSE_TESTS_WEIGHTS_TOUCH_H

#include <stdlib.h>

#include "weights/bind.h"
#include "weights/gguf.h"

static inline uint64_t touch_bytes(const void *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((const uint8_t *)p)[i];
    return sum;
}

static inline uint64_t touch_metadata(const struct weights *w)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < gguf_count(w); i++) {
        const struct gguf_value *v = gguf_at(w, i);
        char key[256];
        int64_t n = 0;
        double d = 0;
        struct str text = {0};
        sum += touch_bytes(v->key.p, v->key.n) + strlen(gguf_type_name(v->type));
        for (uint64_t k = 0; k < v->count && k < 1000; k++)
            sum += (uint64_t)gguf_int(v, v->count - 1 - k, &n) + gguf_num(v, v->count - 1 - k, &d);
        if (gguf_text(v, &text)) sum += touch_bytes(text.p, text.n);
        if (v->key.n >= sizeof key || memchr(v->key.p, 0, v->key.n)) continue;
        memcpy(key, v->key.p, v->key.n);
        key[v->key.n] = '\0';
        const struct str *strings;
        const float *f32;
        const int32_t *i32;
        size_t count;
        uint64_t u = 0;
        bool b = false;
        if (gguf_strings(w, key, &strings, &count, NULL) == ROSE_OK)
            for (size_t k = 0; k < count; k++) sum += touch_bytes(strings[k].p, strings[k].n);
        if (gguf_f32s(w, key, &f32, &count, NULL) == ROSE_OK) sum += touch_bytes(f32, count * 4);
        if (gguf_i32s(w, key, &i32, &count, NULL) == ROSE_OK) sum += touch_bytes(i32, count * 4);
        sum += gguf_u64(w, key, &u, NULL) + gguf_i64(w, key, &n, NULL) + gguf_f64(w, key, &d, NULL) +
               gguf_bool(w, key, &b, NULL);
        sum += u + (uint64_t)n + b + (d > 0);
    }
    return sum;
}

/* Data, decoded rows, names, summary, metadata, and a binding that wants half of the tensors. */
static inline uint64_t touch_all(const struct weights *w)
{
    uint64_t sum = touch_metadata(w);
    struct rose_error err;
    struct weights_summary summary;
    struct bind *b = NULL;
    if (bind_open(w, &b, &err) != ROSE_OK) return sum;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_tensor *t = weights_tensor(w, i);
        const struct dtype_info *info = dtype_info(t->tensor.dtype);
        struct tensor view;
        sum += touch_bytes(t->tensor.data, (size_t)t->bytes) + strlen(t->type) + strlen(t->file) +
               touch_bytes(t->name.p, t->name.n + 1);
        if (weights_find(w, t->name.p) != t) abort();
        if (info->decodes) {
            size_t n = (size_t)tensor_count(&t->tensor);
            if (n / info->block * info->bytes != t->bytes) abort();
            float one[256];
            if (n)
                dtype_decode(t->tensor.dtype, (const uint8_t *)t->tensor.data + t->bytes - info->bytes, one,
                             info->block);
            sum += n && one[0] > 0;
        }
        if (i % 2 == 0 && bind_want(b, t->name.p, t->tensor.ndim, t->tensor.shape, (int)(i % 4), &view))
            sum += (uint64_t)tensor_rows(&view);
        weights_release(w, t);
    }
    bind_ignore(b, "*.bias");
    bind_want(b, "no such tensor", 1, (int64_t[]){1}, BIND_ANY, &(struct tensor){0});
    if (bind_finish(b, NULL, &err) == ROSE_OK) abort();
    weights_summary(w, &summary);
    return sum + summary.bytes;
}

#endif
