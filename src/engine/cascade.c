#include "engine/cascade.h"

#include <string.h>

#include "engine/engine.h"
#include "ops/attention_cuda.h"

/* Bytes of keys and values of a layer that must not be read for a second launch to pay: it costs about 9 us a layer, and what many read comes from L2 at
 * 8 TB/s (docs/facts.md). Tokens that a part has at least. */
enum { LEAST_BYTES = 96 << 20, LEAST_TOKENS = 256, MOST_SEQS = 4096 };

bool cascade_fits(const struct engine *e)
{
    const struct model_config *c = &e->model->config;
    bool whole = false; /* layers that see everything */
    for (int32_t i = 0; i < c->layers; i++) whole |= c->layer[i].window == 0;
    return e->device->info.kind == DEVICE_CUDA && !e->options.deterministic && whole && e->options.max_sequences <= MOST_SEQS;
}

void cascade_step(const struct engine *e, struct program *program, const struct batch *b, struct op_step *step)
{
    size_t seqs = (size_t)e->layout.sizes.seqs;
    step->cascade_groups = program_external(program, "cascade_groups", b->cascade_groups, (CASCADE_GROUPS + 1) * sizeof *b->cascade_groups);
    step->cascade_members = program_external(program, "cascade_members", b->cascade_members, seqs * 4);
    step->cascade_seqs = program_external(program, "cascade_seqs", b->cascade_seqs, seqs * sizeof *b->cascade_seqs);
}

/* Pages of its first `most` that two sequences have in common, in all groups of layers that see everything. */
static int32_t common(const struct engine *e, const struct sequence *a, const struct sequence *b, int32_t most)
{
    const struct model_config *c = &e->model->config;
    for (int32_t g = 0; g < c->groups_count; g++) {
        int32_t n = 0;
        if (c->groups[g].window) continue;
        while (n < most && a->pages[g][n] == b->pages[g][n]) n++;
        most = n;
    }
    return most;
}

/* The group a sequence gains most by joining: pages saved with it, less those saved without. A group's pages shrink to what all have in common. */
static int join(const struct engine *e, const struct step *step, int32_t s, struct cascade_group *groups, int32_t *leader, int count)
{
    const struct sequence *q = step->entries[s].sequence;
    int32_t page = e->cache.page_tokens, most = (step->entries[s].first_position) / page, shared = 0;
    int64_t gain = 0;
    int best = -1;
    for (int i = 0; i < count; i++) {
        struct cascade_group *g = &groups[i];
        const struct sequence *other = step->entries[leader[i]].sequence;
        int32_t n = common(e, q, other, ROSE_MIN(most, g->tokens));
        int64_t with = (int64_t)g->count * n, without = (int64_t)(g->count - 1) * g->tokens;
        if (n && with - without > gain) gain = with - without, best = i, shared = n;
    }
    if (best >= 0) groups[best].tokens = shared, groups[best].count++;
    return best;
}

/* Parts: about as many tiles of rows as the SMs hold; all parts fit the buffer that attention_tile leaves them in. */
static void cut(const struct engine *e, struct cascade_group *groups, int count, int32_t rows)
{
    const struct op_heads *h = &e->model->config.heads;
    const struct device_info *d = &e->device->info;
    int32_t group = h->heads / h->kv_heads;
    int64_t places = attention_cuda_cascade_entries(h, d, rows), entry = 0, left = 0;
    double work = 0; /* tokens times tiles of rows */
    for (int i = 0; i < count; i++) {
        work += (double)((groups[i].count * group + CASCADE_ROWS - 1) / CASCADE_ROWS) * h->kv_heads * groups[i].tokens;
        left += groups[i].count;
    }
    double each = ROSE_MAX(work / (2.0 * d->units), (double)LEAST_TOKENS);
    for (int i = 0; i < count; i++) {
        struct cascade_group *g = &groups[i];
        left -= g->count; /* the others need a place a member at least */
        int64_t most = ROSE_MIN((places - entry - left) / g->count, (int64_t)CASCADE_SPLITS);
        g->splits = (int32_t)ROSE_MAX(1, ROSE_MIN((int64_t)((double)g->tokens / each + 0.5), most));
        g->entry = (int32_t)entry;
        entry += (int64_t)g->splits * g->count;
    }
}

bool cascade_make(const struct engine *e, const struct step *step, struct batch *b, int32_t rows)
{
    int32_t page = e->cache.page_tokens, seqs = step->entries_count, leader[CASCADE_GROUPS], place[CASCADE_GROUPS], first = 0;
    int8_t group[MOST_SEQS]; /* of a sequence, -1: none */
    const struct op_heads *h = &e->model->config.heads;
    size_t token_bytes = (size_t)h->kv_heads * (size_t)(h->head_dim + h->value_dim) * (size_t)dtype_info(e->cache.dtype)->bytes;
    struct cascade_group *groups = b->cascade_groups;
    double saved = 0;
    int count = 0, kept = 0;
    for (int32_t s = 0; s < seqs; s++) {
        group[s] = (int8_t)join(e, step, s, groups, leader, count);
        int32_t most = step->entries[s].first_position / page;
        if (group[s] >= 0 || count == CASCADE_GROUPS || !most) continue;
        groups[count] = (struct cascade_group){.count = 1, .tokens = most};
        leader[count] = s, group[s] = (int8_t)count++;
    }
    /* Whoever stayed alone shares nothing. */
    for (int i = 0; i < count; i++) {
        place[i] = -1;
        if (groups[i].count < 2) continue;
        groups[kept] = groups[i];
        groups[kept].tokens *= page, groups[kept].first = first;
        first += groups[kept].count;
        saved += (double)(groups[kept].count - 1) * groups[kept].tokens * (double)token_bytes;
        place[i] = kept++;
    }
    if (saved < (e->options.share_bytes ? (double)e->options.share_bytes : (double)LEAST_BYTES)) return false;
    memset(groups + kept, 0, sizeof *groups);
    cut(e, groups, kept, rows);
    int32_t found[CASCADE_GROUPS] = {0};
    for (int32_t s = 0; s < rows; s++) {
        int i = s < seqs && group[s] >= 0 ? place[group[s]] : -1;
        b->cascade_seqs[s] = (struct cascade_seq){0};
        if (i < 0) continue;
        const struct cascade_group *g = &groups[i];
        b->cascade_seqs[s] = (struct cascade_seq){.tokens = g->tokens, .entry = g->entry + found[i], .step = g->count, .splits = g->splits};
        b->cascade_members[g->first + found[i]++] = s;
    }
    return true;
}
