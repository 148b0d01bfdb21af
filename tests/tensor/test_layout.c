/* The layout algebra against its definitions, evaluated by brute force on random layouts, and worked
 * examples. */
#include "tensor/layout.h"
#include "test.h"

static uint64_t seed_ = 1;
static int64_t below(int64_t n)
{
    seed_ += 0x9E3779B97F4A7C15ull;
    uint64_t z = seed_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return (int64_t)((z ^ z >> 31) % (uint64_t)n);
}

static const char *show(const struct layout *a)
{
    static char text[4][1024];
    static int k;
    struct strbuf b = {0};
    layout_print(a, &b);
    char *out = text[k++ % 4];
    snprintf(out, 1024, "%s", b.p);
    strbuf_free(&b);
    return out;
}

static struct layout L(const char *text) {
    struct layout a = {.n = 1, .node[0] = {1, 0, 0, 1}};
    struct rose_error err = {0};
    CHECK_OK(layout_parse(str_of(text), &a, &err), err);
    return a;
}

/* The definition, written another way than layout_index: each tuple splits its coordinate by the sizes of its
   children. */
static int64_t
subtree_size(const struct layout *a, int at)
{
    int64_t size = 1;
    if (!a->node[at].children) return a->node[at].shape;
    for (int i = 0, c = at + 1; i < a->node[at].children; i++, c += a->node[c].span)
        size *= subtree_size(a, c);
    return size;
}
static int64_t brute(const struct layout *a, int at, int64_t c)
{
    if (!a->node[at].children) return c * a->node[at].stride;
    int64_t sum = 0;
    for (int i = 0, k = at + 1; i < a->node[at].children; i++, k += a->node[k].span) {
        int64_t size = subtree_size(a, k);
        sum += brute(a, k, c % size);
        c /= size;
    }
    return sum;
}

enum kind { ANY, COMPACT_POW2, ADMISSIBLE };

/* Random trees. COMPACT_POW2: a permuted bijection of powers of two. ADMISSIBLE: disjoint strides with holes.
 */
static void random_tree(struct layout *a, int depth, int64_t *budget, enum kind kind)
{
    int self = a->n++;
    a->node[self] = (struct layout_node){0};
    if (depth == 0 || below(3) == 0) {
        int64_t s = kind == COMPACT_POW2 ? INT64_C(1) << below(4) : 1 + below(5);
        if (s > *budget) s = 1;
        *budget /= s;
        a->node[self].shape = s, a->node[self].span = 1;
        a->node[self].stride = kind == ANY ? below(4) ? below(20) : 0 : 0;
        return;
    }
    a->node[self].children = (uint8_t)(1 + below(3));
    for (int i = 0; i < a->node[self].children; i++) random_tree(a, depth - 1, budget, kind);
    a->node[self].span = (uint8_t)(a->n - self);
}

static struct layout random_layout(enum kind kind, int64_t most)
{
    struct layout a = {0};
    int leaves[LAYOUT_MAX_NODES], n = 0;
    random_tree(&a, 2, &most, kind);
    if (kind == ANY) return a;
    for (int i = 0; i < a.n; i++)
        if (!a.node[i].children) leaves[n++] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)below(i + 1), t = leaves[i];
        leaves[i] = leaves[j], leaves[j] = t;
    }
    int64_t stride = 1;
    for (int i = 0; i < n; i++) {
        if (kind == ADMISSIBLE && below(3) == 0) stride *= 1 + below(4);
        a.node[leaves[i]].stride = stride;
        stride *= a.node[leaves[i]].shape;
    }
    return a;
}

#define FAIL(fmt, ...)                                                                                   \
    do {                                                                                                 \
        if (test_failures_++ < 10) fprintf(stderr, "%s:%d: " fmt "\n", __FILE__, __LINE__, __VA_ARGS__); \
        return;                                                                                          \
    } while (0)

