/* The algebra: coalesce, composition, complement, inverses, divide, product (definitions and source:
 * layout.h).
 *
 * Most of it works on a layout's leaves alone, as a flat list of modes (shape s, stride d), leftmost fastest.
 * Coalesced, such a list is a mixed-radix number system: digit i of a coordinate runs below s_i and weighs
 * d_i. */
#include "tensor/layout.h"

struct modes {
    int n;
    int64_t s[LAYOUT_MAX_NODES], d[LAYOUT_MAX_NODES];
};

static struct layout leaf(int64_t s, int64_t d)
{
    struct layout a = {.n = 1};
    a.node[0] = (struct layout_node){s, d, 0, 1};
    return a;
}

/* One mode: a leaf; several: a tuple of leaves; none: 1:0. n < LAYOUT_MAX_NODES. */
static struct layout from_modes(const struct modes *m)
{
    if (m->n == 0) return leaf(1, 0);
    if (m->n == 1) return leaf(m->s[0], m->d[0]);
    struct layout a = {.n = m->n + 1};
    a.node[0] = (struct layout_node){0, 0, (uint8_t)m->n, (uint8_t)(m->n + 1)};
    for (int i = 0; i < m->n; i++) a.node[i + 1] = (struct layout_node){m->s[i], m->d[i], 0, 1};
    return a;
}

/* The coalesced leaves of a: no shape of 1, no two neighbours that one mode could replace. */
static void coalesced(const struct layout *a, struct modes *m)
{
    m->n = 0;
    for (int i = 0; i < a->n; i++) {
        const struct layout_node *v = &a->node[i];
        int64_t next;
        if (v->children || v->shape == 1) continue;
        int last = m->n - 1;
        if (m->n && !__builtin_mul_overflow(m->s[last], m->d[last], &next) && next == v->stride)
            m->s[last] *= v->shape;
        else
            m->s[m->n] = v->shape, m->d[m->n++] = v->stride;
    }
}

/* Insertion sort by stride, then shape: lists are short. */
static void sort_by_stride(struct modes *m)
{
    for (int i = 1; i < m->n; i++)
        for (int j = i; j > 0 && (m->d[j] < m->d[j - 1] || (m->d[j] == m->d[j - 1] && m->s[j] < m->s[j - 1]));
             j--) {
            int64_t s = m->s[j], d = m->d[j];
            m->s[j] = m->s[j - 1], m->d[j] = m->d[j - 1];
            m->s[j - 1] = s, m->d[j - 1] = d;
        }
}

void layout_coalesce(const struct layout *a, struct layout *out)
{
    struct modes m;
    coalesced(a, &m);
    *out = from_modes(&m);
}

void layout_coalesce_modes(const struct layout *a, struct layout *out)
{
    struct layout t = {.n = 1};
    if (!a->node[0].children) {
        *out = *a;
        return;
    }
    /* A coalesced mode never has more nodes than before, so this cannot overflow. */
    for (int i = 0; i < layout_rank(a); i++) {
        struct layout m = layout_mode(a, i);
        layout_coalesce(&m, &m);
        memcpy(t.node + t.n, m.node, (size_t)m.n * sizeof *m.node);
        t.n += m.n;
    }
    t.node[0] = (struct layout_node){0, 0, a->node[0].children, (uint8_t)t.n};
    *out = t;
}

void layout_flatten(const struct layout *a, struct layout *out)
{
    struct modes m;
    m.n = layout_leaves(a, m.s, m.d);
    *out = from_modes(&m);
}

/* ---- composition ---- */

/* a's modes, and per mode the largest digit that the leaves of b composed so far can add up to there. Two
 * leaves may share a mode of a as long as their digits never carry into the next: then a(x + y) = a(x) +
 * a(y), and leaves compose one by one. */
struct composer {
    struct modes a;
    int64_t digit[LAYOUT_MAX_NODES];
    struct rose_error *err;
};

static enum rose_status not_composable(struct composer *c, int64_t s, int64_t d, int64_t shape)
{
    return status_set(c->err, ROSE_INVALID,
                      "the layouts do not compose: mode %lld:%lld on the right neither divides nor stays "
                      "within a mode of %lld on the left",
                      (long long)s, (long long)d, (long long)shape);
}

