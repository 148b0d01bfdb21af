/* Layouts as values: making, parsing, printing, evaluating. The tree is stored in preorder, see layout.h. */
#include "tensor/layout.h"

static enum rose_status too_many(struct rose_error *err)
{
    return status_set(err, ROSE_LIMIT, "a layout has more than %d modes, tuples counted; coalesce it first",
                      LAYOUT_MAX_NODES);
}

static enum rose_status too_wide(struct rose_error *err)
{
    return status_set(err, ROSE_LIMIT, "a tuple has more than %d modes; coalesce or nest them", LAYOUT_MAX_MODES);
}

/* Shapes, strides, size and cosize within range. */
static enum rose_status check_range(const struct layout *a, struct rose_error *err)
{
    int64_t size = 1, last = 0, reach;
    for (int i = 0; i < a->n; i++) {
        const struct layout_node *v = &a->node[i];
        if (v->children) continue;
        if (v->shape < 1 || v->stride < 0)
            return status_set(err, ROSE_INVALID,
                              "layout mode %lld:%lld: shapes are at least 1 and strides at least 0",
                              (long long)v->shape, (long long)v->stride);
        if (__builtin_mul_overflow(size, v->shape, &size) ||
            __builtin_mul_overflow(v->shape - 1, v->stride, &reach) ||
            __builtin_add_overflow(last, reach, &last) || last == INT64_MAX)
            return status_set(err, ROSE_LIMIT, "the size or an offset of the layout exceeds 63 bits");
    }
    return ROSE_OK;
}

enum rose_status layout_leaf(int64_t shape, int64_t stride, struct layout *out, struct rose_error *err)
{
    out->n = 1;
    out->node[0] = (struct layout_node){shape, stride, 0, 1};
    return check_range(out, err);
}

enum rose_status layout_flat(const int64_t *shapes, const int64_t *strides, int n, struct layout *out,
                             struct rose_error *err)
{
    if (n < 1) return status_set(err, ROSE_INVALID, "a layout needs at least one mode");
    if (n >= LAYOUT_MAX_NODES) return too_many(err);
    int64_t compact = 1;
    out->n = n + 1;
    out->node[0] = (struct layout_node){0, 0, (uint8_t)n, (uint8_t)(n + 1)};
    for (int i = 0; i < n; i++) {
        out->node[i + 1] = (struct layout_node){shapes[i], strides ? strides[i] : compact, 0, 1};
        if (!strides && __builtin_mul_overflow(compact, shapes[i], &compact))
            return status_set(err, ROSE_LIMIT, "the size of the layout exceeds 63 bits");
    }
    return check_range(out, err);
}

enum rose_status layout_tuple(const struct layout *modes, int n, struct layout *out, struct rose_error *err)
{
    struct layout t = {.n = 1};
    if (n < 1 || n > LAYOUT_MAX_MODES)
        return status_set(err, ROSE_INVALID, "a tuple has 1 to %d modes, not %d", LAYOUT_MAX_MODES, n);
    for (int i = 0; i < n; i++) {
        if (t.n + modes[i].n > LAYOUT_MAX_NODES) return too_many(err);
        memcpy(t.node + t.n, modes[i].node, (size_t)modes[i].n * sizeof *t.node);
        t.n += modes[i].n;
    }
    t.node[0] = (struct layout_node){0, 0, (uint8_t)n, (uint8_t)t.n};
    if (layout_depth(&t) > LAYOUT_MAX_DEPTH)
        return status_set(err, ROSE_LIMIT, "a layout nests deeper than %d", LAYOUT_MAX_DEPTH);
    *out = t;
    return check_range(out, err);
}

/* ---- parsing: one tuple of integers into the shape fields of a tree ---- */

struct reader {
    struct str text;
    size_t at;
    struct rose_error *err;
};

static enum rose_status bad(struct reader *r, const char *expected)
{
    return status_at_line(r->err, ROSE_INVALID, NULL, 1, (int)r->at + 1,
                          "layout '" STR_FMT "': expected %s at column %zu", (int)ROSE_MIN(r->text.n, 200),
                          r->text.p, expected, r->at + 1);
}

