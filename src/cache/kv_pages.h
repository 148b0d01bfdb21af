/* KV pages: which pages of the pool are free, and how many owners each has. Pages are numbers; the memory is the engine's. */
#ifndef ROSE_CACHE_KV_PAGES_H
#define ROSE_CACHE_KV_PAGES_H

#include "base/status.h"

struct kv_pages {
    int32_t total, free_count;
    int32_t used; /* pages [used, total) were never given out */
    int32_t *free_list; /* [free_count] valid */
    int32_t *owners;    /* [total] */
};

enum rose_status kv_pages_open(struct kv_pages *pages, int32_t total, struct rose_error *err);
void kv_pages_close(struct kv_pages *pages);
/* A page with one owner, or -1. */
int32_t kv_pages_alloc(struct kv_pages *pages);
void kv_pages_share(struct kv_pages *pages, int32_t page);
/* One owner less; the last one frees it. */
void kv_pages_release(struct kv_pages *pages, int32_t page);

#endif
