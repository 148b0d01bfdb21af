#include "kernels/cpu/matmul.h"

#include <string.h>

#include "base/worker.h"
#include "tensor/extent.h"

/* Up to this many rows every worker prepares the activations for itself: cheaper than a barrier. */
enum { OWN_ROWS = 4, ALIGN = 64, OUT_FLOATS = MATMUL_TILE * CPU_GROUP };
/* Activations that one sweep over the weights reuses: about half of a level-2 cache. */
enum { SWEEP_BYTES = 512 << 10 };

const struct matmul_kernels *matmul_kernels(void)
{
#if defined(__x86_64__)
    enum cpu_isa isa = cpu_isa();
    if (isa >= CPU_ISA_AVX512) return &matmul_kernels_avx512;
    if (isa == CPU_ISA_AVX2) return &matmul_kernels_avx2;
#endif
    return &matmul_kernels_portable;
}

static bool is_float(const struct cpu_weight *w) { return w->format->kernel >= CPU_KERNELS; }

/* Work memory: activations of all rows, then for each worker its own rows' activations, scales and output tiles. */
struct layout {
    size_t int_row, float_row;    /* bytes of a row's activations, 0: that path is not needed */
    size_t shared;                /* bytes of the common part */
    size_t own_acts, scales, own; /* bytes of a worker's parts (scales: of one weight, there are two); own: all of it */
};

static struct layout layout_of(const struct matmul_params *p)
{
    struct layout l = {0};
    for (int i = 0; i < p->parts; i++) {
        const struct cpu_weight *w = &p->part[i].weight;
        size_t blocks = (size_t)cpu_weight_blocks(w);
        if (is_float(w)) l.float_row = blocks * MATMUL_ACT_FLOAT_BYTES;
        else {
            l.int_row = blocks * MATMUL_ACT_BYTES;
            l.scales = ROSE_MAX(l.scales, blocks * (size_t)cpu_format_scale_floats(w->format) * sizeof(float));
        }
    }
    l.shared = (size_t)p->max_rows * (l.int_row + l.float_row);
    l.own_acts = OWN_ROWS * (l.int_row + l.float_row);
    l.own = l.own_acts + 2 * l.scales + 2 * OUT_FLOATS * sizeof(float);
    return l;
}

size_t matmul_work_bytes(const struct matmul_params *p, int workers)
{
    struct layout l = layout_of(p);
    return l.shared + (size_t)workers * l.own + ALIGN;
}

struct run {
    const struct matmul_params *p;
    const struct matmul_kernels *kernels;
    int32_t rows;
    struct layout layout;
    uint8_t *int_acts, *float_acts; /* tiles of all rows; a tile that begins at row r lies at r * row bytes */
    float *scales[2], *out[2];      /* this worker's, [1] for the second weight of a gate */
};

static void prepare_tile(const struct run *r, int32_t row, int height)
{
    const struct matmul_params *p = r->p;
    const float *x = p->x + (size_t)row * (size_t)p->x_stride;
    int32_t k = p->part[0].weight.k;
    if (r->layout.int_row)
        r->kernels->quantize(x, (size_t)p->x_stride, height, k, r->int_acts + (size_t)row * r->layout.int_row);
    if (r->layout.float_row)
        matmul_tile_float(x, (size_t)p->x_stride, height, k, (float *)(void *)(r->float_acts + (size_t)row * r->layout.float_row));
}

/* Activations for all rows: alone when there are few, else together, with a barrier after it. */
static void prepare(const struct run *r, struct worker *w)
{
    bool alone = r->rows <= OWN_ROWS;
    size_t begin = 0, end = (size_t)r->rows;
    if (!alone) worker_range(w, (size_t)r->rows, MATMUL_TILE, &begin, &end);
    for (size_t row = begin; row < end;) {
        int height = matmul_tile_height((int32_t)(end - row));
        prepare_tile(r, (int32_t)row, height);
        row += (size_t)height;
    }
    if (!alone) worker_barrier(w);
}