static void same_function(const struct layout *a)
{
    struct strbuf text = {0};
    struct layout again, flat, modes;
    int64_t size = layout_size(a), most = 0;
    layout_print(a, &text);
    bool back = layout_parse(strbuf_str(&text), &again, NULL) == ROSE_OK && layout_equal(a, &again);
    strbuf_free(&text);
    if (!back) FAIL("%s does not read back", show(a));
    layout_coalesce(a, &flat);
    layout_coalesce_modes(a, &modes);
    layout_flatten(a, &again);
    if (layout_rank(&modes) != layout_rank(a)) FAIL("%s: rank of %s", show(a), show(&modes));
    for (int64_t i = 0; i < size; i++) {
        int64_t want = brute(a, 0, i);
        most = ROSE_MAX(most, want);
        if (layout_index(a, i) != want || brute(&flat, 0, i) != want || brute(&modes, 0, i) != want ||
            brute(&again, 0, i) != want)
            FAIL("%s at %lld", show(a), (long long)i);
    }
    for (int64_t i = size; i < size + 5; i++)
        if (layout_index(a, i) != layout_index(&flat, i))
            FAIL("%s past its size at %lld", show(a), (long long)i);
    if (layout_cosize(a) != most + 1) FAIL("cosize of %s", show(a));
    int64_t s[LAYOUT_MAX_NODES], d[LAYOUT_MAX_NODES];
    for (int n = layout_leaves(&flat, s, d), i = 1; i < n; i++)
        if (s[i] == 1 || s[i - 1] * d[i - 1] == d[i]) FAIL("%s is not coalesced", show(&flat));
}

static int composed_, composed_pow2_;

/* When R = A o B is given it is right; when refused for small layouts, no layout of B's shape is the
 * function. */
static void composition(const struct layout *a, const struct layout *b, bool must)
{
    struct layout r, flat_a;
    struct rose_error err = {0};
    layout_coalesce(a, &flat_a);
    if (layout_compose(a, b, &r, &err) != ROSE_OK) {
        if (must) FAIL("%s o %s: %s", show(a), show(b), err.message);
        return;
    }
    composed_++, composed_pow2_ += must;
    if (layout_size(&r) != layout_size(b) || layout_rank(&r) < 1) FAIL("%s o %s: size", show(a), show(b));
    if (b->node[0].children && layout_rank(&r) != layout_rank(b))
        FAIL("%s o %s: rank of %s", show(a), show(b), show(&r));
    for (int64_t i = 0; i < layout_size(b); i++)
        if (brute(&r, 0, i) != layout_index(&flat_a, brute(b, 0, i)))
            FAIL("%s o %s = %s at %lld", show(a), show(b), show(&r), (long long)i);
}

static void complement(const struct layout *a, int64_t total)
{
    static uint8_t seen[1 << 16];
    struct layout c, part = *a;
    struct rose_error err = {0};
    if (layout_complement(a, total, &c, &err) != ROSE_OK) FAIL("complement of %s: %s", show(a), err.message);
    int64_t cover = ROSE_MAX(total, layout_cosize(a)), na = layout_size(&part), nc = layout_size(&c);
    if (na * nc > (int64_t)sizeof seen) return;
    memset(seen, 0, sizeof seen);
    for (int64_t j = 0; j < nc; j++) {
        if (j && brute(&c, 0, j) <= brute(&c, 0, j - 1)) FAIL("complement %s does not increase", show(&c));
        for (int64_t i = 0; i < na; i++) {
            int64_t at = brute(a, 0, i) + brute(&c, 0, j);
            if (at >= (int64_t)sizeof seen) continue;
            if (seen[at]++) FAIL("(%s, %s) meets twice at %lld", show(a), show(&c), (long long)at);
        }
    }
    for (int64_t i = 0; i < cover && i < (int64_t)sizeof seen; i++)
        if (!seen[i]) FAIL("(%s, %s) misses %lld", show(a), show(&c), (long long)i);
}

