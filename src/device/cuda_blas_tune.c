#define _GNU_SOURCE
/* Which of cuBLASLt's algorithms is the fastest for each shape that a model's programs ask for, by measuring. The library orders its choices by a
 * model of its own; which one wins depends on the GPU's clocks and memory too (cuBLAS manual, "cublasLtMatmulAlgoGetHeuristic": callers may time
 * the candidates). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/cuda.h"
#include "device/cuda_blas_internal.h"

/* NODES products make one graph: over the weights of so many layers, so that they come from memory as in a step. */
enum { SHAPES = 512, WEIGHTS = 8, CANDIDATES = 8, ROUNDS = 2 };
static const double long_ops = 2e11, better = 0.98; /* so much faster than the library's first choice must another one be */

struct shape {
    struct blas_key key;
    struct cuda_blas_params params;
    const void *w[WEIGHTS];
    int weights;
    bool panel; /* w is decoded into the program's own memory right before the product: in a step it comes from L2 too */
};

static void add_weight(struct shape *s, const void *w)
{
    bool known = s->weights == WEIGHTS;
    for (int k = 0; k < s->weights; k++) known |= s->w[k] == w;
    if (!known) s->w[s->weights++] = w;
}

/* The programs' last ones first: prompts' largest steps. */
static int collect(struct program *const *programs, int count, struct shape *shapes)
{
    int n = 0;
    for (int g = count - 1; g >= 0; g--)
        for (int i = 0; i < programs[g]->count; i++) {
            const struct program_launch *l = &programs[g]->entries[i].launch;
            const struct cuda_blas_params *p = l->params;
            int64_t rows = programs[g]->expect.n[l->rows_extent];
            if (l->host != cuda_blas_run || rows <= 0 || rows > INT32_MAX) continue;
            struct blas_key key = cuda_blas_key(p, (uint32_t)rows);
            int at = 0;
            while (at < n && memcmp(&shapes[at].key, &key, sizeof key)) at++;
            if (at == SHAPES) continue;
            struct shape *s = &shapes[at];
            if (at == n) n++, s->key = key, s->params = *p, s->params.rows = (uint32_t)rows;
            const char *own = programs[g]->memory;
            s->panel |= own && (const char *)p->w >= own && (const char *)p->w < own + programs[g]->memory_bytes;
            add_weight(s, p->w);
        }
    return n;
}

static int nodes_of(const struct device *device, const struct shape *s)
{
    double bytes = 2.0 * s->key.n * s->key.k, ops = bytes * s->key.rows;
    if (ops > long_ops) return 1;
    int nodes = (int)(3.0 * (double)device->info.l2_bytes / bytes) + 2; /* L2 has forgotten the first when the last is read */
    return ROSE_MIN(nodes, (int)WEIGHTS);
}

/* A shape that fewer matrices have than a graph multiplies would find them in L2, where a step reads them from memory: larger ones of other
 * shapes stand in for the missing. */
static void borrow(const struct device *device, struct shape *shapes, int n)
{
    for (int i = 0; i < n; i++) {
        struct shape *s = &shapes[i];
        int nodes = nodes_of(device, s);
        for (int j = 0; j < n && !s->panel && s->weights < nodes; j++) {
            const struct shape *o = &shapes[j];
            if (o->panel || (int64_t)o->key.n * o->key.k < (int64_t)s->key.n * s->key.k) continue;
            for (int k = 0; k < o->weights && s->weights < nodes; k++) add_weight(s, o->w[k]);
        }
    }
}

/* Rows of x that are not all zero (they would be multiplied faster): the weights' own values. */
static enum rose_status fill_x(struct device *device, const struct shape *s, struct rose_error *err)
{
    size_t x = ((size_t)(s->key.rows - 1) * (size_t)s->key.x_stride + (size_t)s->key.k) * 2, w = (size_t)s->key.n * (size_t)s->key.k * 2;
    for (size_t at = 0; at < x; at += w) ROSE_TRY(device_copy(device, (char *)(uintptr_t)s->params.x + at, s->w[0], ROSE_MIN(w, x - at), err));
    return ROSE_OK;
}

/* One shape. A candidate that the library refuses is left out; *changed: another than its first choice has won. */
static enum rose_status measure(struct device *device, const struct shape *s, struct rose_error *err)
{
    struct cuda_blas *b = device->blas;
    struct blas_choice choices[CANDIDATES];
    struct cuda_blas_params params[WEIGHTS];
    struct program_launch launches[WEIGHTS] = {0};
    const uint32_t grids[WEIGHTS][3] = {{0}};
    double best[CANDIDATES];
    int count, nodes = nodes_of(device, s);
    if (cuda_blas_choices(b, &s->key, choices, CANDIDATES, &count, NULL) != ROSE_OK) return ROSE_OK; /* the product itself will say why */
    ROSE_TRY(fill_x(device, s, err));
    for (int i = 0; i < nodes; i++) {
        params[i] = s->params, params[i].w = s->w[i % s->weights];
        launches[i] = (struct program_launch){.name = "products compared", .params = &params[i], .params_bytes = sizeof params[i], .host = cuda_blas_run};
    }
    for (int c = 0; c < count; c++) best[c] = choices[c].state || choices[c].workspace > CUDA_BLAS_WORKSPACE ? 0 : 1e30;
    for (int c = 0; c < count * ROUNDS; c++) {
        double us;
        if (best[c % count] <= 0) continue;
        b->trial = &choices[c % count].algorithm;
        enum rose_status did = cuda_bench_graph_us(device, launches, grids, nodes, c < count, 1, &us, NULL);
        b->trial = NULL;
        if (did != ROSE_OK) ROSE_TRY(device_wait(device, NULL, err)); /* a lost device ends it */
        best[c % count] = did == ROSE_OK ? ROSE_MIN(best[c % count], us) : 0;
    }
    int chosen = -1;
    for (int c = 0; c < count; c++)
        if (best[c] > 0 && (chosen < 0 || best[c] < best[chosen] * (chosen == 0 ? better : 1))) chosen = c;
    if (chosen < 0) return ROSE_OK;
    struct blas_measured m = {.key = s->key, .algorithm = choices[chosen].algorithm, .us = (float)best[chosen], .first_us = (float)best[0]};
    cuda_blas_forget(b, &s->key);
    return cuda_blas_table_add(&b->table, &m, err);
}

enum rose_status cuda_blas_tune(struct device *device, struct program *const *programs, int count, double limit_s, struct cuda_blas_tuned *out, struct rose_error *err)
{
    *out = (struct cuda_blas_tuned){0};
    if (!device->blas) return ROSE_OK;
    double began = clock_seconds();
    struct shape *shapes = calloc(SHAPES, sizeof *shapes);
    if (!shapes) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = ROSE_OK;
    out->shapes = collect(programs, count, shapes);
    borrow(device, shapes, out->shapes);
    for (int i = 0; i < out->shapes && s == ROSE_OK; i++) {
        const struct blas_measured *m = cuda_blas_table_find(&device->blas->table, &shapes[i].key);
        if (!m && clock_seconds() - began < limit_s) {
            s = measure(device, &shapes[i], err);
            m = cuda_blas_table_find(&device->blas->table, &shapes[i].key);
            out->measured += m != NULL;
        }
        out->changed += m && m->us < m->first_us;
    }
    struct rose_error unwritten;
    if (s == ROSE_OK) cuda_blas_table_save(&device->blas->table, &unwritten); /* a cache that cannot be written is none: measured again */
    out->seconds = clock_seconds() - began;
    free(shapes);
    return s;
}
