/* Tensors of KServe v2: types, shapes, contents. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/floats.h"
#include "server/kserve.h"

bool kserve_wrong(struct api_error *e, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return api_error_field(e, NULL, "%s", text);
}

bool kserve_too_large(struct api_error *e) { return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's tensors are too large"); }

static const struct { const char *name; size_t bytes; } types[KSERVE_TYPES] = {
    {"BOOL", 1}, {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8}, {"INT8", 1}, {"INT16", 2}, {"INT32", 4}, {"INT64", 8},
    {"FP16", 2}, {"BF16", 2}, {"FP32", 4}, {"FP64", 8}, {"BYTES", 0},
};

const char *kserve_type_name(int type) { return types[type].name; }
size_t kserve_type_bytes(enum kserve_type type) { return types[type].bytes; }

int kserve_type_find(struct str name)
{
    for (int i = 0; i < KSERVE_TYPES; i++)
        if (str_is(name, types[i].name)) return i;
    return -1;
}

bool kserve_type_fits(enum kserve_type have, enum kserve_type want)
{
    bool have_int = have >= KSERVE_UINT8 && have <= KSERVE_INT64, want_int = want >= KSERVE_UINT8 && want <= KSERVE_INT64;
    bool have_float = have >= KSERVE_FP16 && have <= KSERVE_FP64, want_float = want >= KSERVE_FP16 && want <= KSERVE_FP64;
    return have == want || (have_int && want_int) || (have_float && want_float);
}

bool kserve_elements(const int64_t *shape, int rank, size_t *out)
{
    size_t n = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0 || shape[i] > KSERVE_ELEMENTS || !size_mul(n, (size_t)shape[i], &n) || n > KSERVE_ELEMENTS) return false;
    }
    *out = n;
    return true;
}

static uint32_t read_u32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static void write_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (char)(v >> 8 * i);
}

struct str kserve_next_bytes(struct str *rest)
{
    uint32_t n = read_u32(rest->p);
    struct str out = {rest->p + 4, n};
    *rest = (struct str){rest->p + 4 + n, rest->n - 4 - n};
    return out;
}

static bool wrong(struct api_error *e, const struct kserve_tensor *t, const char *fmt, ...) ROSE_PRINTF(3, 4);
static bool wrong(struct api_error *e, const struct kserve_tensor *t, const char *fmt, ...)
{
    char text[400], name[80];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(name, sizeof name, "%.*s", (int)ROSE_MIN(t->name.n, 64), t->name.p);
    return api_error_field(e, name, "tensor '%s': %s", name, text);
}

bool kserve_check(const struct kserve_tensor *t, struct api_error *e)
{
    if (t->type != KSERVE_BYTES) {
        size_t want = t->elements * types[t->type].bytes;
        return t->data.n == want || wrong(e, t, "%zu bytes of data came, and its shape and datatype %s want %zu", t->data.n, types[t->type].name, want);
    }
    size_t at = 0;
    for (size_t i = 0; i < t->elements; i++) {
        if (t->data.n - at < 4) return wrong(e, t, "its data ends within the length of element %zu of %zu", i, t->elements);
        uint32_t n = read_u32(t->data.p + at);
        if (n > t->data.n - at - 4) return wrong(e, t, "element %zu says that it has %u bytes, and %zu are left", i, n, t->data.n - at - 4);
        at += 4 + (size_t)n;
    }
    return at == t->data.n || wrong(e, t, "%zu bytes are left behind its %zu elements", t->data.n - at, t->elements);
}

/* --- JSON -------------------------------------------------------------------------------------------------------------------------- */

static void write_integer(char *to, size_t bytes, uint64_t v)
{
    for (size_t i = 0; i < bytes; i++) to[i] = (char)(v >> 8 * i);
}

static uint16_t half_from_float(float x)
{
    union { float f; uint32_t u; } v = {.f = x};
    uint32_t sign = v.u >> 16 & 0x8000, exponent = v.u >> 23 & 255, mantissa = v.u & 0x7FFFFF;
    if (exponent == 255) return (uint16_t)(sign | 0x7C00 | (mantissa ? 0x200 | mantissa >> 13 : 0));
    int e = (int)exponent - 127 + 15;
    if (e >= 31) return (uint16_t)(sign | 0x7C00);
    uint32_t m = mantissa | 0x800000, shift = e > 0 ? 13 : (uint32_t)(14 - e);
    if (shift > 24) return (uint16_t)sign;
    uint32_t kept = m >> shift, rest = m & ((1u << shift) - 1), half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return (uint16_t)(sign + (e > 0 ? ((uint32_t)(e - 1) << 10) + kept : kept)); /* a carry runs into the exponent, as it should */
}

static float half_to_float(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 0x3FF;
    float x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf((float)(m | 0x400), e - 25) : ldexpf((float)m, -24);
    return h & 0x8000 ? -x : x;
}

