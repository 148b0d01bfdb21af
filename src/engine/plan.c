/* The memory plan: context, pages and buffers that fit what the machine has, before anything is taken. */
#include "engine/engine.h"
#include "ops/attention.h"

enum { DEFAULT_SEQUENCES = 64, DEFAULT_WAITING = 4096, DEFAULT_STEP = 512 };
enum { CUDA_SEQUENCES = 256, CUDA_STEP = 8192 };

static void defaults(const struct model_config *c, bool cuda, struct engine_options *o)
{
    if (!o->max_sequences) o->max_sequences = cuda ? CUDA_SEQUENCES : DEFAULT_SEQUENCES;
    if (!o->max_waiting) o->max_waiting = DEFAULT_WAITING;
    if (!o->step_tokens) o->step_tokens = cuda ? CUDA_STEP : DEFAULT_STEP;
    o->step_tokens = ROSE_MAX(o->step_tokens, o->max_sequences);
    /* While others decode, prefill gets a share that at most triples a step's length. */
    if (!o->prefill_tokens) o->prefill_tokens = ROSE_MAX(o->step_tokens / 4, 32);
    o->prefill_tokens = ROSE_MIN(o->prefill_tokens, o->step_tokens);
    if (!o->depth) o->depth = 1;
    if (!o->kv) o->kv = cuda ? DTYPE_BF16 : DTYPE_F16;
    if (!o->context) o->context = c->context;
}

enum rose_status engine_plan(const struct model_config *c, const struct device_info *info, size_t weights_bytes, struct engine_options *o, struct engine_plan *p,
                             struct rose_error *err)
{
    if (o->context < 0 || o->max_sequences < 0 || o->max_sequences > 4096 || o->step_tokens < 0 || o->step_tokens > 65536 || o->max_waiting < 0)
        return status_set(err, ROSE_INVALID, "an engine limit is out of range: context %d, sequences %d (at most 4096), step tokens %d (at most 65536)", o->context,
                          o->max_sequences, o->step_tokens);
    bool asked = o->context > 0;
    bool cuda = info->kind == DEVICE_CUDA;
    defaults(c, cuda, o);
    *p = (struct engine_plan){.page_tokens = ENGINE_PAGE_TOKENS};
    p->page_bytes = op_cache_page_bytes(o->kv, &c->heads, p->page_tokens, c->group_layers);
    if (!p->page_bytes)
        return status_set(err, ROSE_UNSUPPORTED, "a %s cache cannot hold heads of size %d; use --kv f16", dtype_info(o->kv)->name, c->heads.head_dim);
    size_t block_bytes = p->page_bytes * (size_t)c->groups_count;
    /* What may be used: the free memory less the weights and a tenth for everything else. */
    size_t history = (size_t)o->max_sequences * ((size_t)o->context + 1) * 4;
    size_t spoken = weights_bytes + (cuda ? o->reserve_bytes + history : 0);
    size_t available = info->memory_free > spoken ? (size_t)((double)(info->memory_free - spoken) * (cuda ? 0.95 : 0.9)) : 0;
    size_t limit = o->kv_bytes ? o->kv_bytes : available;
    size_t blocks = limit / block_bytes;
    size_t full = ((size_t)o->context + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS, all = full * (size_t)o->max_sequences;
    if (blocks > all) blocks = all;
    if (blocks > INT32_MAX / 8) blocks = INT32_MAX / 8;
    if (blocks < full) {
        size_t holds = blocks * ENGINE_PAGE_TOKENS;
        if (asked || holds < 64)
            return status_set(err, ROSE_NO_MEMORY, "a context of %d tokens needs %.2f GB of %s cache and %.2f GB are there: %zu tokens would fit; use --ctx %zu or a smaller --kv type",
                              o->context, (double)(full * block_bytes) / 1e9, dtype_info(o->kv)->name, (double)limit / 1e9, holds, holds);
        o->context = (int32_t)holds;
    }
    p->context = o->context;
    p->pages = (int32_t)blocks * c->groups_count;
    p->pool_bytes = (size_t)p->pages * p->page_bytes;
    p->history_bytes = (size_t)o->max_sequences * ((size_t)o->context + 1) * 4;
    return ROSE_OK;
}
