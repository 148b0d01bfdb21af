/* What the hardware makes of a layout: vector widths, shared-memory banks, swizzles, TMA boxes. */
#include "tensor/layout.h"

/* ---- swizzles ---- */

enum rose_status layout_swizzle_check(struct layout_swizzle s, struct rose_error *err)
{
    int distance = s.shift < 0 ? -s.shift : s.shift;
    if (s.bits && (distance < s.bits || s.base + s.bits + distance > 62))
        return status_set(err, ROSE_INVALID,
                          "swizzle <%d,%d,%d>: the shift must be at least the bits, and all bits below 62",
                          s.bits, s.base, s.shift);
    return ROSE_OK;
}

int64_t layout_swizzle_apply(struct layout_swizzle s, int64_t offset)
{
    if (s.bits == 0) return offset;
    uint64_t x = (uint64_t)offset, mask = ((uint64_t)1 << s.bits) - 1;
    if (s.shift >= 0) return (int64_t)(x ^ (x >> s.shift & mask << s.base));
    return (int64_t)(x ^ (x & mask << s.base) << -s.shift);
}

enum rose_status layout_swizzle_parse(struct str text, struct layout_swizzle *out, struct rose_error *err)
{
    int64_t v[3] = {0};
    size_t at = 1;
    bool ok = text.n > 2 && text.p[0] == '<' && text.p[text.n - 1] == '>';
    for (int i = 0; ok && i < 3; i++) {
        struct str rest = {text.p + at, text.n - 1 - at};
        ptrdiff_t comma = str_find(rest, STR(","), 0);
        struct str number = {rest.p, i < 2 && comma >= 0 ? (size_t)comma : rest.n};
        ok = (i == 2 || comma >= 0) && str_to_i64(number, &v[i]) && v[i] >= (i == 2 ? -62 : 0) && v[i] <= 62;
        at += number.n + (i < 2);
    }
    if (!ok)
        return status_set(err, ROSE_INVALID,
                          "swizzle '" STR_FMT "': expected <bits,base,shift>, for instance <3,4,3>",
                          (int)ROSE_MIN(text.n, 100), text.p);
    *out = (struct layout_swizzle){(uint8_t)v[0], (uint8_t)v[1], (int8_t)v[2]};
    return layout_swizzle_check(*out, err);
}

int64_t layout_swizzled_index(const struct layout_swizzled *a, int64_t coordinate)
{
    return layout_swizzle_apply(
        a->swizzle, (int64_t)((uint64_t)a->offset + (uint64_t)layout_index(&a->layout, coordinate)));
}

enum rose_status layout_swizzled_compose(const struct layout_swizzled *a, const struct layout *b,
                                         struct layout_swizzled *out, struct rose_error *err)
{
    struct layout inner;
    ROSE_TRY(layout_compose(&a->layout, b, &inner, err));
    *out = (struct layout_swizzled){a->swizzle, a->offset, inner};
    return ROSE_OK;
}

/* ---- vectors ---- */

int64_t layout_contiguous(const struct layout *a)
{
    struct layout flat;
    layout_coalesce(a, &flat);
    const struct layout_node *first = &flat.node[flat.node[0].children ? 1 : 0];
    return first->stride == 1 ? first->shape : 1;
}

/* Keep the first n leaves of a coalesced layout. */
static struct layout first_modes(const struct layout *flat, int n)
{
    struct layout t = *flat;
    if (!flat->node[0].children) return t;
    t.n = n + 1;
    t.node[0].children = (uint8_t)n;
    t.node[0].span = (uint8_t)(n + 1);
    return t;
}

int64_t layout_common_vector(const struct layout *a, const struct layout *b)
{
    struct layout inverse, common;
    layout_right_inverse(b, &inverse);
    for (int n = layout_rank(&inverse); n > 0; n--) {
        struct layout part = first_modes(&inverse, n);
        if (layout_compose(a, &part, &common, NULL) != ROSE_OK) continue;
        return layout_contiguous(&common);
    }
    return 1;
}