/* One piece p:step in mode i of a. */
static enum rose_status add_piece(struct composer *c, int i, int64_t p, int64_t step, struct modes *out)
{
    int64_t reach, stride;
    bool open_end = i == c->a.n - 1; /* the last mode goes on past its shape */
    if (__builtin_mul_overflow(p - 1, step, &reach) ||
        __builtin_add_overflow(c->digit[i], reach, &c->digit[i]) ||
        __builtin_mul_overflow(step, c->a.d[i], &stride))
        return status_set(c->err, ROSE_LIMIT, "an offset of the composed layout exceeds 63 bits");
    if (!open_end && c->digit[i] >= c->a.s[i])
        return status_set(
            c->err, ROSE_INVALID,
            "the layouts do not compose: modes on the right overlap in a mode of %lld on the left",
            (long long)c->a.s[i]);
    out->s[out->n] = p, out->d[out->n++] = stride;
    return ROSE_OK;
}

/* The modes of a o (s:d). Walk a's radixes: d digits are skipped, then s are taken.
 *
 *     a  (4 : a0, 2 : a1, 8 : a2) o 4:2    step 2 in the 4: 2 digits of stride 2 a0; left 2: 2 : a1   ->
 * (2,2):(2 a0,a1) */
static enum rose_status compose_leaf(struct composer *c, int64_t s, int64_t d, struct modes *out)
{
    int64_t left = s, step = d;
    out->n = 0;
    if (s == 1 || d == 0 || c->a.n == 0) {
        out->s[out->n] = s, out->d[out->n++] = 0;
        return ROSE_OK;
    }
    for (int i = 0;; i++) {
        int64_t a = c->a.s[i], reach;
        if (i == c->a.n - 1) return add_piece(c, i, left, step, out);
        if (step % a == 0) {
            step /= a;
            continue;
        }
        if (!__builtin_mul_overflow(left - 1, step, &reach) && reach < a)
            return add_piece(c, i, left, step, out);
        if (a % step || left % (a / step)) return not_composable(c, s, d, a);
        ROSE_TRY(add_piece(c, i, a / step, step, out));
        left /= a / step;
        step = 1;
    }
}

static enum rose_status compose_into(struct composer *c, const struct layout *b, struct layout *out)
{
    struct layout t = {0};
    int open[LAYOUT_MAX_DEPTH + 1], end[LAYOUT_MAX_DEPTH + 1], depth = 0;
    for (int i = 0; i < b->n; i++) {
        struct layout piece = {.n = 1};
        struct modes m;
        if (b->node[i].children) {
            if (depth > LAYOUT_MAX_DEPTH)
                return status_set(c->err, ROSE_LIMIT, "a layout nests deeper than %d", LAYOUT_MAX_DEPTH);
            piece.node[0] = b->node[i];
            open[depth] = t.n, end[depth++] = i + b->node[i].span;
        } else {
            ROSE_TRY(compose_leaf(c, b->node[i].shape, b->node[i].stride, &m));
            piece = from_modes(&m);
        }
        if (t.n + piece.n > LAYOUT_MAX_NODES)
            return status_set(c->err, ROSE_LIMIT, "the composed layout has more than %d modes",
                              LAYOUT_MAX_NODES);
        memcpy(t.node + t.n, piece.node, (size_t)piece.n * sizeof *piece.node);
        t.n += piece.n;
        while (depth && end[depth - 1] == i + 1)
            depth--, t.node[open[depth]].span = (uint8_t)(t.n - open[depth]);
    }
    *out = t;
    if (layout_depth(out) > LAYOUT_MAX_DEPTH)
        return status_set(c->err, ROSE_LIMIT, "a layout nests deeper than %d", LAYOUT_MAX_DEPTH);
    return ROSE_OK;
}

enum rose_status layout_compose(const struct layout *a, const struct layout *b, struct layout *out,
                                struct rose_error *err)
{
    struct composer c = {.err = err};
    struct layout t;
    coalesced(a, &c.a);
    ROSE_TRY(compose_into(&c, b, &t));
    int64_t last = 0, reach; /* the sum of all reaches has to fit as well */
    for (int i = 0; i < t.n; i++)
        if (!t.node[i].children && (__builtin_mul_overflow(t.node[i].shape - 1, t.node[i].stride, &reach) ||
                                    __builtin_add_overflow(last, reach, &last) || last == INT64_MAX))
            return status_set(err, ROSE_LIMIT, "an offset of the composed layout exceeds 63 bits");
    *out = t;
    return ROSE_OK;
}