static uint16_t bf16_from_float(float x)
{
    union { float f; uint32_t u; } v = {.f = x};
    if (x != x) return (uint16_t)(v.u >> 16 | 0x40);
    return (uint16_t)((v.u + 0x7FFF + (v.u >> 16 & 1)) >> 16);
}

static const struct { int64_t low; uint64_t high; } limits[KSERVE_TYPES] = {
    [KSERVE_UINT8] = {0, UINT8_MAX}, [KSERVE_UINT16] = {0, UINT16_MAX}, [KSERVE_UINT32] = {0, UINT32_MAX}, [KSERVE_UINT64] = {0, UINT64_MAX},
    [KSERVE_INT8] = {INT8_MIN, INT8_MAX}, [KSERVE_INT16] = {INT16_MIN, INT16_MAX}, [KSERVE_INT32] = {INT32_MIN, INT32_MAX}, [KSERVE_INT64] = {INT64_MIN, INT64_MAX},
};

static bool value_from_json(const struct json *v, const struct kserve_tensor *t, char *to, struct api_error *e)
{
    size_t bytes = types[t->type].bytes;
    switch (t->type) {
    case KSERVE_BOOL:
        if (v->type != JSON_TRUE && v->type != JSON_FALSE) return wrong(e, t, "a value of datatype BOOL must be true or false, not %s", json_type_name(v->type));
        *to = v->type == JSON_TRUE;
        return true;
    case KSERVE_FP16: case KSERVE_FP32: case KSERVE_FP64: {
        if (v->type != JSON_NUMBER) return wrong(e, t, "a value of datatype %s must be a number, not %s", types[t->type].name, json_type_name(v->type));
        double x = v->is_integer ? (double)v->integer : v->number;
        float f = (float)x;
        if (t->type == KSERVE_FP64) memcpy(to, &x, 8);
        else if (t->type == KSERVE_FP32) memcpy(to, &f, 4);
        else write_integer(to, 2, half_from_float(f));
        return true;
    }
    case KSERVE_BF16: return wrong(e, t, "datatype BF16 has no form in JSON: send it as binary data");
    default:
        if (v->type == JSON_NUMBER && v->is_wide && t->type == KSERVE_UINT64) {
            write_integer(to, bytes, (uint64_t)v->integer);
            return true;
        }
        if (v->type != JSON_NUMBER || !v->is_integer) return wrong(e, t, "a value of datatype %s must be an integer%s", types[t->type].name, v->type == JSON_NUMBER && v->is_wide ? " that fits it" : "");
        if (v->integer < limits[t->type].low || (v->integer > 0 && (uint64_t)v->integer > limits[t->type].high))
            return wrong(e, t, "%lld is outside of datatype %s", (long long)v->integer, types[t->type].name);
        write_integer(to, bytes, (uint64_t)v->integer);
        return true;
    }
}

struct filling {
    struct kserve_tensor *t;
    char *to;
    size_t count, bytes;
    struct api_error *e;
};

/* Leaves in order, however they are nested. With to NULL: count them and their bytes. Depth is bounded by the JSON reader. */
static bool fill(struct filling *f, const struct json *v)
{
    if (v->type == JSON_ARRAY) {
        for (uint32_t i = 0; i < v->count; i++)
            if (!fill(f, json_at(v, i))) return false;
        return true;
    }
    f->count++;
    if (f->t->type != KSERVE_BYTES) {
        if (!f->to) return true;
        if (!value_from_json(v, f->t, f->to, f->e)) return false;
        f->to += types[f->t->type].bytes;
        return true;
    }
    if (v->type != JSON_STRING) return wrong(f->e, f->t, "a value of datatype BYTES must be a string, not %s", json_type_name(v->type));
    if (v->string.n > UINT32_MAX) return wrong(f->e, f->t, "a string is too long");
    f->bytes += 4 + v->string.n;
    if (!f->to) return true;
    write_u32(f->to, (uint32_t)v->string.n);
    if (v->string.n) memcpy(f->to + 4, v->string.p, v->string.n);
    f->to += 4 + v->string.n;
    return true;
}

bool kserve_from_json(const struct json *data, struct kserve_tensor *t, struct arena *arena, struct api_error *e)
{
    struct filling f = {.t = t, .e = e};
    if (data->type != JSON_ARRAY) return wrong(e, t, "data must be a list");
    if (!fill(&f, data)) return false;
    if (f.count != t->elements) return wrong(e, t, "%zu values came, and its shape wants %zu", f.count, t->elements);
    size_t bytes = t->type == KSERVE_BYTES ? f.bytes : t->elements * types[t->type].bytes;
    char *to = arena_alloc(arena, bytes + 1);
    if (!to) return api_error_set(e, 413, "invalid_request_error", "too_large", NULL, "the request's tensors are too large");
    f = (struct filling){.t = t, .e = e, .to = to};
    if (!fill(&f, data)) return false;
    t->data = (struct str){to, bytes};
    return true;
}