int layout_vector_width(const struct layout *a, int elem_bits, int base_bytes, int max_bytes)
{
    int64_t s[LAYOUT_MAX_NODES], d[LAYOUT_MAX_NODES], run = layout_contiguous(a);
    struct layout flat;
    layout_coalesce(a, &flat);
    int n = layout_leaves(&flat, s, d), width = 1;
    if (elem_bits < 1 || base_bytes < 1 || max_bytes < 1) return 1;
    for (int w = 2; w <= 1024; w *= 2) {
        int64_t bits = (int64_t)w * elem_bits;
        bool ok =
            run % w == 0 && bits <= (int64_t)max_bytes * 8 && (bits % 8 != 0 || base_bytes % (bits / 8) == 0);
        for (int i = 0; ok && i < n; i++) ok = d[i] == 1 || d[i] % w == 0;
        if (ok)
            width = w;
        else
            break;
    }
    return width;
}

/* ---- shared-memory banks ---- */

enum { BANKS = 32, WORD = 4, LANES = 32 };

int layout_bank_cycles(const int64_t *byte_offset, int lanes, int bytes)
{
    int group = bytes <= WORD ? LANES : LANES * WORD / bytes, cycles = 0;
    if (lanes < 1 || lanes > LANES || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8 && bytes != 16))
        return -1;
    for (int from = 0; from < lanes; from += group) {
        int64_t words[BANKS][LANES * WORD];
        int count[BANKS] = {0}, most = 0;
        for (int lane = from; lane < ROSE_MIN(from + group, lanes); lane++)
            for (int64_t w = byte_offset[lane] / WORD; w <= (byte_offset[lane] + bytes - 1) / WORD; w++) {
                int bank = (int)((uint64_t)w % BANKS), k = 0;
                while (k < count[bank] && words[bank][k] != w) k++;
                if (k == count[bank]) words[bank][count[bank]++] = w;
                most = ROSE_MAX(most, count[bank]);
            }
        cycles += most;
    }
    return cycles;
}

static enum rose_status access_check(const struct layout_access *a, struct rose_error *err)
{
    int64_t bytes = (int64_t)a->elem_bytes * a->vector;
    if (a->elem_bytes < 1 || a->vector < 1 || bytes > 16 || (bytes & (bytes - 1)) ||
        layout_size(&a->lanes) > LANES || layout_cosize(&a->lanes) > INT64_MAX / 32)
        return status_set(err, ROSE_INVALID,
                          "a shared-memory access has 1 to 32 lanes of 1, 2, 4, 8 or 16 bytes");
    return ROSE_OK;
}

static int access_cycles(const struct layout_access *a, struct layout_swizzle s)
{
    int64_t at[LANES];
    int lanes = (int)layout_size(&a->lanes);
    for (int i = 0; i < lanes; i++)
        at[i] = layout_swizzle_apply(s, layout_index(&a->lanes, i) * a->elem_bytes);
    return layout_bank_cycles(at, lanes, a->elem_bytes * a->vector);
}

/* Lower bound: every bank word that the lanes of a group ask for, spread evenly. Broadcast words count once.
 */
static int access_ideal(const struct layout_access *a)
{
    int64_t seen[LANES * WORD];
    int lanes = (int)layout_size(&a->lanes), bytes = a->elem_bytes * a->vector, cycles = 0;
    int group = bytes <= WORD ? LANES : LANES * WORD / bytes;
    for (int from = 0; from < lanes; from += group) {
        int n = 0;
        for (int lane = from; lane < ROSE_MIN(from + group, lanes); lane++) {
            int64_t byte = layout_index(&a->lanes, lane) * a->elem_bytes;
            for (int64_t w = byte / WORD; w <= (byte + bytes - 1) / WORD; w++) {
                int k = 0;
                while (k < n && seen[k] != w) k++;
                if (k == n) seen[n++] = w;
            }
        }
        cycles += (n + BANKS - 1) / BANKS;
    }
    return cycles;
}