static void inverses(const struct layout *a, bool injective)
{
    struct layout r;
    struct rose_error err = {0};
    layout_right_inverse(a, &r);
    int64_t n = layout_size(&r);
    for (int64_t i = 0; i < n; i++)
        if (layout_index(a, brute(&r, 0, i)) != i)
            FAIL("right inverse %s of %s at %lld", show(&r), show(a), (long long)i);
    if (!injective) return;
    /* Maximal: no coordinate reaches offset n. */
    for (int64_t i = 0; i < layout_size(a); i++)
        if (brute(a, 0, i) == n) FAIL("right inverse %s of %s stops early", show(&r), show(a));
    if (layout_left_inverse(a, &r, &err) != ROSE_OK) FAIL("left inverse of %s: %s", show(a), err.message);
    for (int64_t i = 0; i < layout_size(a); i++)
        if (layout_index(&r, brute(a, 0, i)) != i)
            FAIL("left inverse %s of %s at %lld", show(&r), show(a), (long long)i);
}

static void divide(const struct layout *a, const struct layout *b)
{
    struct layout d, c, r, flat;
    layout_coalesce(a, &flat);
    if (layout_logical_divide(a, b, &d, NULL) != ROSE_OK) return;
    if (layout_complement(b, layout_size(a), &c, NULL) != ROSE_OK) FAIL("%s", "divided without a complement");
    composed_++;
    for (int64_t j = 0; j < layout_size(&c); j++)
        for (int64_t i = 0; i < layout_size(b); i++) {
            int64_t at = brute(b, 0, i) + brute(&c, 0, j), got = brute(&d, 0, i + j * layout_size(b));
            if (got != layout_index(&flat, at)) FAIL("%s / %s = %s", show(a), show(b), show(&d));
        }
    if (layout_zipped_divide(a, b, 1, &r, NULL) == ROSE_OK && layout_rank(a) == 1 && !a->node[0].children)
        for (int64_t i = 0; i < layout_size(&d); i++)
            if (brute(&r, 0, i) != brute(&d, 0, i)) FAIL("zipped %s / %s", show(a), show(b));
}

static void product(const struct layout *a, const struct layout *b)
{
    struct layout p, bl, rk, c;
    if (layout_logical_product(a, b, &p, NULL) != ROSE_OK) return;
    int64_t na = layout_size(a), nb = layout_size(b);
    if (layout_complement(a, na * layout_cosize(b), &c, NULL) != ROSE_OK)
        FAIL("%s", "product without a complement");
    composed_++;
    for (int64_t j = 0; j < nb; j++)
        for (int64_t i = 0; i < na; i++)
            if (brute(&p, 0, i + j * na) != brute(a, 0, i) + layout_index(&c, brute(b, 0, j)))
                FAIL("%s x %s = %s", show(a), show(b), show(&p));
    struct layout unit = {.n = 1, .node[0] = {1, 0, 0, 1}};
    if (layout_rank(a) > 2 || layout_rank(b) > 2) return;
    if (layout_blocked_product(a, b, &bl, NULL) != ROSE_OK ||
        layout_raked_product(a, b, &rk, NULL) != ROSE_OK)
        FAIL("%s", "no blocked product");
    struct layout am[2] = {layout_mode(a, 0), layout_rank(a) > 1 ? layout_mode(a, 1) : unit};
    struct layout bm[2] = {layout_mode(b, 0), layout_rank(b) > 1 ? layout_mode(b, 1) : unit};
    int64_t a0 = layout_size(&am[0]), a1 = layout_size(&am[1]), b0 = layout_size(&bm[0]),
            b1 = layout_size(&bm[1]);
    for (int64_t k = 0; k < a0 * a1 * b0 * b1; k++) {
        int64_t i0 = k % a0, i1 = k / a0 % a1, j0 = k / (a0 * a1) % b0, j1 = k / (a0 * a1 * b0);
        int64_t want = brute(&am[0], 0, i0) + brute(&am[1], 0, i1) +
                       layout_index(&c, brute(&bm[0], 0, j0) + brute(&bm[1], 0, j1));
        int64_t blocked[2] = {i0 + a0 * j0, i1 + a1 * j1}, raked[2] = {j0 + b0 * i0, j1 + b1 * i1};
        if (layout_index_at(&bl, blocked, layout_rank(&bl)) != want ||
            layout_index_at(&rk, raked, layout_rank(&rk)) != want)
            FAIL("blocked or raked %s x %s", show(a), show(b));
    }
}

