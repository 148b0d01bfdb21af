#include "cache/kv_pages.h"

#include <stdlib.h>

enum rose_status kv_pages_open(struct kv_pages *p, int32_t total, struct rose_error *err)
{
    *p = (struct kv_pages){.total = total, .free_count = total};
    p->free_list = malloc((size_t)total * sizeof *p->free_list);
    p->owners = calloc((size_t)total, sizeof *p->owners);
    if (!p->free_list || !p->owners) {
        kv_pages_close(p);
        return status_set(err, ROSE_NO_MEMORY, "no memory for the books of %d cache pages", total);
    }
    /* Low pages go out first, so that an idle pool's untouched end stays untouched. */
    for (int32_t i = 0; i < total; i++) p->free_list[i] = total - 1 - i;
    return ROSE_OK;
}

void kv_pages_close(struct kv_pages *p)
{
    free(p->free_list);
    free(p->owners);
    *p = (struct kv_pages){0};
}

int32_t kv_pages_alloc(struct kv_pages *p)
{
    if (!p->free_count) return -1;
    int32_t page = p->free_list[--p->free_count];
    p->owners[page] = 1;
    p->used = ROSE_MAX(p->used, page + 1);
    return page;
}

void kv_pages_share(struct kv_pages *p, int32_t page) { p->owners[page]++; }

void kv_pages_release(struct kv_pages *p, int32_t page)
{
    if (--p->owners[page] == 0) p->free_list[p->free_count++] = page;
}
