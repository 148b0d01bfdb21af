/* Prefix tree: finds the pages of a prefix that some request has computed already.
 *
 * A node is one full block of page_tokens tokens behind its parent, with one page a cache group. Nodes are found by
 * hash(parent's key, tokens, salt) and verified token by token. The tree owns one share of each page; sequences that use a node
 * pin it. Unpinned leaves are evicted, least recently used first. A page of a sliding-window group may be missing (-1): a hit is
 * valid when every group still holds what a query behind the hit can see.
 */
#ifndef ROSE_CACHE_PREFIX_H
#define ROSE_CACHE_PREFIX_H

#include "cache/kv_pages.h"

enum { PREFIX_MAX_GROUPS = 8, PREFIX_NONE = -1 };

struct prefix_node {
    uint64_t key;
    int32_t parent, children, pins; /* node indexes and counts */
    int32_t next;                   /* in the hash chain; in the free list */
    int32_t older, newer;           /* LRU list of evictable nodes (no children, no pins); PREFIX_NONE outside */
    bool listed, used;
    int32_t page[PREFIX_MAX_GROUPS];
    int32_t passed[PREFIX_MAX_GROUPS]; /* of the pins: whose windows have passed the block */
};

struct prefix {
    struct kv_pages *pages;
    int32_t page_tokens, groups, capacity, count;
    int32_t window[PREFIX_MAX_GROUPS];
    struct prefix_node *nodes; /* [capacity] */
    int32_t *tokens;           /* [capacity, page_tokens] */
    int32_t *buckets;          /* [buckets_count], a power of two */
    int32_t buckets_count, free_head, oldest, newest;
    int32_t idle_pages; /* pages of unpinned nodes: what eviction can free (who uses a node pins all above it too) */
};

/* Room for `capacity` nodes (at least the pool's pages / groups). windows [groups]: 0 for full attention. */
enum rose_status prefix_open(struct prefix *tree, struct kv_pages *pages, int32_t page_tokens, int32_t groups, const int32_t *windows, int32_t capacity,
                             struct rose_error *err);
void prefix_close(struct prefix *tree);

/* The longest usable prefix of tokens[0..count): writes its nodes in order (at most room) and pins them; returns how many.
 * 0 <= usable * page_tokens <= count. */
int32_t prefix_match(struct prefix *tree, uint64_t salt, const int32_t *tokens, int32_t count, int32_t *nodes, int32_t room);
/* The same without pinning. *idle: pages of these nodes that are evictable now and would not be once pinned. */
int32_t prefix_probe(const struct prefix *tree, uint64_t salt, const int32_t *tokens, int32_t count, int32_t *nodes, int32_t room, int32_t *idle);
/* Put the block behind `parent` (PREFIX_NONE: first) with its pages [groups] (each shared once more) and pin it. Returns the node;
 * an equal node that is there already is pinned and returned; PREFIX_NONE when the tree is full of pinned nodes. */
int32_t prefix_insert(struct prefix *tree, uint64_t salt, int32_t parent, const int32_t *tokens, const int32_t *pages);
/* passed: bit g: this pin was counted by prefix_pass for group g. */
void prefix_unpin(struct prefix *tree, int32_t node, uint32_t passed);
/* The window of one who pins the node has passed it: once for each pin and group. When that holds for all who pin it, the tree gives the page up;
 * who left before may come back for it, and leaves it to eviction. */
void prefix_pass(struct prefix *tree, int32_t node, int32_t group);
/* Evict old leaves until `pages` pages are free in the pool, or nothing is left to evict. */
bool prefix_make_room(struct prefix *tree, int32_t pages);

#endif