TEST(random_layouts)
{
    composed_ = composed_pow2_ = 0;
    for (int k = 0; k < 100000 && test_failures_ < 10; k++) {
        struct layout a = random_layout(ANY, 96), b = random_layout(ANY, 24),
                      p = random_layout(COMPACT_POW2, 64), q = random_layout(COMPACT_POW2, 64),
                      h = random_layout(ADMISSIBLE, 24), one;
        switch (k % 5) {
        case 0: same_function(&a), inverses(&a, false); break;
        case 1: composition(&a, &b, false), composition(&h, &b, false); break;
        case 2:
            /* Permuted powers of two always compose when the right one stays within the left. */
            if (layout_size(&q) <= layout_size(&p)) composition(&p, &q, true);
            divide(&p, &q);
            one = layout_mode(&p, 0);
            divide(&a, &one);
            break;
        case 3: complement(&h, 1 + below(400)), inverses(&h, true); break;
        default: product(&h, &b), k % 4 ? (void)0 : product(&p, &q);
        }
    }
    CHECK(composed_ > 30000);
    CHECK(composed_pow2_ > 8000);
}

TEST(worked_examples)
{
    struct rose_error err = {0};
    struct layout a, t[2], tile[2];
    a = L("((2,4),8):((1,16),2)");
    CHECK_INT(layout_size(&a), 64);
    CHECK_INT(layout_cosize(&a), 64);
    CHECK_INT(layout_index_at(&a, (int64_t[]){5, 3}, 2), 1 + 2 * 16 + 3 * 2);
    a = L("(8,16)");
    CHECK_STR(show(&a), "(8,16):(1,8)");
    layout_coalesce(&a, &a);
    CHECK_STR(show(&a), "128:1");
    t[0] = L("(6,2):(8,2)"), t[1] = L("(4,3):(3,1)");
    CHECK_OK(layout_compose(&t[0], &t[1], &a, &err), err);
    CHECK_STR(show(&a), "((2,2),3):((24,2),8)");
    t[0] = L("20:2"), t[1] = L("(5,4):(4,1)");
    CHECK_OK(layout_compose(&t[0], &t[1], &a, &err), err);
    CHECK_STR(show(&a), "(5,4):(8,2)");
    t[0] = L("4:2");
    CHECK_OK(layout_complement(&t[0], 24, &a, &err), err);
    CHECK_STR(show(&a), "(2,3):(1,8)");
    t[0] = L("(4,2,3):(2,1,8)"), t[1] = L("4:2");
    CHECK_OK(layout_logical_divide(&t[0], &t[1], &a, &err), err);
    CHECK_STR(show(&a), "((2,2),(2,3)):((4,1),(2,8))");
    /* 9 x 32 by tiles <3:3, (2,4):(1,8)>. */
    t[0] = L("(9,(4,8)):(59,(13,1))"), tile[0] = L("3:3"), tile[1] = L("(2,4):(1,8)");
    CHECK_OK(layout_zipped_divide(&t[0], tile, 2, &a, &err), err);
    CHECK_STR(show(&a), "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))");
    t[0] = L("(2,2):(4,1)"), t[1] = L("6:1");
    CHECK_OK(layout_logical_product(&t[0], &t[1], &a, &err), err);
    CHECK_STR(show(&a), "((2,2),(2,3)):((4,1),(2,8))");
    t[0] = L("(2,5):(5,1)"), t[1] = L("(3,4):(1,3)");
    CHECK_OK(layout_blocked_product(&t[0], &t[1], &a, &err), err);
    CHECK_STR(show(&a), "((2,3),(5,4)):((5,10),(1,30))");
    CHECK_OK(layout_raked_product(&t[0], &t[1], &a, &err), err);
    CHECK_STR(show(&a), "((3,2),(4,5)):((10,5),(30,1))");
}