static void products(const struct run *r, const struct cpu_weight *w, int slot, size_t group, int32_t row, int height)
{
    const uint8_t *data = w->data + group * w->group_bytes;
    int blocks = cpu_weight_blocks(w);
    if (is_float(w))
        r->kernels->dot_float(w->format, data, r->float_acts + (size_t)row * r->layout.float_row, height, blocks, r->out[slot]);
    else
        r->kernels->dot(w->format, data + w->codes_at, r->scales[slot], r->int_acts + (size_t)row * r->layout.int_row, height, blocks,
                        r->out[slot]);
}

static void expand(const struct run *r, const struct cpu_weight *w, int slot, size_t group)
{
    if (!is_float(w)) r->kernels->expand_scales(w->format, w->data + group * w->group_bytes, cpu_weight_blocks(w), r->scales[slot]);
}

/* Rows [from, to) of one group of out-features. */
static void run_group(const struct run *r, int part, size_t group, int32_t from, int32_t to)
{
    const struct matmul_params *p = r->p;
    const struct matmul_part *a = &p->part[part], *up = p->gated ? &p->part[1] : NULL;
    size_t first = group * CPU_GROUP;
    int cols = (int)ROSE_MIN((size_t)CPU_GROUP, (size_t)a->weight.n - first);
    struct matmul_finish finish = {a->bias ? a->bias + first : NULL, up && up->bias ? up->bias + first : NULL, p->activation,
                                   p->accumulate, p->alpha};
    expand(r, &a->weight, 0, group);
    if (up) expand(r, &up->weight, 1, group);
    for (int32_t row = from; row < to;) {
        int height = matmul_tile_height(to - row);
        products(r, &a->weight, 0, group, row, height);
        if (up) products(r, &up->weight, 1, group, row, height);
        r->kernels->finish(&finish, r->out[0], up ? r->out[1] : NULL, height, cols,
                           a->y + (size_t)row * (size_t)a->y_stride + first, (size_t)a->y_stride);
        row += height;
    }
}

void matmul_run(const void *params, const struct extents *extents, struct worker *w)
{
    const struct matmul_params *p = params;
    struct run r = {p, matmul_kernels(), ROSE_MIN(extents->n[p->rows_extent], p->max_rows), layout_of(p), NULL, NULL, {0}, {0}};
    if (r.rows <= 0) return;
    uint8_t *work = (uint8_t *)(((uintptr_t)p->work + ALIGN - 1) / ALIGN * ALIGN);
    uint8_t *own = work + r.layout.shared + (size_t)w->index * r.layout.own;
    bool alone = r.rows <= OWN_ROWS;
    r.int_acts = alone ? own : work;
    r.float_acts = r.int_acts + (size_t)(alone ? OWN_ROWS : p->max_rows) * r.layout.int_row;
    own += r.layout.own_acts;
    for (int i = 0; i < 2; i++) {
        r.scales[i] = (float *)(void *)(own + (size_t)i * r.layout.scales);
        r.out[i] = (float *)(void *)(own + 2 * r.layout.scales) + i * OUT_FLOATS;
    }
    prepare(&r, w);

    size_t units = 0, begin, end;
    for (int i = 0; i < (p->gated ? 1 : p->parts); i++) units += cpu_weight_groups(&p->part[i].weight);
    worker_range(w, units, 1, &begin, &end);
    size_t row_bytes = r.layout.int_row + r.layout.float_row;
    int32_t sweep = (int32_t)ROSE_MAX((size_t)MATMUL_TILE, SWEEP_BYTES / row_bytes / MATMUL_TILE * MATMUL_TILE);
    for (int32_t from = 0; from < r.rows; from += sweep) {
        int32_t to = ROSE_MIN(r.rows, from + sweep);
        size_t first = 0;
        for (int i = 0; i < (p->gated ? 1 : p->parts); i++) {
            size_t groups = cpu_weight_groups(&p->part[i].weight);
            for (size_t u = ROSE_MAX(begin, first); u < ROSE_MIN(end, first + groups); u++) run_group(&r, i, u - first, from, to);
            first += groups;
        }
    }
}
