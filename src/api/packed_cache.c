/* rose_packed_cache: the packed weights that are kept for later starts, as JSON, or none of them any more. */
#include "api/internal.h"
#include "base/file.h"
#include "base/json.h"
#include "model/packed_list.h"

static void add_file(const struct packed_file *f, struct strbuf *out)
{
    static const char *const states[] = {"current", "changed", "gone", "unknown", "left"};
    strbuf_adds(out, "{\"file\":");
    json_add_str(out, str_of(f->name));
    strbuf_adds(out, ",\"model\":");
    json_add_str(out, str_of(f->model));
    strbuf_printf(out, ",\"bytes\":%llu,\"used\":%lld,\"state\":\"%s\"}", (unsigned long long)f->bytes, (long long)(f->used / 1000000000), states[f->state]);
}

enum rose_status rose_packed_cache(const char *cache_dir, int64_t limit, bool clear, char **json, struct rose_error *err)
{
    struct arena arena;
    struct packed_list list = {0};
    struct strbuf out = {0};
    *json = NULL;
    if (limit < 0) return status_set(err, ROSE_INVALID, "a limit of packed weights must not be negative");
    arena_init(&arena, 0);
    const char *dir = cache_dir ? cache_dir : device_cache_dir(&arena);
    enum rose_status s = dir ? packed_list_read(dir, &list, err) : status_set(err, ROSE_INVALID, "no place for a cache: neither XDG_CACHE_HOME nor HOME is set");
    if (s == ROSE_OK) {
        strbuf_adds(&out, "{\"folder\":");
        json_add_str(&out, str_of(file_join(&arena, dir, "packed")));
        size_t removed = 0;
        uint64_t freed = 0;
        for (size_t i = 0; clear && i < list.count; i++)
            if (packed_list_remove(dir, &list.files[i])) removed++, freed += list.files[i].bytes, list.files[i].bytes = 0;
        strbuf_printf(&out, ",\"limit_bytes\":%llu,\"bytes\":%llu,\"removed\":%zu,\"removed_bytes\":%llu,\"files\":[", (unsigned long long)packed_list_limit(dir, (uint64_t)limit),
                      (unsigned long long)(list.bytes - freed), removed, (unsigned long long)freed);
        bool more = false;
        for (size_t i = list.count; i-- > 0;) { /* last used first */
            if (!list.files[i].bytes) continue;
            if (more) strbuf_addc(&out, ',');
            add_file(&list.files[i], &out);
            more = true;
        }
        strbuf_adds(&out, "]}");
    }
    packed_list_free(&list);
    arena_free(&arena);
    if (s == ROSE_OK && out.failed) s = status_set(err, ROSE_NO_MEMORY, "no memory for the list of packed weights");
    if (s == ROSE_OK) *json = out.p;
    else strbuf_free(&out);
    return s;
}
