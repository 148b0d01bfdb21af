#include "cache/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum rose_status prefix_open(struct prefix *t, struct kv_pages *pages, int32_t page_tokens, int32_t groups, const int32_t *windows, int32_t capacity,
                             struct rose_error *err)
{
    *t = (struct prefix){.pages = pages, .page_tokens = page_tokens, .groups = groups, .capacity = capacity, .oldest = PREFIX_NONE, .newest = PREFIX_NONE};
    memcpy(t->window, windows, (size_t)groups * sizeof *windows);
    t->buckets_count = 16;
    while (t->buckets_count < capacity) t->buckets_count *= 2;
    t->nodes = calloc((size_t)capacity, sizeof *t->nodes);
    t->tokens = malloc((size_t)capacity * (size_t)page_tokens * sizeof *t->tokens);
    t->buckets = malloc((size_t)t->buckets_count * sizeof *t->buckets);
    if (!t->nodes || !t->tokens || !t->buckets) {
        prefix_close(t);
        return status_set(err, ROSE_NO_MEMORY, "no memory for a prefix tree of %d blocks", capacity);
    }
    for (int32_t i = 0; i < t->buckets_count; i++) t->buckets[i] = PREFIX_NONE;
    for (int32_t i = 0; i < capacity; i++) t->nodes[i].next = i + 1 < capacity ? i + 1 : PREFIX_NONE;
    return ROSE_OK;
}

void prefix_close(struct prefix *t)
{
    free(t->nodes);
    free(t->tokens);
    free(t->buckets);
    *t = (struct prefix){0};
}

static uint64_t block_key(const struct prefix *t, uint64_t salt, int32_t parent, const int32_t *tokens)
{
    uint64_t above = parent == PREFIX_NONE ? hash_mix(salt, 0x9E3779B97F4A7C15ull) : t->nodes[parent].key;
    return hash_bytes(tokens, (size_t)t->page_tokens * sizeof *tokens, above);
}

/* The parent's identity makes equal blocks behind different prefixes different; the salt is in the root's key. */
static int32_t find(const struct prefix *t, uint64_t key, int32_t parent, const int32_t *tokens)
{
    for (int32_t i = t->buckets[key & (uint64_t)(t->buckets_count - 1)]; i != PREFIX_NONE; i = t->nodes[i].next)
        if (t->nodes[i].key == key && t->nodes[i].parent == parent &&
            !memcmp(t->tokens + (size_t)i * (size_t)t->page_tokens, tokens, (size_t)t->page_tokens * sizeof *tokens))
            return i;
    return PREFIX_NONE;
}

static void list_remove(struct prefix *t, int32_t i)
{
    struct prefix_node *n = &t->nodes[i];
    if (!n->listed) return;
    if (n->older != PREFIX_NONE) t->nodes[n->older].newer = n->newer;
    else t->oldest = n->newer;
    if (n->newer != PREFIX_NONE) t->nodes[n->newer].older = n->older;
    else t->newest = n->older;
    n->listed = false;
}

static void list_add(struct prefix *t, int32_t i)
{
    struct prefix_node *n = &t->nodes[i];
    if (n->listed || n->pins || n->children) return;
    n->older = t->newest;
    n->newer = PREFIX_NONE;
    if (t->newest != PREFIX_NONE) t->nodes[t->newest].newer = i;
    else t->oldest = i;
    t->newest = i;
    n->listed = true;
}

static int32_t node_pages(const struct prefix *t, int32_t i)
{
    int32_t n = 0;
    for (int32_t g = 0; g < t->groups; g++) n += t->nodes[i].page[g] >= 0;
    return n;
}

static void pin(struct prefix *t, int32_t i)
{
    if (t->nodes[i].pins++ > 0) return;
    t->idle_pages -= node_pages(t, i);
    list_remove(t, i);
}

void prefix_unpin(struct prefix *t, int32_t i, uint32_t passed)
{
    for (int32_t g = 0; passed >> g; g++) t->nodes[i].passed[g] -= passed >> g & 1;
    if (--t->nodes[i].pins > 0) return;
    t->idle_pages += node_pages(t, i);
    list_add(t, i);
}