TEST(refusals)
{
    static const char *bad[] = {"",
                                "(",
                                "(8,16",
                                "8:",
                                "8:1:1",
                                "(8,16):16",
                                "(8,16):(1,8,1)",
                                "(8,(2,2)):((1,2),8)",
                                "8:1x",
                                "0:1",
                                "-3:1",
                                "(8,,2)",
                                "()",
                                "9223372036854775807:2",
                                "(9223372036854775807,2):(0,0)",
                                "99999999999999999999:1",
                                "(((((((((1)))))))))",
                                "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"};
    struct layout a, b;
    struct rose_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct rose_error){0};
        CHECK(layout_parse(str_of(bad[i]), &a, &err) != ROSE_OK);
        CHECK(err.message[0]);
    }
    /* Deep text does not recurse deeply. */
    static char deep[100000];
    memset(deep, '(', sizeof deep - 1);
    CHECK_INT(layout_parse(str_of(deep), &a, &err), ROSE_LIMIT);
    a = L("(4,6):(1,10)"), b = L("4:3");
    CHECK_INT(layout_compose(&a, &b, &b, &err), ROSE_INVALID);
    a = L("(2,2):(1,10)"), b = L("(2,2):(1,1)"); /* 1 + 1 carries */
    CHECK_INT(layout_compose(&a, &b, &b, &err), ROSE_INVALID);
    a = L("(2,2):(2,3)");
    CHECK_INT(layout_complement(&a, 10, &b, &err), ROSE_INVALID);
    a = L("4:0");
    CHECK_INT(layout_left_inverse(&a, &b, &err), ROSE_INVALID);
    a = L("4:2305843009213693951"), b = L("2:5");
    CHECK_INT(layout_compose(&a, &b, &b, &err), ROSE_LIMIT);
}