enum rose_status layout_compose_modes(const struct layout *a, const struct layout *tiler, int n,
                                      struct layout *out, struct rose_error *err)
{
    struct layout m[LAYOUT_MAX_MODES];
    int rank = layout_rank(a);
    if (n < 1 || n > rank || rank > LAYOUT_MAX_MODES)
        return status_set(err, ROSE_INVALID, "a tiler of %d modes for a layout of %d", n, rank);
    for (int i = 0; i < rank; i++) {
        m[i] = layout_mode(a, i);
        if (i < n) ROSE_TRY(layout_compose(&m[i], &tiler[i], &m[i], err));
    }
    return layout_tuple(m, rank, out, err);
}

/* ---- complement and inverses ---- */

enum rose_status layout_complement(const struct layout *a, int64_t total, struct layout *out,
                                   struct rose_error *err)
{
    struct modes m, r = {0};
    int64_t current = 1; /* a and the complement so far reach 0…current-1 */
    m.n = 0;
    for (int i = 0; i < a->n; i++)
        if (!a->node[i].children && a->node[i].shape > 1 && a->node[i].stride > 0)
            m.s[m.n] = a->node[i].shape, m.d[m.n++] = a->node[i].stride;
    sort_by_stride(&m);
    for (int i = 0; i < m.n; i++) {
        if (m.d[i] % current)
            return status_set(err, ROSE_INVALID,
                              "no complement: stride %lld does not follow on the %lld offsets below it",
                              (long long)m.d[i], (long long)current);
        if (m.d[i] != current) r.s[r.n] = m.d[i] / current, r.d[r.n++] = current;
        if (__builtin_mul_overflow(m.s[i], m.d[i], &current))
            return status_set(err, ROSE_LIMIT, "the complement exceeds 63 bits");
    }
    int64_t rest = total / current + (total % current != 0);
    if (rest > 1) r.s[r.n] = rest, r.d[r.n++] = current;
    if (r.n >= LAYOUT_MAX_NODES)
        return status_set(err, ROSE_LIMIT, "the complement has more than %d modes", LAYOUT_MAX_NODES - 1);
    struct layout t = from_modes(&r);
    layout_coalesce(&t, out);
    return ROSE_OK;
}

void layout_right_inverse(const struct layout *a, struct layout *out)
{
    struct modes m, by_stride, r = {0};
    int64_t weight[LAYOUT_MAX_NODES], w = 1, current = 1;
    coalesced(a, &m);
    for (int i = 0; i < m.n; i++) weight[i] = w, w *= m.s[i];
    by_stride = m;
    /* The mode whose stride continues what is covered comes next; its digit weighs the sizes to its left. */
    for (int found = 1; found;) {
        found = 0;
        for (int i = 0; i < by_stride.n && !found; i++)
            if (by_stride.d[i] == current) {
                r.s[r.n] = m.s[i], r.d[r.n++] = weight[i];
                by_stride.d[i] = -1;
                found = !__builtin_mul_overflow(current, m.s[i], &current);
            }
    }
    struct layout t = from_modes(&r);
    layout_coalesce(&t, out);
}

enum rose_status layout_left_inverse(const struct layout *a, struct layout *out, struct rose_error *err)
{
    struct layout flat, pair[2];
    for (int i = 0; i < a->n; i++)
        if (!a->node[i].children && a->node[i].shape > 1 && a->node[i].stride == 0)
            return status_set(err, ROSE_INVALID,
                              "no left inverse: a mode of stride 0 maps several coordinates to one offset");
    layout_coalesce(a, &flat);
    pair[0] = flat;
    ROSE_TRY(layout_complement(&flat, 1, &pair[1], err));
    /* Together they reach every offset without a gap, so the right inverse covers them all. */
    ROSE_TRY(layout_tuple(pair, 2, &flat, err));
    layout_right_inverse(&flat, out);
    return ROSE_OK;
}

/* ---- divide and product ---- */