/* How many of the chain's blocks can be used: behind block b - 1, a window w sees tokens (b * page_tokens - w, b * page_tokens). */
static int32_t usable(const struct prefix *t, const int32_t *chain, int32_t found)
{
    for (int32_t b = found; b > 0; b--) {
        bool whole = true;
        for (int32_t g = 0; g < t->groups && whole; g++) {
            int32_t first = 0;
            if (t->window[g] && b * t->page_tokens > t->window[g] - 1) first = (b * t->page_tokens - (t->window[g] - 1)) / t->page_tokens;
            for (int32_t i = b - 1; i >= first && whole; i--) whole = t->nodes[chain[i]].page[g] >= 0;
        }
        if (whole) return b;
    }
    return 0;
}

static int32_t walk(const struct prefix *t, uint64_t salt, const int32_t *tokens, int32_t count, int32_t *chain, int32_t room)
{
    int32_t found = 0, parent = PREFIX_NONE;
    for (; found < room && (found + 1) * t->page_tokens <= count; found++) {
        const int32_t *block = tokens + (size_t)found * (size_t)t->page_tokens;
        int32_t node = find(t, block_key(t, salt, parent, block), parent, block);
        if (node == PREFIX_NONE) break;
        chain[found] = parent = node;
    }
    return found;
}

int32_t prefix_match(struct prefix *t, uint64_t salt, const int32_t *tokens, int32_t count, int32_t *nodes, int32_t room)
{
    int32_t n = usable(t, nodes, walk(t, salt, tokens, count, nodes, room));
    for (int32_t i = 0; i < n; i++) pin(t, nodes[i]);
    return n;
}

int32_t prefix_probe(const struct prefix *t, uint64_t salt, const int32_t *tokens, int32_t count, int32_t *nodes, int32_t room, int32_t *idle)
{
    int32_t n = usable(t, nodes, walk(t, salt, tokens, count, nodes, room));
    *idle = 0;
    for (int32_t i = 0; i < n; i++)
        if (!t->nodes[nodes[i]].pins) *idle += node_pages(t, nodes[i]);
    return n;
}

static void evict(struct prefix *t, int32_t i)
{
    struct prefix_node *n = &t->nodes[i];
    list_remove(t, i);
    t->idle_pages -= node_pages(t, i);
    int32_t *link = &t->buckets[n->key & (uint64_t)(t->buckets_count - 1)];
    while (*link != i) link = &t->nodes[*link].next;
    *link = n->next;
    for (int32_t g = 0; g < t->groups; g++)
        if (n->page[g] >= 0) kv_pages_release(t->pages, n->page[g]);
    if (n->parent != PREFIX_NONE && --t->nodes[n->parent].children == 0) list_add(t, n->parent);
    n->used = false;
    n->next = t->free_head;
    t->free_head = i;
    t->count--;
}

int32_t prefix_insert(struct prefix *t, uint64_t salt, int32_t parent, const int32_t *tokens, const int32_t *pages)
{
    uint64_t key = block_key(t, salt, parent, tokens);
    int32_t i = find(t, key, parent, tokens);
    if (i != PREFIX_NONE) {
        pin(t, i);
        return i;
    }
    if (t->free_head == PREFIX_NONE) {
        if (t->oldest == PREFIX_NONE) return PREFIX_NONE;
        evict(t, t->oldest);
    }
    i = t->free_head;
    struct prefix_node *n = &t->nodes[i];
    t->free_head = n->next;
    int32_t *bucket = &t->buckets[key & (uint64_t)(t->buckets_count - 1)];
    *n = (struct prefix_node){.key = key, .parent = parent, .pins = 1, .next = *bucket, .older = PREFIX_NONE, .newer = PREFIX_NONE, .used = true};
    *bucket = i;
    memcpy(t->tokens + (size_t)i * (size_t)t->page_tokens, tokens, (size_t)t->page_tokens * sizeof *tokens);
    for (int32_t g = 0; g < t->groups; g++) {
        n->page[g] = pages[g];
        if (pages[g] >= 0) kv_pages_share(t->pages, pages[g]);
    }
    if (parent != PREFIX_NONE) {
        t->nodes[parent].children++;
        list_remove(t, parent);
    }
    t->count++;
    return i;
}

void prefix_pass(struct prefix *t, int32_t i, int32_t group)
{
    struct prefix_node *n = &t->nodes[i];
    if (++n->passed[group] < n->pins || n->page[group] < 0) return;
    kv_pages_release(t->pages, n->page[group]);
    n->page[group] = -1;
}

bool prefix_make_room(struct prefix *t, int32_t pages)
{
    while (t->pages->free_count < pages && t->oldest != PREFIX_NONE) evict(t, t->oldest);
    return t->pages->free_count >= pages;
}