TEST(tilers)
{
    struct rose_error err = {0};
    struct layout t[LAYOUT_MAX_MODES];
    int n = 0;
    CHECK_OK(layout_parse_tiler(str_of("<3:3, (2,4):(1,8)>"), t, &n, &err), err);
    CHECK_INT(n, 2);
    CHECK_STR(show(&t[1]), "(2,4):(1,8)");
    CHECK_OK(layout_parse_tiler(str_of("4,8"), t, &n, &err), err);
    CHECK_INT(n, 2);
    CHECK_STR(show(&t[1]), "8:1");
    CHECK(layout_parse_tiler(str_of("<4"), t, &n, &err) == ROSE_INVALID);
    CHECK(layout_parse_tiler(str_of("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"), t, &n, &err) == ROSE_LIMIT);
    CHECK(layout_parse(str_of("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), t, &err) == ROSE_LIMIT && strstr(err.message, "more than 16 modes"));
    struct layout a = L("(64,32):(32,1)"), d, tile[2] = {L("16"), L("8")};
    CHECK_OK(layout_tiled_divide(&a, tile, 2, &d, &err), err);
    CHECK_STR(show(&d), "((16,8),4,4):((32,1),512,8)");
    CHECK_OK(layout_compose_modes(&a, tile, 2, &d, &err), err);
    CHECK_STR(show(&d), "(16,8):(32,1)");
    CHECK(layout_compose_modes(&a, t, 3, &d, &err) == ROSE_INVALID);
}

TEST(vectors)
{
    struct layout a = L("(8,16):(16,1)"), b = L("(8,16):(1,8)"), c = L("((4,2),16):((1,64),4)");
    CHECK_INT(layout_contiguous(&a), 1);
    CHECK_INT(layout_contiguous(&b), 128);
    CHECK_INT(layout_common_vector(&a, &a), 128);
    CHECK_INT(layout_common_vector(&a, &b), 1);
    CHECK_INT(layout_common_vector(&b, &c), 4);
    CHECK_INT(layout_vector_width(&b, 16, 16, 16), 8);
    CHECK_INT(layout_vector_width(&b, 16, 8, 16), 4);
    CHECK_INT(layout_vector_width(&b, 4, 32, 32), 64);
    CHECK_INT(layout_vector_width(&c, 16, 16, 16), 4);
    c = L("(12,5):(1,14)");
    CHECK_INT(layout_vector_width(&c, 32, 16, 16), 2);
    /* Brute: the longest run of offsets that both reach at the same coordinates. */
    for (int k = 0; k < 2000; k++) {
        struct layout p = random_layout(COMPACT_POW2, 64), q = random_layout(COMPACT_POW2, 64);
        int64_t n = ROSE_MIN(layout_size(&p), layout_size(&q)), v = 0, from[64] = {0};
        if (layout_size(&p) != layout_size(&q)) continue;
        for (int64_t i = 0; i < n; i++) from[brute(&q, 0, i)] = i;
        while (v < n && brute(&p, 0, from[v]) == v) v++;
        int64_t got = layout_common_vector(&p, &q);
        /* p's modes may end inside q's run; a run of whole modes is what a vector can use. */
        if (got > v || (v == n && got != n)) {
            CHECK_INT(got, v);
            break;
        }
    }
}

TEST(swizzles)
{
    struct rose_error err = {0};
    struct layout_swizzle s;
    int conflicts, cycles, ideal;
    CHECK_OK(layout_swizzle_parse(str_of("<3,4,3>"), &s, &err), err);
    CHECK_INT(layout_swizzle_apply(s, 0x80), 0x90);
    CHECK(layout_swizzle_parse(str_of("<3,4,2>"), &s, &err) == ROSE_INVALID);
    CHECK(layout_swizzle_parse(str_of("<3,4>"), &s, &err) == ROSE_INVALID);
    for (int k = 0; k < 20000; k++) {
        struct layout_swizzle w = {(uint8_t)below(5), (uint8_t)below(6),
                                   (int8_t)(below(2) ? 4 + below(4) : -4 - below(4))};
        int64_t x = below(1 << 20);
        if (layout_swizzle_apply(w, layout_swizzle_apply(w, x)) != x) CHECK(!"a swizzle is its own inverse");
    }
    /* Reading 8 rows x 16 bytes down a tile of 64 bf16 (128-byte rows), as ldmatrix does: 8 cycles for 8
     * lanes without a swizzle. */
    struct layout_access column = {L("8:64"), 2, 8}, row = {L("(8,4):(8,64)"), 2, 8};
    CHECK_OK(layout_access_cycles(&column, (struct layout_swizzle){0}, &cycles, &ideal, &err), err);
    CHECK_INT(cycles, 8);
    CHECK_INT(ideal, 1);
    CHECK_OK(layout_swizzle_find((struct layout_access[]){column, row}, 2, &s, &conflicts, &err), err);
    CHECK_INT(conflicts, 0);
    CHECK_INT(s.bits, 3);
    CHECK_INT(s.base, 4);
    CHECK_INT(s.shift, 3);
    /* 64-byte rows need two bits, 32-byte rows one. */
    column.lanes = L("8:32"), row.lanes = L("(4,8):(8,32)");
    CHECK_OK(layout_swizzle_find((struct layout_access[]){column, row}, 2, &s, &conflicts, &err), err);
    CHECK_INT(conflicts, 0);
    CHECK_INT(s.bits, 2);
    CHECK_INT(s.base, 4);
    CHECK_INT(s.shift, 3);
    column.lanes = L("8:16"), row.lanes = L("(2,16):(8,16)");
    CHECK_OK(layout_swizzle_find((struct layout_access[]){column, row}, 2, &s, &conflicts, &err), err);
    CHECK_INT(conflicts, 0);
    CHECK_INT(s.bits, 1);
    CHECK_INT(s.base, 4);
    CHECK_INT(s.shift, 3);
    /* A 32 x 32 float transpose: one word a lane, down a column. */
    struct layout_access transpose[2] = {{L("32:32"), 4, 1}, {L("32:1"), 4, 1}};
    CHECK_OK(layout_swizzle_find(transpose, 2, &s, &conflicts, &err), err);
    CHECK_INT(conflicts, 0);
    CHECK_INT(s.bits, 5);
    CHECK_INT(layout_bank_cycles((int64_t[]){0, 0, 0, 0}, 4, 4), 1);       /* broadcast */
    CHECK_INT(layout_bank_cycles((int64_t[]){0, 128, 256, 384}, 4, 4), 4); /* one bank */
    CHECK_INT(layout_bank_cycles((int64_t[]){0}, 1, 3), -1);
    /* Composed layouts evaluate like their parts. */
    struct layout_swizzled z = {{3, 4, 3}, 16, L("(8,64):(64,1)")}, zb;
    struct layout b = L("(4,8):(2,64)");
    CHECK_OK(layout_swizzled_compose(&z, &b, &zb, &err), err);
    for (int64_t i = 0; i < 32; i++)
        CHECK_INT(layout_swizzled_index(&zb, i), layout_swizzled_index(&z, layout_index(&b, i)));
}

TEST(tma_boxes)
{
    struct rose_error err = {0};
    struct layout_tma t;
    struct layout a =
        L("(4096,7168):(7168,1)"); /* K-major weights, tile 128 x 64 of bf16, 128-byte swizzle */
    CHECK_OK(layout_tma_box(&a, 2, (int64_t[]){128, 64}, 2, 128, &t, &err), err);
    CHECK_INT(t.rank, 2);
    CHECK_INT(t.dim[0], 7168);
    CHECK_INT(t.dim[1], 4096);
    CHECK_INT(t.stride_bytes[1], 14336);
    CHECK_INT(t.box[0], 64);
    CHECK_INT(t.box[1], 128);
    CHECK_INT(t.copies[0], 1);
    CHECK_INT(t.copies[1], 1);
    CHECK_OK(layout_tma_box(&a, 2, (int64_t[]){512, 256}, 2, 128, &t, &err), err);
    CHECK_INT(t.box[0], 64);
    CHECK_INT(t.copies[0], 4);
    CHECK_INT(t.box[1], 256);
    CHECK_INT(t.copies[1], 2);
    /* Pages of 16 x 64: columns nest. One box takes a page; joined to one run of 1024 it would take four. */
    a = L("(64,(16,1000)):(16,(1,1024))");
    CHECK_OK(layout_tma_box(&a, 2, (int64_t[]){64, 16}, 2, 0, &t, &err), err);
    CHECK_INT(t.rank, 2);
    CHECK_INT(t.dim[0], 16);
    CHECK_INT(t.box[0], 16);
    CHECK_INT(t.dim[1], 64000);
    CHECK_INT(t.box[1], 64);
    CHECK_INT(t.copies[1], 1);
    CHECK_INT(layout_tma_box(&a, 2, (int64_t[]){64, 24}, 2, 0, &t, &err), ROSE_UNSUPPORTED);
    a = L("(128,100):(100,1)"); /* 200-byte rows */
    CHECK_INT(layout_tma_box(&a, 2, (int64_t[]){8, 50}, 2, 0, &t, &err), ROSE_UNSUPPORTED);
    a = L("(128,128):(256,2)");
    CHECK_INT(layout_tma_box(&a, 2, (int64_t[]){8, 64}, 2, 0, &t, &err), ROSE_UNSUPPORTED);
}

TEST(drawing)
{
    struct rose_error err = {0};
    struct strbuf b = {0};
    CHECK_OK(layout_draw_command(str_of("((2,2),4):((1,8),2)"), true, false, &b, &err), err);
    CHECK(strstr(b.p, "size           16\n") != NULL);
    CHECK(strstr(b.p, "1 |  1  3  5  7 |\n  +-------------+\n2 |  8 10 12 14 |\n") != NULL);
    strbuf_free(&b);
    CHECK_OK(layout_draw_command(str_of("<1,0,2>(4,4):(1,4)"), true, false, &b, &err), err);
    CHECK(strstr(b.p, "0 |  0  5  8 13 |\n") != NULL);
    strbuf_free(&b);
    CHECK_OK(layout_draw_command(str_of("(1000000,1000000,100)"), true, true, &b, &err), err);
    CHECK(b.n < 2000000 &&
          strstr(b.p, "drawn: 64 x 64 of 1000000 x 1000000 cells, 16 of 100 tables") != NULL);
    strbuf_free(&b);
    CHECK_INT(layout_draw_command(str_of("<1,0"), true, true, &b, &err), ROSE_INVALID);
    strbuf_free(&b);
}

TEST_MAIN(CASE(random_layouts), CASE(worked_examples), CASE(refusals), CASE(tilers), CASE(vectors),
          CASE(swizzles), CASE(tma_boxes), CASE(drawing))
