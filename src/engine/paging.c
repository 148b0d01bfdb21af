/* A sequence's pages: taken block by block, found in and given to the prefix tree, given up behind windows. */
#include "engine/engine.h"

/* Without prefix caching nothing may be found by others: a salt of its own for each request. Choices still share their prompt. */
static uint64_t salt_of(const struct engine *e, const struct sequence *s)
{
    return e->options.no_prefix_cache ? s->request->salt ^ (s->request->id * 0x9E3779B97F4A7C15ull) : s->request->salt;
}

/* Models whose rotary table depends on the prompt's length may share pages only among equal tables. */
static uint64_t table_salt(const struct engine *e, const struct sequence *s)
{
    uint64_t salt = salt_of(e, s);
    return e->layout.sizes.rope_half ? salt ^ ((uint64_t)s->request->prompt_count << 32) : salt;
}

bool paging_reserve(struct engine *e, struct sequence *s, int32_t tokens)
{
    int32_t want = (tokens + e->cache.page_tokens - 1) / e->cache.page_tokens, groups = e->model->config.groups_count;
    while (s->blocks < want) {
        if (e->pages.free_count < groups && !prefix_make_room(&e->prefix, groups)) return false;
        for (int32_t g = 0; g < groups; g++) s->pages[g][s->blocks] = kv_pages_alloc(&e->pages);
        s->blocks++;
    }
    return true;
}

/* The first use of 2 MB costs whoever uses them 2 to 4 ms (the system clears them, and a host may have to find them first), as much as half a
 * decode step of a small model: an engine that rests keeps so much ahead of its pages. */
bool paging_touch(struct engine *e)
{
    enum { PIECE = 2 << 20, SYSTEM_PAGE = 4096 };
    size_t used = (size_t)e->pages.used * e->cache.page_bytes, want = ROSE_MIN(e->pool_bytes, used + e->options.cache_ready);
    if (e->device->info.kind != DEVICE_CPU || !e->options.cache_ready) return false;
    e->touched = ROSE_MAX(e->touched, used);
    if (e->touched >= want) return false;
    size_t end = ROSE_MIN(want, e->touched + PIECE);
    for (; e->touched < end; e->touched += SYSTEM_PAGE) *((volatile char *)e->cache.pool + e->touched) = 0; /* no page that was given out */
    return true;
}

/* At least one token must be computed, so that there are logits; prompt log-probabilities need all of them. */
static int32_t usable_tokens(const struct sequence *s) { return s->prompt_logprobs && !s->prompt_done ? 0 : s->length - 1; }

int32_t paging_probe(struct engine *e, struct sequence *s, int32_t *idle)
{
    return prefix_probe(&e->prefix, table_salt(e, s), s->tokens, usable_tokens(s), s->nodes, s->capacity / e->cache.page_tokens, idle);
}

void paging_start(struct engine *e, struct sequence *s)
{
    s->nodes_count = prefix_match(&e->prefix, table_salt(e, s), s->tokens, usable_tokens(s), s->nodes, s->capacity / e->cache.page_tokens);
    for (int32_t b = 0; b < s->nodes_count; b++)
        for (int32_t g = 0; g < e->model->config.groups_count; g++) {
            int32_t page = e->prefix.nodes[s->nodes[b]].page[g];
            s->pages[g][b] = page;
            if (page >= 0) kv_pages_share(&e->pages, page);
        }
    s->blocks = s->nodes_count;
    s->computed = s->blocks * e->cache.page_tokens;
    for (int32_t g = 0; g < OP_MAX_GROUPS; g++) s->behind[g] = 0;
    paging_pass_windows(e, s);
}

void paging_publish(struct engine *e, struct sequence *s)
{
    int32_t full = ROSE_MIN(s->known, s->computed) / e->cache.page_tokens;
    while (s->nodes_count < full) {
        int32_t pages[OP_MAX_GROUPS], b = s->nodes_count;
        for (int32_t g = 0; g < e->model->config.groups_count; g++) pages[g] = s->pages[g][b];
        int32_t parent = b ? s->nodes[b - 1] : PREFIX_NONE;
        int32_t node = prefix_insert(&e->prefix, table_salt(e, s), parent, s->tokens + (size_t)b * (size_t)e->cache.page_tokens, pages);
        if (node == PREFIX_NONE) return;
        s->nodes[s->nodes_count++] = node;
        for (int32_t g = 0; g < e->model->config.groups_count; g++)
            if (b < s->behind[g]) prefix_pass(&e->prefix, node, g);
    }
}

/* The next query stands at position `computed`; a window w sees keys from computed - w + 1 on. */
void paging_pass_windows(struct engine *e, struct sequence *s)
{
    for (int32_t g = 0; g < e->model->config.groups_count; g++) {
        int32_t window = e->model->config.groups[g].window;
        if (!window) continue;
        int32_t first = s->computed - window + 1;
        int32_t passed = first > 0 ? ROSE_MIN(first / e->cache.page_tokens, s->blocks) : 0;
        for (; s->behind[g] < passed; s->behind[g]++) {
            int32_t b = s->behind[g], page = s->pages[g][b];
            if (b < s->nodes_count) prefix_pass(&e->prefix, s->nodes[b], g);
            if (page < 0) continue;
            kv_pages_release(&e->pages, page);
            s->pages[g][b] = -1;
        }
    }
}

void paging_release(struct engine *e, struct sequence *s)
{
    for (int32_t b = 0; b < s->blocks; b++)
        for (int32_t g = 0; g < e->model->config.groups_count; g++)
            if (s->pages[g][b] >= 0) kv_pages_release(&e->pages, s->pages[g][b]);
    /* Leaves first, so that the tree's eviction order goes from the end of a prefix to its beginning. */
    while (s->nodes_count) {
        int32_t b = --s->nodes_count;
        uint32_t passed = 0;
        for (int32_t g = 0; g < e->model->config.groups_count; g++) passed |= (uint32_t)(b < s->behind[g]) << g;
        prefix_unpin(&e->prefix, s->nodes[b], passed);
    }
    s->blocks = s->computed = 0;
}

int32_t paging_pages(const struct engine *e, const struct sequence *s)
{
    int32_t pages = 0;
    for (int32_t g = 0; g < e->model->config.groups_count; g++) pages += s->blocks - ROSE_MIN(s->behind[g], s->blocks);
    return pages;
}