enum rose_status layout_access_cycles(const struct layout_access *access, struct layout_swizzle s,
                                      int *cycles, int *ideal, struct rose_error *err)
{
    ROSE_TRY(access_check(access, err));
    ROSE_TRY(layout_swizzle_check(s, err));
    *cycles = access_cycles(access, s);
    *ideal = access_ideal(access);
    return ROSE_OK;
}

/* The candidates are few: a swizzle that matters moves chunks within 128 bytes of banks (base + bits <= 7),
 * and chunks stay whole for the widest access (base >= log2 of its bytes). Source bits come from above the
 * bank bits, where rows differ. */
enum rose_status layout_swizzle_find(const struct layout_access *accesses, int n, struct layout_swizzle *out,
                                     int *conflicts, struct rose_error *err)
{
    int ideal = 0, best = 0, chunk = 0;
    if (n < 1) return status_set(err, ROSE_INVALID, "no access to find a swizzle for");
    for (int i = 0; i < n; i++) {
        ROSE_TRY(access_check(&accesses[i], err));
        ideal += access_ideal(&accesses[i]);
        best += access_cycles(&accesses[i], (struct layout_swizzle){0});
        while (1 << chunk < accesses[i].elem_bytes * accesses[i].vector) chunk++;
    }
    *out = (struct layout_swizzle){0};
    for (int bits = 1; bits + chunk <= 7 && best > ideal; bits++)
        for (int shift = bits; shift <= 12 && best > ideal; shift++)
            for (int base = 7 - bits; base >= chunk && best > ideal; base--) {
                struct layout_swizzle s = {(uint8_t)bits, (uint8_t)base, (int8_t)shift};
                int total = 0;
                for (int i = 0; i < n; i++) total += access_cycles(&accesses[i], s);
                if (total < best) best = total, *out = s;
            }
    *conflicts = best - ideal;
    return ROSE_OK;
}

/* ---- TMA ---- */

static const int64_t TMA_BOX = 256, TMA_SIZE = INT64_C(1) << 32;

struct tma_dim {
    int64_t size, stride, box; /* elements */
};

/* Tile of t elements along one top-level mode: its leaves from the fastest on, each taken whole until t is
 * used up. */
static enum rose_status tma_mode(const struct layout *mode, int64_t t, struct tma_dim *dims, int *n,
                                 struct rose_error *err)
{
    int64_t s[LAYOUT_MAX_NODES], d[LAYOUT_MAX_NODES], left = t;
    struct layout flat;
    layout_coalesce(mode, &flat);
    int leaves = layout_leaves(&flat, s, d);
    for (int i = 0; i < leaves; i++) {
        if (*n == LAYOUT_MAX_NODES)
            return status_set(err, ROSE_LIMIT, "the tensor has too many modes for TMA");
        int64_t box = left;
        if (i < leaves - 1 && left >= s[i]) {
            if (left % s[i])
                return status_set(err, ROSE_UNSUPPORTED,
                                  "TMA: a tile of %lld does not end at a border of the nested mode %lld:%lld",
                                  (long long)t, (long long)s[i], (long long)d[i]);
            box = s[i];
        } else if (i < leaves - 1 && left > 1 && s[i] % left) {
            return status_set(err, ROSE_UNSUPPORTED,
                              "TMA: a tile of %lld does not divide the nested mode %lld:%lld", (long long)t,
                              (long long)s[i], (long long)d[i]);
        }
        left /= box;
        dims[(*n)++] = (struct tma_dim){s[i], d[i], box};
    }
    return ROSE_OK;
}

/* Sort by stride; drop sizes of 1; join neighbours that are one contiguous run in tensor and box, as far as
 * one box dimension may be long (row: of dimension 0), so that joining never makes more copies. */