static char peek(struct reader *r)
{
    while (r->at < r->text.n && (r->text.p[r->at] == ' ' || r->text.p[r->at] == '\t')) r->at++;
    return r->at < r->text.n ? r->text.p[r->at] : '\0';
}

static enum rose_status read_number(struct reader *r, int64_t *out)
{
    size_t from = r->at;
    int64_t v = 0;
    peek(r);
    for (from = r->at; r->at < r->text.n && r->text.p[r->at] >= '0' && r->text.p[r->at] <= '9'; r->at++)
        if (__builtin_mul_overflow(v, (int64_t)10, &v) ||
            __builtin_add_overflow(v, (int64_t)(r->text.p[r->at] - '0'), &v))
            return bad(r, "a number of at most 63 bits");
    if (r->at == from) return bad(r, "a number or '('");
    *out = v;
    return ROSE_OK;
}

static enum rose_status read_tree(struct reader *r, struct layout *out, int depth)
{
    int self = out->n;
    if (self == LAYOUT_MAX_NODES) return too_many(r->err);
    out->n++;
    out->node[self] = (struct layout_node){0};
    if (peek(r) != '(') {
        out->node[self].span = 1;
        return read_number(r, &out->node[self].shape);
    }
    if (depth == LAYOUT_MAX_DEPTH)
        return status_set(r->err, ROSE_LIMIT, "a layout nests deeper than %d", LAYOUT_MAX_DEPTH);
    do {
        r->at++;
        if (out->node[self].children == LAYOUT_MAX_MODES) return too_wide(r->err);
        out->node[self].children++;
        ROSE_TRY(read_tree(r, out, depth + 1));
    } while (peek(r) == ',');
    if (peek(r) != ')') return bad(r, "',' or ')'");
    r->at++;
    out->node[self].span = (uint8_t)(out->n - self);
    return ROSE_OK;
}

static enum rose_status read_layout(struct reader *r, struct layout *out)
{
    struct layout strides = {0};
    out->n = 0;
    ROSE_TRY(read_tree(r, out, 0));
    if (peek(r) == ':') {
        r->at++;
        ROSE_TRY(read_tree(r, &strides, 0));
        bool same = strides.n == out->n;
        for (int i = 0; same && i < out->n; i++) same = strides.node[i].children == out->node[i].children;
        if (!same) return bad(r, "strides that nest like the shape before");
        for (int i = 0; i < out->n; i++) out->node[i].stride = strides.node[i].shape;
    } else {
        int64_t compact = 1;
        for (int i = 0; i < out->n; i++) {
            if (out->node[i].children) continue;
            out->node[i].stride = compact;
            if (__builtin_mul_overflow(compact, out->node[i].shape, &compact))
                return status_set(r->err, ROSE_LIMIT, "the size of the layout exceeds 63 bits");
        }
    }
    for (int i = 0; i < out->n; i++)
        if (out->node[i].children) out->node[i].shape = out->node[i].stride = 0;
    return check_range(out, r->err);
}

enum rose_status layout_parse(struct str text, struct layout *out, struct rose_error *err)
{
    struct reader r = {text, 0, err};
    ROSE_TRY(read_layout(&r, out));
    peek(&r);
    return r.at == text.n ? ROSE_OK : bad(&r, "the end");
}

enum rose_status layout_parse_tiler(struct str text, struct layout *out, int *n, struct rose_error *err)
{
    struct reader r = {text, 0, err};
    bool angle = peek(&r) == '<';
    if (angle) r.at++;
    for (*n = 0;; r.at++) {
        if (*n == LAYOUT_MAX_MODES) return too_wide(err);
        ROSE_TRY(read_layout(&r, &out[(*n)++]));
        if (peek(&r) != ',') break;
    }
    if (angle && peek(&r) != '>') return bad(&r, "',' or '>'");
    r.at += angle;
    peek(&r);
    return r.at == text.n ? ROSE_OK : bad(&r, "the end");
}