double kserve_number(const struct kserve_tensor *t, size_t i)
{
    const char *p = t->data.p + i * types[t->type].bytes;
    uint64_t u = 0;
    float f;
    double d;
    for (size_t k = 0; k < types[t->type].bytes; k++) u |= (uint64_t)(unsigned char)p[k] << 8 * k;
    switch (t->type) {
    case KSERVE_INT8: return (int8_t)u;
    case KSERVE_INT16: return (int16_t)u;
    case KSERVE_INT32: return (int32_t)u;
    case KSERVE_INT64: return (double)(int64_t)u;
    case KSERVE_FP16: return (double)half_to_float((uint16_t)u);
    case KSERVE_BF16: {
        uint32_t wide = (uint32_t)u << 16;
        memcpy(&f, &wide, 4);
        return (double)f;
    }
    case KSERVE_FP32: memcpy(&f, p, 4); return (double)f;
    case KSERVE_FP64: memcpy(&d, p, 8); return d;
    default: return (double)u;
    }
}

bool kserve_to_json(const struct kserve_tensor *t, struct strbuf *b)
{
    struct str rest = t->data;
    if (t->type == KSERVE_BF16) return false;
    if (t->type == KSERVE_FP32) { /* data of outputs is aligned */
        floats_add_list(b, (const float *)(const void *)t->data.p, t->elements);
        return true;
    }
    strbuf_addc(b, '[');
    for (size_t i = 0; i < t->elements; i++) {
        if (i) strbuf_addc(b, ',');
        if (t->type == KSERVE_BYTES) json_add_str(b, kserve_next_bytes(&rest));
        else if (t->type == KSERVE_BOOL) strbuf_adds(b, t->data.p[i] ? "true" : "false");
        else if (t->type == KSERVE_UINT64 || t->type == KSERVE_INT64) {
            int64_t v;
            memcpy(&v, t->data.p + i * 8, 8);
            if (t->type == KSERVE_INT64) strbuf_printf(b, "%lld", (long long)v);
            else strbuf_printf(b, "%llu", (unsigned long long)v);
        } else if (t->type == KSERVE_FP16) floats_add(b, (float)kserve_number(t, i));
        else json_add_num(b, kserve_number(t, i));
    }
    strbuf_addc(b, ']');
    return true;
}

/* --- outputs ---------------------------------------------------------------------------------------------------------------------- */

bool kserve_convert(struct kserve_tensor *t, int type, struct arena *arena)
{
    if (t->type != KSERVE_FP32 || type < 0 || type == KSERVE_FP32) return true;
    size_t bytes = types[type].bytes;
    const float *from = (const float *)(const void *)t->data.p;
    char *to = arena_alloc(arena, t->elements * bytes + 1);
    if (!to) return false;
    for (size_t i = 0; i < t->elements; i++) {
        double d = (double)from[i];
        uint16_t half = type == KSERVE_FP16 ? half_from_float(from[i]) : bf16_from_float(from[i]);
        if (type == KSERVE_FP64) memcpy(to + i * 8, &d, 8);
        else memcpy(to + i * 2, &half, 2);
    }
    t->type = (enum kserve_type)type;
    t->data = (struct str){to, t->elements * bytes};
    return true;
}

struct ranked {
    float value;
    uint32_t at;
};

/* The largest first; of equal ones the first. NaN comes last. */
static int by_value(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    bool x_nan = x->value != x->value, y_nan = y->value != y->value;
    if (x_nan != y_nan) return x_nan ? 1 : -1;
    if (!x_nan && x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

bool kserve_classify(struct kserve_tensor *t, int k, const char *const *labels, int labels_count, struct arena *arena)
{
    size_t width = t->rank ? (size_t)t->shape[t->rank - 1] : 1, rows = width ? t->elements / width : 0, top = ROSE_MIN((size_t)k, width);
    const float *x = (const float *)(const void *)t->data.p;
    struct strbuf b = {0};
    struct ranked *order = arena_alloc(arena, (width + 1) * sizeof *order);
    if (!order) return false;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < width; i++) order[i] = (struct ranked){x[r * width + i], (uint32_t)i};
        qsort(order, width, sizeof *order, by_value);
        for (size_t n = 0; n < top; n++) {
            size_t best = order[n].at, at = b.n;
            strbuf_add(&b, "\0\0\0\0", 4);
            strbuf_printf(&b, "%f:%zu", (double)x[r * width + best], best);
            if (labels && best < (size_t)labels_count) strbuf_printf(&b, ":%s", labels[best]);
            if (b.failed) break;
            write_u32(b.p + at, (uint32_t)(b.n - at - 4));
        }
    }
    char *copy = b.failed ? NULL : arena_strndup(arena, b.p ? b.p : "", b.n);
    t->data = (struct str){copy, b.n};
    strbuf_free(&b);
    t->type = KSERVE_BYTES;
    if (t->rank) t->shape[t->rank - 1] = (int64_t)top;
    t->elements = rows * top;
    return copy != NULL;
}
