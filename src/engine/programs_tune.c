/* Which launches of a decode step begin before their predecessor ends, chosen by measuring. A dependent launch hides a kernel's start,
 * but its blocks take their shared memory while they wait: where a large kernel follows, that costs more than it gives, and which is
 * so depends on model, device and batch. A few buckets are tried with inputs like a real step's; the others do as their nearest. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"
#include "engine/engine.h"

enum { KINDS = 24, TRIED = 3, LENGTH = 512, PAGES = 2048, WARM = 1, REPLAYS = 2 };
static const double limit_s = 0.15; /* a bucket */

struct choice {
    int32_t rows;
    const char *kind[KINDS]; /* names are static */
    bool dependent[KINDS];
    int kinds;
};

static int kind_of(const struct choice *c, const char *name)
{
    for (int k = 0; k < c->kinds; k++)
        if (!strcmp(c->kind[k], name)) return k;
    return -1;
}

static void apply(const struct choice *c, struct program *p)
{
    for (int i = 0; i < p->count; i++) {
        int k = kind_of(c, p->entries[i].launch.name);
        if (k >= 0) p->entries[i].launch.dependent = c->dependent[k];
    }
}

/* Kinds that were dependent when recorded; the others stay as they are. */
static void list_kinds(struct choice *c, const struct program *p)
{
    for (int i = 0; i < p->count; i++) {
        const struct program_launch *l = &p->entries[i].launch;
        if (!l->dependent || c->kinds == KINDS || kind_of(c, l->name) >= 0) continue;
        c->dependent[c->kinds] = true;
        c->kind[c->kinds++] = l->name;
    }
}

/* Rows of one token each behind LENGTH - 1 others, nothing written to the cache, a token of its own for each. */
static enum rose_status make_inputs(struct engine *e, int32_t rows, struct rose_error *err)
{
    struct batch b;
    struct step *step = &e->steps[0];
    int32_t *tokens = calloc((size_t)rows, sizeof *tokens), blocks = (LENGTH + e->cache.page_tokens - 1) / e->cache.page_tokens;
    int32_t total = ROSE_MIN(e->pages.total, PAGES), stride = e->layout.sizes.table_stride, length;
    if (!tokens) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    blocks = ROSE_MIN(blocks, stride - 1);
    length = ROSE_MIN(LENGTH, blocks * e->cache.page_tokens);
    memset(step->staging, 0, e->layout.bytes);
    batch_view(&e->layout, step->staging, &b);
    uint64_t state = 5;
    for (int32_t i = 0; i < rows; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        tokens[i] = (int32_t)((state >> 33) % (uint64_t)e->model->config.vocabulary);
        b.row_history[i] = i;
        b.row_seq[i] = b.sample_rows[i] = i;
        b.seq_rows[i + 1] = i + 1;
        b.seq_length[i] = length;
        for (int32_t g = 0; g < e->layout.sizes.groups; g++) {
            b.kv_slot[g][i] = -1;
            for (int32_t k = 0; k < blocks; k++) b.page_table[g][(int64_t)i * stride + k] = (i * blocks + k) % total;
        }
    }
    enum rose_status s = device_copy(e->device, e->inputs, step->staging, e->layout.edits, err);
    if (s == ROSE_OK) s = device_copy(e->device, e->history, tokens, (size_t)ROSE_MIN(rows, (int32_t)(e->history_bytes / 4)) * 4, err);
    if (s == ROSE_OK) s = cuda_fill(e->device, e->cache.pool, 0, (size_t)total * e->cache.page_bytes, err);
    if (s == ROSE_OK) s = device_wait(e->device, NULL, err);
    free(tokens);
    return s;
}

static enum rose_status measure(struct engine *e, const struct choice *c, struct program *p, double *us, struct rose_error *err)
{
    struct extents x = {.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = c->rows, [EXTENT_SEQS] = c->rows, [EXTENT_SAMPLES] = c->rows}};
    apply(c, p);
    return cuda_bench_program_us(e->device, p, &x, WARM, REPLAYS, us, err);
}

static enum rose_status choose(struct engine *e, struct choice *c, struct program *p, struct rose_error *err)
{
    double began = engine_now(), all, best, us;
    list_kinds(c, p);
    ROSE_TRY(make_inputs(e, c->rows, err));
    ROSE_TRY(measure(e, c, p, &all, err));
    best = all;
    struct choice none = *c;
    memset(none.dependent, 0, sizeof none.dependent);
    ROSE_TRY(measure(e, &none, p, &us, err));
    if (us < best) *c = none, best = us;
    /* One kind after the other, the most frequent ones first as they come; kept where it is faster by more than noise. */
    for (int k = 0; k < c->kinds && engine_now() - began < limit_s; k++) {
        struct choice other = *c;
        other.dependent[k] = !other.dependent[k];
        ROSE_TRY(measure(e, &other, p, &us, err));
        if (us < best * 0.995) *c = other, best = us;
    }
    char *to = e->programs.tuned;
    size_t n = strlen(to), room = sizeof e->programs.tuned;
    bool any = false;
    n += (size_t)snprintf(to + n, room - n, "%s%d sequences %.0f -> %.0f us,", n ? "; " : "launches measured: ", c->rows, all, best);
    for (int k = 0; k < c->kinds && n < room; k++) {
        if (c->dependent[k]) continue;
        n += (size_t)snprintf(to + n, room - n, " %s", c->kind[k]);
        any = true;
    }
    if (n < room) snprintf(to + n, room - n, any ? " wait for what is before them" : " all begin early");
    return ROSE_OK;
}

enum rose_status programs_tune(struct engine *e, bool *changed, struct rose_error *err)
{
    struct programs *p = &e->programs;
    static const int32_t wanted[TRIED] = {1, 32, INT32_MAX};
    struct choice *choices = calloc(TRIED, sizeof *choices);
    int n = 0;
    enum rose_status s = choices ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int i = 0; i < TRIED && s == ROSE_OK; i++) {
        int at = 0;
        while (at < p->decodes - p->shareds - 1 && p->bucket[at].rows < wanted[i]) at++;
        if (n && choices[n - 1].rows == p->bucket[at].rows) continue;
        choices[n].rows = p->bucket[at].rows;
        s = choose(e, &choices[n], p->bucket[at].program, err);
        for (int k = 0; k < choices[n].kinds; k++) *changed |= !choices[n].dependent[k];
        n++;
    }
    for (int i = 0; i < p->decodes && s == ROSE_OK; i++) {
        int nearest = 0;
        for (int k = 1; k < n; k++)
            if (fabs(log((double)choices[k].rows / p->bucket[i].rows)) < fabs(log((double)choices[nearest].rows / p->bucket[i].rows))) nearest = k;
        apply(&choices[nearest], p->bucket[i].program);
    }
    free(choices);
    return s;
}
