/* The memory plan: context, pages and buffers that fit what the machine has, before anything is taken. */
#include "engine/engine.h"
#include "ops/attention.h"

enum { DEFAULT_SEQUENCES = 64, DEFAULT_WAITING = 4096, DEFAULT_STEP = 512 };
enum { CPU_STRETCH = 2 };
enum { CUDA_SEQUENCES = 256, CUDA_STEP = 8192, CUDA_STEP_EXPERTS = 16384 };

/* Products of a row of the layers, in multiply-adds: the weights that it meets. */
static double row_products(const struct model_config *c)
{
    const struct op_heads *h = &c->heads;
    double n = 0;
    for (int32_t i = 0; i < c->layers; i++) {
        double width = c->layer[i].moe ? (double)c->experts_used * c->expert_intermediate + c->shared_intermediate : c->intermediate;
        n += (double)c->hidden * ((double)(2 * h->heads + h->kv_heads) * h->head_dim + (double)h->kv_heads * h->value_dim + (c->plain_mlp ? 2 : 3) * width);
    }
    return n;
}

/* Rows of prompts beside decode rows on a GPU: half a step, as its products need to run at full rate, or more where a row costs so little that a
 * whole step takes no longer than half a one of 8 billion weights (about 95 ms on an H200). Experts gain: a chunk of 8,192 rows reads their weights
 * half as often as two of 4,096. Where nobody decodes a mixture's steps have 16,384 (256 x 1,024, Qwen3-30B-A3B: 82,600 -> 86,300 tok/s; Llama-3.1-8B
 * loses 1 %). */
static int32_t cuda_prefill(const struct model_config *c, int32_t step_tokens)
{
    enum { UNIT = 1024 };
    const double most = 3.1e13; /* multiply-adds */
    double rows = most / ROSE_MAX(row_products(c), 1.0);
    return rows >= step_tokens ? step_tokens : ROSE_MAX((int32_t)rows / UNIT * UNIT, step_tokens / 2);
}

static void defaults(const struct model_config *c, bool cuda, struct engine_options *o)
{
    if (!o->max_sequences) o->max_sequences = cuda ? CUDA_SEQUENCES : DEFAULT_SEQUENCES;
    if (!o->max_waiting) o->max_waiting = DEFAULT_WAITING;
    bool experts = false;
    for (int32_t i = 0; i < c->layers; i++) experts |= c->layer[i].moe;
    const bool asked = o->step_tokens > 0;
    if (!asked) o->step_tokens = !cuda ? DEFAULT_STEP : experts ? CUDA_STEP_EXPERTS : CUDA_STEP;
    o->step_tokens = ROSE_MAX(o->step_tokens, o->max_sequences);
    /* While others decode, prefill gets at most a quarter of the rows, and of those what `stretch` leaves time for (pace.h). */
    if (!o->prefill_tokens) o->prefill_tokens = ROSE_MAX(cuda ? cuda_prefill(c, asked ? o->step_tokens : CUDA_STEP) : o->step_tokens / 4, 32);
    o->prefill_tokens = ROSE_MIN(o->prefill_tokens, o->step_tokens);
    if (o->stretch <= 0) o->stretch = cuda ? 0 : CPU_STRETCH;
    if (o->stretch >= ENGINE_NO_STRETCH) o->stretch = 0;
    if (!o->depth) o->depth = 1;
    if (!o->kv) o->kv = cuda ? DTYPE_BF16 : DTYPE_F16;
    if (!o->context) o->context = c->context;
}

/* A context that has no room: what would make it fit. */
static enum rose_status does_not_fit(const struct model_config *c, bool cuda, const struct engine_options *o, size_t limit, size_t block_bytes, size_t full,
                                     struct rose_error *err)
{
    struct strbuf b = {.limit = 900};
    size_t holds = limit / block_bytes * ENGINE_PAGE_TOKENS, need = full * block_bytes;
    enum dtype small = cuda ? DTYPE_F8_E4M3 : DTYPE_Q8_0;
    size_t small_block = op_cache_page_bytes(small, &c->heads, ENGINE_PAGE_TOKENS, c->group_layers) * (size_t)c->groups_count;
    strbuf_printf(&b, "a context of %d tokens needs %.2f GB of %s cache and %.2f GB are there: %zu tokens would fit", o->context, (double)need / 1e9, dtype_info(o->kv)->name,
                  (double)limit / 1e9, holds);
    size_t own = ROSE_MIN(holds, (size_t)c->context); /* more than the model was made for is no advice */
    if (holds >= ENGINE_PAGE_TOKENS) strbuf_printf(&b, own < holds ? "; use --ctx %zu, which the model was made for" : "; use --ctx %zu", own);
    if (small_block && small_block < block_bytes && full * small_block <= limit) strbuf_printf(&b, ", or --kv %s", cuda ? "fp8" : "q8_0");
    /* What another sequence takes beside its pages: a history, and logits with their copies for sampling. */
    size_t each = ((size_t)o->context + 1) * 4 + (cuda ? (size_t)c->vocabulary * 12 : 0), fewer = (size_t)((double)(need - limit) / (0.95 * (double)each)) + 1;
    if (cuda && !o->kv_bytes && fewer < (size_t)o->max_sequences) strbuf_printf(&b, ", or --max-sequences %zu", (size_t)o->max_sequences - fewer);
    if (o->kv_bytes) strbuf_printf(&b, ", or --kv-bytes %zu", need);
    enum rose_status s = status_set(err, ROSE_NO_MEMORY, "%s", b.p ? b.p : "the key-value cache does not fit the device's memory");
    strbuf_free(&b);
    return s;
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
    if (o->memory_share > 0 && o->memory_share < 1) available = (size_t)((double)available * o->memory_share);
    size_t limit = o->kv_bytes ? o->kv_bytes : available;
    size_t blocks = limit / block_bytes;
    size_t full = ((size_t)o->context + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS, all = full * (size_t)o->max_sequences;
    if (blocks > all) blocks = all;
    if (blocks > INT32_MAX / 8) blocks = INT32_MAX / 8;
    if (blocks < full) {
        size_t holds = blocks * ENGINE_PAGE_TOKENS;
        if (asked || holds < 64) return does_not_fit(c, cuda, o, limit, block_bytes, full, err);
        o->context = (int32_t)holds;
    }
    p->context = o->context;
    p->pages = (int32_t)blocks * c->groups_count;
    p->pool_bytes = (size_t)p->pages * p->page_bytes;
    p->history_bytes = (size_t)o->max_sequences * ((size_t)o->context + 1) * 4;
    return ROSE_OK;
}