/* ---- showing ---- */

static int print_tree(const struct layout *a, int at, bool stride, struct strbuf *out)
{
    const struct layout_node *v = &a->node[at++];
    if (!v->children) {
        strbuf_printf(out, "%lld", (long long)(stride ? v->stride : v->shape));
        return at;
    }
    for (int i = 0; i < v->children; i++) {
        strbuf_addc(out, i ? ',' : '(');
        at = print_tree(a, at, stride, out);
    }
    strbuf_addc(out, ')');
    return at;
}

void layout_print(const struct layout *a, struct strbuf *out)
{
    print_tree(a, 0, false, out);
    strbuf_addc(out, ':');
    print_tree(a, 0, true, out);
}

bool layout_equal(const struct layout *a, const struct layout *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        const struct layout_node *x = &a->node[i], *y = &b->node[i];
        if (x->children != y->children || (!x->children && (x->shape != y->shape || x->stride != y->stride)))
            return false;
    }
    return true;
}

int layout_rank(const struct layout *a)
{
    return a->node[0].children ? a->node[0].children : 1;
}

int layout_depth(const struct layout *a)
{
    int end[LAYOUT_MAX_NODES], open = 0, deepest = 0; /* ends of the tuples that node i lies in */
    for (int i = 0; i < a->n; i++) {
        while (open && end[open - 1] <= i) open--;
        if (a->node[i].children) end[open++] = i + a->node[i].span;
        deepest = ROSE_MAX(deepest, open);
    }
    return deepest;
}

/* Node of top-level mode i. */
static int mode_node(const struct layout *a, int i)
{
    if (!a->node[0].children) return 0;
    int at = 1;
    while (i-- > 0) at += a->node[at].span;
    return at;
}

struct layout layout_mode(const struct layout *a, int i)
{
    struct layout m;
    int at = mode_node(a, i);
    m.n = a->node[at].span;
    memcpy(m.node, a->node + at, (size_t)m.n * sizeof *m.node);
    return m;
}

int64_t layout_size(const struct layout *a)
{
    int64_t size = 1;
    for (int i = 0; i < a->n; i++)
        if (!a->node[i].children) size *= a->node[i].shape;
    return size;
}

int64_t layout_cosize(const struct layout *a)
{
    int64_t last = 0;
    for (int i = 0; i < a->n; i++)
        if (!a->node[i].children) last += (a->node[i].shape - 1) * a->node[i].stride;
    return last + 1;
}

/* Offset within nodes [from, to): the last mode of more than one element takes what is left of the
 * coordinate. */
static int64_t index_nodes(const struct layout *a, int from, int to, int64_t c)
{
    uint64_t offset = 0;
    while (to > from && (a->node[to - 1].children || a->node[to - 1].shape == 1)) to--;
    for (int i = from; i < to; i++) {
        const struct layout_node *v = &a->node[i];
        if (v->children) continue;
        int64_t digit = i == to - 1 ? c : c % v->shape;
        c /= v->shape;
        offset += (uint64_t)digit * (uint64_t)v->stride;
    }
    return (int64_t)offset;
}

int64_t layout_index(const struct layout *a, int64_t coordinate)
{
    return index_nodes(a, 0, a->n, coordinate);
}

int64_t layout_index_at(const struct layout *a, const int64_t *coordinates, int n)
{
    uint64_t offset = 0;
    int at = a->node[0].children ? 1 : 0;
    for (int i = 0; i < n && at < a->n; i++, at += a->node[at].span)
        offset += (uint64_t)index_nodes(a, at, at + a->node[at].span, coordinates[i]);
    return (int64_t)offset;
}

int layout_leaves(const struct layout *a, int64_t shapes[LAYOUT_MAX_NODES], int64_t strides[LAYOUT_MAX_NODES])
{
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (!a->node[i].children) shapes[n] = a->node[i].shape, strides[n++] = a->node[i].stride;
    return n;
}