enum rose_status layout_logical_divide(const struct layout *a, const struct layout *b, struct layout *out,
                                       struct rose_error *err)
{
    struct layout pair[2] = {*b}, both;
    ROSE_TRY(layout_complement(b, layout_size(a), &pair[1], err));
    ROSE_TRY(layout_tuple(pair, 2, &both, err));
    return layout_compose(a, &both, out, err);
}

static enum rose_status divide_modes(const struct layout *a, const struct layout *tiler, int n,
                                     struct layout *tile, struct layout *rest, int *rests,
                                     struct rose_error *err)
{
    int rank = layout_rank(a);
    struct layout tiles[LAYOUT_MAX_MODES];
    if (n < 1 || n > rank || rank >= LAYOUT_MAX_MODES)
        return status_set(err, ROSE_INVALID, "a tiler of %d modes for a layout of %d", n, rank);
    for (int i = 0; i < rank; i++) {
        struct layout mode = layout_mode(a, i), divided;
        rest[i] = mode;
        if (i >= n) continue;
        ROSE_TRY(status_wrap(err, layout_logical_divide(&mode, &tiler[i], &divided, err), "mode %d", i));
        tiles[i] = layout_mode(&divided, 0);
        rest[i] = layout_mode(&divided, 1);
    }
    *rests = rank;
    return layout_tuple(tiles, n, tile, err);
}

enum rose_status layout_zipped_divide(const struct layout *a, const struct layout *tiler, int n,
                                      struct layout *out, struct rose_error *err)
{
    struct layout rest[LAYOUT_MAX_MODES], pair[2];
    int rests;
    ROSE_TRY(divide_modes(a, tiler, n, &pair[0], rest, &rests, err));
    ROSE_TRY(layout_tuple(rest, rests, &pair[1], err));
    return layout_tuple(pair, 2, out, err);
}

enum rose_status layout_tiled_divide(const struct layout *a, const struct layout *tiler, int n,
                                     struct layout *out, struct rose_error *err)
{
    struct layout all[LAYOUT_MAX_MODES + 1];
    int rests;
    ROSE_TRY(divide_modes(a, tiler, n, &all[0], all + 1, &rests, err));
    return layout_tuple(all, 1 + rests, out, err);
}

enum rose_status layout_logical_product(const struct layout *a, const struct layout *b, struct layout *out,
                                        struct rose_error *err)
{
    struct layout pair[2] = {*a}, around;
    int64_t total;
    if (__builtin_mul_overflow(layout_size(a), layout_cosize(b), &total))
        return status_set(err, ROSE_LIMIT, "the product exceeds 63 bits");
    ROSE_TRY(layout_complement(a, total, &around, err));
    ROSE_TRY(layout_compose(&around, b, &pair[1], err));
    return layout_tuple(pair, 2, out, err);
}

static enum rose_status product_by_rank(const struct layout *a, const struct layout *b, bool raked,
                                        struct layout *out, struct rose_error *err)
{
    struct layout product, modes[LAYOUT_MAX_MODES], one = leaf(1, 0);
    int ra = layout_rank(a), rb = layout_rank(b), rank = ROSE_MAX(ra, rb);
    if (rank > LAYOUT_MAX_MODES)
        return status_set(err, ROSE_LIMIT, "a product of more than %d modes", LAYOUT_MAX_MODES);
    ROSE_TRY(layout_logical_product(a, b, &product, err));
    struct layout repeat = layout_mode(&product, 1);
    /* A leaf b may have become a tuple; it stays one mode. */
    bool single = !b->node[0].children;
    for (int i = 0; i < rank; i++) {
        struct layout pa = i < ra ? layout_mode(a, i) : one,
                      pb = i < rb ? (single ? repeat : layout_mode(&repeat, i)) : one;
        struct layout pair[2] = {raked ? pb : pa, raked ? pa : pb};
        ROSE_TRY(layout_tuple(pair, 2, &modes[i], err));
    }
    return layout_tuple(modes, rank, out, err);
}

enum rose_status layout_blocked_product(const struct layout *a, const struct layout *b, struct layout *out,
                                        struct rose_error *err)
{
    return product_by_rank(a, b, false, out, err);
}

enum rose_status layout_raked_product(const struct layout *a, const struct layout *b, struct layout *out,
                                      struct rose_error *err)
{
    return product_by_rank(a, b, true, out, err);
}