static int tma_merge(struct tma_dim *dims, int n, int64_t row)
{
    int kept = 0;
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && dims[j].stride < dims[j - 1].stride; j--) {
            struct tma_dim t = dims[j];
            dims[j] = dims[j - 1], dims[j - 1] = t;
        }
    for (int i = 0; i < n; i++) {
        struct tma_dim *last = kept ? &dims[kept - 1] : NULL;
        if (dims[i].size == 1 && dims[i].box == 1) continue;
        bool run = last && last->box == last->size && dims[i].stride == last->size * last->stride &&
                   last->box * dims[i].box <= (kept == 1 ? row : TMA_BOX) &&
                   dims[i].size <= TMA_SIZE / last->size;
        if (run)
            last->box *= dims[i].box, last->size *= dims[i].size;
        else
            dims[kept++] = dims[i];
    }
    return kept;
}

enum rose_status layout_tma_box(const struct layout *tensor, int elem_bytes, const int64_t *tile, int modes,
                                int swizzle_bytes, struct layout_tma *out, struct rose_error *err)
{
    struct tma_dim dims[LAYOUT_MAX_NODES];
    int n = 0;
    if (elem_bytes != 1 && elem_bytes != 2 && elem_bytes != 4 && elem_bytes != 8)
        return status_set(err, ROSE_INVALID, "TMA: elements of %d bytes", elem_bytes);
    if (swizzle_bytes != 0 && swizzle_bytes != 32 && swizzle_bytes != 64 && swizzle_bytes != 128)
        return status_set(err, ROSE_INVALID, "TMA: a swizzle of %d bytes; it is 0, 32, 64 or 128",
                          swizzle_bytes);
    if (modes != layout_rank(tensor))
        return status_set(err, ROSE_INVALID, "TMA: a tile of %d modes for a tensor of %d", modes,
                          layout_rank(tensor));
    for (int i = 0; i < modes; i++) {
        struct layout mode = layout_mode(tensor, i);
        if (tile[i] < 1)
            return status_set(err, ROSE_INVALID, "TMA: tile mode %d has %lld elements", i,
                              (long long)tile[i]);
        ROSE_TRY(tma_mode(&mode, tile[i], dims, &n, err));
    }
    int64_t row = swizzle_bytes ? ROSE_MIN(TMA_BOX, swizzle_bytes / elem_bytes) : TMA_BOX;
    n = tma_merge(dims, n, row);
    if (n == 0 || dims[0].stride != 1)
        return status_set(err, ROSE_UNSUPPORTED, "TMA: no mode of the tensor has stride 1");
    if (n > 5)
        return status_set(err, ROSE_UNSUPPORTED, "TMA: the tensor has %d dimensions, at most 5 are possible",
                          n);
    *out = (struct layout_tma){.rank = n, .swizzle_bytes = swizzle_bytes};
    for (int i = 0; i < n; i++) {
        int64_t bytes = dims[i].stride * elem_bytes, most = i == 0 ? row : TMA_BOX;
        if (dims[i].size > TMA_SIZE)
            return status_set(err, ROSE_UNSUPPORTED,
                              "TMA: dimension %d has %lld elements, at most 2^32 are possible", i,
                              (long long)dims[i].size);
        if (i && (dims[i].stride == 0 || bytes % 16 || dims[i].stride > (INT64_C(1) << 40) / elem_bytes))
            return status_set(
                err, ROSE_UNSUPPORTED,
                "TMA: dimension %d has a stride of %lld bytes; it must be a multiple of 16 below 2^40", i,
                (long long)bytes);
        /* The largest part of the tile that one copy may take and that divides it. */
        int64_t box = ROSE_MIN(dims[i].box, most);
        while (dims[i].box % box) box--;
        if (i == 0 && box * elem_bytes % 16)
            return status_set(err, ROSE_UNSUPPORTED,
                              "TMA: a box row of %lld bytes; it must be a multiple of 16",
                              (long long)(box * elem_bytes));
        out->dim[i] = dims[i].size, out->stride_bytes[i] = bytes;
        out->box[i] = (int)box, out->copies[i] = dims[i].box / box;
    }
    return ROSE_OK;
}
