/* Requests beside generation: texts, pairs and prompts become token ids, wishes meet what the model can do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

enum rose_status task_weights(const struct rose_engine *e, const char *weights, enum dtype *out, struct rose_error *err)
{
    bool cuda = e->device->device->info.kind == DEVICE_CUDA;
    *out = DTYPE_NONE;
    if (!weights || !strcmp(weights, "file")) return ROSE_OK;
    if (!strcmp(weights, "bf16")) *out = DTYPE_BF16;
    else if (!strcmp(weights, "f16")) *out = DTYPE_F16;
    else if (!strcmp(weights, "q8_0")) *out = DTYPE_Q8_0;
    else return status_set(err, ROSE_INVALID, "weights \"%s\" is none of file, bf16, f16, q8_0", weights);
    if (cuda && *out == DTYPE_Q8_0) return status_set(err, ROSE_UNSUPPORTED, "--weights q8_0 is for the CPU; a GPU computes in bf16 or f16, and reads blocks of GGUF files as they are");
    return ROSE_OK;
}

enum rose_status task_wish(const struct rose_engine *e, const char *name, const char *weights, struct head_wish *out, struct rose_error *err)
{
    static const struct { const char *name; enum model_task task; } known[] = {
        {"auto", MODEL_AUTO}, {"generate", MODEL_GENERATE}, {"embed", MODEL_EMBED}, {"classify", MODEL_CLASSIFY}, {"score", MODEL_AUTO}};
    const struct tokenizer *t = e->text.tokenizer;
    *out = (struct head_wish){.yes = (int32_t)tokenizer_find(t, STR("yes")), .no = (int32_t)tokenizer_find(t, STR("no"))};
    ROSE_TRY(task_weights(e, weights, &out->weights, err));
    if (!name) return ROSE_OK;
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (!strcmp(name, known[i].name)) return out->task = known[i].task, out->score = !strcmp(name, "score"), ROSE_OK;
    return status_set(err, ROSE_INVALID, "task \"%s\" is none of auto, generate, embed, classify, score", name);
}

static unsigned abilities(const struct model_head *h)
{
    switch (h->task) {
    case MODEL_EMBED: return ROSE_CAN_EMBED | (h->sparse ? ROSE_CAN_SPARSE : 0);
    case MODEL_CLASSIFY: return ROSE_CAN_CLASSIFY | (h->labels == 1 ? ROSE_CAN_SCORE : 0);
    case MODEL_CLASSIFY_TOKENS: return ROSE_CAN_CLASSIFY_TOKENS;
    case MODEL_YES_NO: return ROSE_CAN_SCORE;
    default: return ROSE_CAN_GENERATE;
    }
}

void task_info(const struct rose_engine *e, struct rose_model_info *i)
{
    const struct model_config *c = &e->model->config;
    const struct model_head *h = &c->head;
    const struct pool *p = e->pool;
    i->tasks = abilities(h);
    i->embedding_size = h->task == MODEL_EMBED ? h->embedding : 0;
    i->longest_input = i->context = p->options.context;
    i->model_context = c->context;
    i->vocabulary = c->vocabulary;
    i->layers = c->layers;
    i->hidden = c->hidden;
    i->kv_type = "none";
    i->weights_bytes = e->model->memory_bytes;
    i->work_bytes = pool_memory_bytes(p);
    i->max_sequences = p->options.max_sequences;
    i->step_tokens = p->options.step_tokens;
    i->counted_positions = c->positions > 0 && !c->position_offset;
    if (h->task == MODEL_EMBED) {
        i->pooling = h->per_token ? "none" : head_pooling_name(h->pooling);
        i->normalized = h->normalize;
        i->similarity = h->similarity;
        i->prompts = h->prompt;
        i->prompt_texts = h->prompt_text;
        i->prompts_count = h->prompts_count;
        i->default_prompt = h->default_prompt;
        return;
    }
    i->labels = h->label;
    i->labels_count = h->task == MODEL_YES_NO ? 0 : h->labels;
    i->problem_type = h->problem_type ? h->problem_type : h->task == MODEL_YES_NO ? NULL : h->labels > 1 ? "single_label_classification" : "regression";
}

/* --- token ids ------------------------------------------------------------------------------------------------------------------ */

struct input {
    struct token_ids ids, types;
    bool typed; /* types count */
    int32_t skip;
};

/* Where `part` lies in ids at or after from, looked for in the first few places (special tokens stand before it); -1: nowhere. */
static ptrdiff_t place_of(const struct token_ids *ids, const struct token_ids *part, size_t from)
{
    enum { SPECIALS = 8 };
    for (size_t at = from; at < from + SPECIALS && at + part->n <= ids->n; at++)
        if (!part->n || !memcmp(ids->p + at, part->p, part->n * sizeof *part->p)) return (ptrdiff_t)at;
    return -1;
}

static void cut(struct input *in, size_t at, size_t n, size_t keep, bool left)
{
    size_t from = left ? at : at + keep, gone = n - keep;
    memmove(in->ids.p + from, in->ids.p + from + gone, (in->ids.n - from - gone) * sizeof *in->ids.p);
    if (in->typed) memmove(in->types.p + from, in->types.p + from + gone, (in->types.n - from - gone) * sizeof *in->types.p);
    in->ids.n -= gone;
    if (in->typed) in->types.n -= gone;
}

/* Shorten to `most` ids: special tokens stay, the longer of two texts gives first (as `tokenizers` does: longest first). */
static enum rose_status shorten(const struct rose_engine *e, struct str a, const struct str *b, unsigned flags, bool left, size_t most, struct input *in,
                                struct rose_error *err)
{
    struct token_ids first = {0}, second = {0};
    unsigned plain = flags & ~(unsigned)(TOKENIZER_ADD_SPECIAL | TOKENIZER_ONE_BOS);
    enum rose_status s = tokenizer_encode(e->text.tokenizer, a, plain, &first, err);
    if (s == ROSE_OK && b) s = tokenizer_encode(e->text.tokenizer, *b, plain, &second, err);
    size_t specials = in->ids.n - first.n - second.n, n1 = first.n, n2 = second.n;
    ptrdiff_t at1 = s == ROSE_OK ? place_of(&in->ids, &first, 0) : -1, at2 = at1 >= 0 && b ? place_of(&in->ids, &second, (size_t)at1 + first.n) : at1;
    token_ids_free(&first);
    token_ids_free(&second);
    if (s != ROSE_OK) return s;
    if (at1 < 0 || at2 < 0) return status_set(err, ROSE_UNSUPPORTED, "this tokenizer changes texts when it adds special tokens: shorten the text yourself");
    if (specials >= most) return status_set(err, ROSE_LIMIT, "%zu tokens leave no room for a text beside the %zu special ones", most, specials);
    size_t room = most - specials, small = ROSE_MIN(n1, n2), large;
    if (b) {
        large = small > room ? small : ROSE_MAX(small, room - small);
        if (small + large > room) small = room / 2, large = small + room % 2;
        size_t k1 = n1 <= n2 ? ROSE_MIN(small, n1) : ROSE_MIN(large, n1), k2 = n1 <= n2 ? ROSE_MIN(large, n2) : ROSE_MIN(small, n2);
        cut(in, (size_t)at2, n2, k2, left);
        cut(in, (size_t)at1, n1, k1, left);
    } else {
        cut(in, (size_t)at1, n1, ROSE_MIN(n1, room), left);
    }
    return ROSE_OK;
}

/* Tokens that a text may have, given the request's wish. */
static size_t most_of(const struct rose_engine *e, const struct rose_request *r)
{
    size_t most = (size_t)e->pool->options.context;
    return r->truncate != ROSE_TRUNCATE_NONE && r->truncate_tokens > 0 ? ROSE_MIN(most, (size_t)r->truncate_tokens) : most;
}

static enum rose_status too_long(const struct rose_engine *e, bool more, size_t n, struct rose_error *err)
{
    return status_set(err, ROSE_LIMIT, "the text has %s%zu tokens and the model takes %d at most; shorten it or ask for truncation", more ? "more than " : "", n,
                      e->pool->options.context);
}

static enum rose_status encode(const struct rose_engine *e, const struct rose_request *r, struct str a, const struct str *b, struct input *in, struct rose_error *err)
{
    unsigned flags = (r->tokenize_flags & ROSE_TOKENIZE_NO_SPECIAL ? 0 : TOKENIZER_ADD_SPECIAL | TOKENIZER_ONE_BOS) |
                     (r->tokenize_flags & ROSE_TOKENIZE_PARSE_SPECIAL ? TOKENIZER_PARSE_SPECIAL : 0);
    size_t most = most_of(e, r);
    if (r->truncate == ROSE_TRUNCATE_NONE) in->ids.limit = most * 2 + 1024; /* what is refused anyhow need not be tokenised to its end */
    in->typed = b != NULL;
    enum rose_status s = b ? tokenizer_encode_pair(e->text.tokenizer, a, *b, flags, &in->ids, &in->types, err) : tokenizer_encode(e->text.tokenizer, a, flags, &in->ids, err);
    if (s == ROSE_LIMIT && in->ids.n > most) return too_long(e, true, in->ids.n, err);
    if (s != ROSE_OK || in->ids.n <= most) return s;
    if (r->truncate == ROSE_TRUNCATE_NONE) return too_long(e, false, in->ids.n, err);
    return shorten(e, a, b, flags, r->truncate == ROSE_TRUNCATE_LEFT, most, in, err);
}

/* --- the text of a reranker that answers yes or no ------------------------------------------------------------------------------- */

static const char judge_before[] = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer "
                                   "can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
static const char judge_after[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char judge_instruction[] = "Given a web search query, retrieve relevant passages that answer the query";

/* The form that the Qwen3 rerankers were trained on: the frame's control tokens count, the texts' if asked for. */
static enum rose_status encode_judge(const struct rose_engine *e, const struct rose_request *r, struct str query, struct str document, struct input *in, struct rose_error *err)
{
    const struct tokenizer *t = e->text.tokenizer;
    struct token_ids before = {0}, body = {0}, after = {0};
    struct strbuf text = {0};
    size_t most = most_of(e, r);
    strbuf_printf(&text, "<Instruct>: %s\n<Query>: ", r->instruction ? r->instruction : judge_instruction);
    strbuf_add(&text, query.p, query.n);
    strbuf_adds(&text, "\n<Document>: ");
    strbuf_add(&text, document.p, document.n);
    enum rose_status s = text.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : ROSE_OK;
    if (s == ROSE_OK) s = tokenizer_encode(t, str_of(judge_before), TOKENIZER_PARSE_SPECIAL, &before, err);
    if (s == ROSE_OK) s = tokenizer_encode(t, strbuf_str(&text), r->tokenize_flags & ROSE_TOKENIZE_PARSE_SPECIAL ? TOKENIZER_PARSE_SPECIAL : 0, &body, err);
    if (s == ROSE_OK) s = tokenizer_encode(t, str_of(judge_after), TOKENIZER_PARSE_SPECIAL, &after, err);
    strbuf_free(&text);
    size_t frame = before.n + after.n, keep = body.n;
    if (s == ROSE_OK && frame + body.n > most) {
        if (r->truncate == ROSE_TRUNCATE_NONE) s = too_long(e, false, frame + body.n, err);
        else if (frame >= most) s = status_set(err, ROSE_LIMIT, "%zu tokens leave no room for a text beside the %zu of the template", most, frame);
        else keep = most - frame;
    }
    size_t from = r->truncate == ROSE_TRUNCATE_LEFT ? body.n - keep : 0;
    for (size_t i = 0; s == ROSE_OK && i < frame + keep; i++) {
        uint32_t id = i < before.n ? before.p[i] : i < before.n + keep ? body.p[from + i - before.n] : after.p[i - before.n - keep];
        if (!token_ids_add(&in->ids, id)) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    token_ids_free(&before);
    token_ids_free(&body);
    token_ids_free(&after);
    return s;
}

/* A chat template with the roles of sentence-transformers' rerankers. */
static bool has_rerank_template(const struct rose_engine *e)
{
    struct str t = e->text.chat_template_text ? str_of(e->text.chat_template_text) : (struct str){"", 0};
    return str_find(t, STR("\"document\""), 0) >= 0 && str_find(t, STR("\"query\""), 0) >= 0;
}

static enum rose_status encode_roles(const struct rose_engine *e, const struct rose_request *r, struct str query, struct str document, struct input *in, struct rose_error *err)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "{\"messages\":[");
    if (r->instruction) {
        strbuf_adds(&b, "{\"role\":\"system\",\"content\":");
        json_add_str(&b, str_of(r->instruction));
        strbuf_adds(&b, "},");
    }
    strbuf_adds(&b, "{\"role\":\"query\",\"content\":");
    json_add_str(&b, query);
    strbuf_adds(&b, "},{\"role\":\"document\",\"content\":");
    json_add_str(&b, document);
    strbuf_adds(&b, "}]}");
    enum rose_status s = b.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : text_encode_chat(&e->text, strbuf_str(&b), 0, &in->ids, err);
    strbuf_free(&b);
    return s;
}

/* The document gives until the whole fits: what remains of its tokens becomes text again. */
static enum rose_status encode_template(const struct rose_engine *e, const struct rose_request *r, struct str query, struct str document, struct input *in,
                                        struct rose_error *err)
{
    size_t most = most_of(e, r);
    struct strbuf shorter = {0};
    enum rose_status s = encode_roles(e, r, query, document, in, err);
    for (int tries = 0; s == ROSE_OK && in->ids.n > most; tries++) {
        struct token_ids own = {0};
        if (r->truncate == ROSE_TRUNCATE_NONE) s = too_long(e, false, in->ids.n, err);
        if (s == ROSE_OK) s = tokenizer_encode(e->text.tokenizer, document, 0, &own, err);
        size_t excess = in->ids.n - most + (size_t)tries;
        if (s == ROSE_OK && (own.n <= excess || tries == 8)) s = status_set(err, ROSE_LIMIT, "%zu tokens leave no room for a document beside the template and the query", most);
        size_t from = r->truncate == ROSE_TRUNCATE_LEFT ? excess : 0;
        struct strbuf next = {0};
        if (s == ROSE_OK) s = tokenizer_decode(e->text.tokenizer, own.p + from, own.n - excess, 0, &next, err);
        token_ids_free(&own);
        strbuf_free(&shorter);
        shorter = next;
        document = strbuf_str(&shorter);
        in->ids.n = 0;
        if (s == ROSE_OK) s = encode_roles(e, r, query, document, in, err);
    }
    strbuf_free(&shorter);
    return s;
}

/* --- requests ---------------------------------------------------------------------------------------------------------------------- */

/* The prompt that goes before a text; *out empty: none. */
static enum rose_status prompt_of(const struct rose_engine *e, const struct rose_request *r, struct str *out, struct rose_error *err)
{
    const struct model_head *h = &e->model->config.head;
    const char *name = r->prompt_name ? r->prompt_name : h->default_prompt;
    *out = (struct str){"", 0};
    if (!name || !*name) return ROSE_OK;
    for (int32_t i = 0; i < h->prompts_count; i++)
        if (!strcmp(h->prompt[i], name)) return *out = str_of(h->prompt_text[i]), ROSE_OK;
    struct strbuf list = {.limit = 400};
    for (int32_t i = 0; i < h->prompts_count; i++) strbuf_printf(&list, "%s%s", i ? ", " : "", h->prompt[i]);
    enum rose_status s = status_set(err, ROSE_INVALID, "the model has no prompt \"%.100s\"; it has: %s", name, h->prompts_count && list.p ? list.p : "none");
    strbuf_free(&list);
    return s;
}

static enum rose_status encode_embed(const struct rose_engine *e, const struct rose_request *r, struct input *in, struct rose_error *err)
{
    const struct model_head *h = &e->model->config.head;
    struct str prompt, text = {r->prompt, r->prompt_bytes};
    ROSE_TRY(prompt_of(e, r, &prompt, err));
    if (!prompt.n) return encode(e, r, text, NULL, in, err);
    struct strbuf joined = {0};
    strbuf_add(&joined, prompt.p, prompt.n);
    strbuf_add(&joined, text.p, text.n);
    enum rose_status s = joined.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : encode(e, r, strbuf_str(&joined), NULL, in, err);
    strbuf_free(&joined);
    if (s != ROSE_OK || !h->skip_prompt) return s;
    struct token_ids alone = {0};
    s = tokenizer_encode(e->text.tokenizer, prompt, TOKENIZER_ADD_SPECIAL, &alone, err);
    if (s == ROSE_OK && alone.n) in->skip = (int32_t)(alone.n - tokenizer_is_special(e->text.tokenizer, alone.p[alone.n - 1]));
    token_ids_free(&alone);
    return s;
}

static enum rose_status encode_tokens(const struct rose_engine *e, const struct rose_request *r, struct input *in, struct rose_error *err)
{
    size_t most = most_of(e, r), n = r->tokens_count, from = 0;
    if (n > most && r->truncate == ROSE_TRUNCATE_NONE) return too_long(e, false, n, err);
    if (n > most && r->truncate == ROSE_TRUNCATE_LEFT) from = n - most;
    in->typed = r->token_types != NULL;
    int32_t types = ROSE_MAX(e->model->config.types, 1);
    for (size_t i = from; i < from + ROSE_MIN(n, most); i++) {
        if (in->typed && (r->token_types[i] < 0 || r->token_types[i] >= types))
            return status_set(err, ROSE_INVALID, "token type %d: the model has %d, from 0 on", r->token_types[i], types);
        if (!token_ids_add(&in->ids, (uint32_t)r->tokens[i]) || (in->typed && !token_ids_add(&in->types, (uint32_t)r->token_types[i]))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    }
    return ROSE_OK;
}

static enum rose_status encode_request(const struct rose_engine *e, const struct rose_request *r, struct input *in, struct rose_error *err)
{
    const struct model_head *h = &e->model->config.head;
    struct str text = {r->prompt, r->prompt_bytes}, pair = {r->pair, r->pair_bytes};
    if ((unsigned)r->truncate > ROSE_TRUNCATE_RIGHT || r->truncate_tokens < 0) return status_set(err, ROSE_INVALID, "truncation must be none, left or right, its tokens not negative");
    if (r->kind == ROSE_REQUEST_TOKENS) {
        if (r->pair) return status_set(err, ROSE_INVALID, "a pair of texts goes with texts: token ids are both of them already");
        if (r->prompt_name && *r->prompt_name) {
            struct str prompt;
            ROSE_TRY(prompt_of(e, r, &prompt, err));
            return status_set(err, ROSE_INVALID, "prompt \"%.100s\" goes before texts: token ids are taken as they are", r->prompt_name);
        }
        return encode_tokens(e, r, in, err);
    }
    if (r->kind == ROSE_REQUEST_CHAT) {
        if (r->task != ROSE_TASK_EMBED) return status_set(err, ROSE_INVALID, "only embeddings take a chat");
        ROSE_TRY(text_encode_chat(&e->text, text, 0, &in->ids, err));
        return in->ids.n > (size_t)e->pool->options.context ? too_long(e, false, in->ids.n, err) : ROSE_OK;
    }
    if (r->kind != ROSE_REQUEST_TEXT) return status_set(err, ROSE_INVALID, "unknown kind of request");
    if (r->task == ROSE_TASK_EMBED) return encode_embed(e, r, in, err);
    if (r->task == ROSE_TASK_SCORE && !r->pair) return status_set(err, ROSE_INVALID, "a score wants a query and a document");
    if (r->task == ROSE_TASK_SCORE && h->judge_template) return (has_rerank_template(e) ? encode_template : encode_judge)(e, r, text, pair, in, err);
    return encode(e, r, text, r->pair ? &pair : NULL, in, err);
}

static enum rose_status cannot(const struct rose_engine *e, enum rose_task task, struct rose_error *err)
{
    static const char *const asked[] = {"generate text", "embed", "classify", "score pairs"};
    static const struct { unsigned bit; const char *what; } can[] = {{ROSE_CAN_EMBED, "embeds"}, {ROSE_CAN_CLASSIFY, "classifies"},
                                                                     {ROSE_CAN_CLASSIFY_TOKENS, "classifies tokens"}, {ROSE_CAN_SCORE, "scores pairs of texts"}};
    unsigned bits = abilities(&e->model->config.head);
    char list[160] = "";
    for (size_t i = 0, n = 0; i < ROSE_COUNT(can); i++)
        if (bits & can[i].bit) n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? " and " : "", can[i].what);
    return status_set(err, ROSE_UNSUPPORTED, "%s cannot %s: it %s", e->info.name ? e->info.name : "this model", (unsigned)task < ROSE_COUNT(asked) ? asked[task] : "do that", list);
}

static enum rose_status embed_wish(const struct rose_engine *e, const struct rose_request *r, struct pool_wish *w, struct rose_error *err)
{
    static const enum op_pooling of[] = {[ROSE_POOL_CLS] = OP_POOL_CLS, [ROSE_POOL_MEAN] = OP_POOL_MEAN, [ROSE_POOL_LAST] = OP_POOL_LAST,
                                         [ROSE_POOL_WEIGHTED_MEAN] = OP_POOL_WEIGHTED_MEAN, [ROSE_POOL_MAX] = OP_POOL_MAX};
    const struct model_head *h = &e->model->config.head;
    if ((unsigned)r->pooling > ROSE_POOL_NONE) return status_set(err, ROSE_INVALID, "unknown pooling %d", (int)r->pooling);
    if (r->sparse && !h->sparse) return status_set(err, ROSE_UNSUPPORTED, "%s has no lexical head: it gives no sparse embeddings", e->info.name);
    w->sparse = r->sparse;
    w->per_token = r->pooling == ROSE_POOL_NONE || (r->pooling == ROSE_POOL_MODEL && h->per_token);
    if (r->pooling != ROSE_POOL_MODEL && r->pooling != ROSE_POOL_NONE) w->pooling = of[r->pooling];
    int32_t size = w->per_token ? e->model->config.hidden : h->embedding;
    if (r->dimensions < 0 || r->dimensions > size) return status_set(err, ROSE_INVALID, "dimensions must lie between 1 and %d, found %d", size, r->dimensions);
    w->dimensions = r->dimensions;
    w->normalize = r->normalize == ROSE_DEFAULT ? h->normalize && !w->per_token : r->normalize == ROSE_ON; /* rows of tokens stay as they are */
    const struct tokenizer_facts *f = tokenizer_facts(e->text.tokenizer);
    const int64_t special[4] = {f->cls, f->sep, f->pad, f->unk};
    for (int i = 0; i < 4; i++)
        if (special[i] >= 0) w->special[w->special_count++] = (int32_t)special[i];
    return ROSE_OK;
}

static enum rose_status wish_of(const struct rose_engine *e, const struct rose_request *r, struct pool_wish *w, struct rose_error *err)
{
    const struct model_head *h = &e->model->config.head;
    unsigned bits = abilities(h);
    *w = (struct pool_wish){.task = r->task, .pooling = h->pooling};
    switch (r->task) {
    case ROSE_TASK_EMBED: return bits & ROSE_CAN_EMBED ? embed_wish(e, r, w, err) : cannot(e, r->task, err);
    case ROSE_TASK_CLASSIFY:
        if (!(bits & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS))) return cannot(e, r->task, err);
        w->activation = h->activation;
        if (r->activation == ROSE_ON && h->activation == HEAD_IDENTITY) w->activation = h->labels > 1 ? HEAD_SOFTMAX : HEAD_SIGMOID;
        break;
    case ROSE_TASK_SCORE:
        if (!(bits & ROSE_CAN_SCORE)) return cannot(e, r->task, err);
        w->activation = r->activation == ROSE_ON ? HEAD_SIGMOID : h->score_activation;
        break;
    default: return cannot(e, r->task, err);
    }
    if (r->activation == ROSE_OFF) w->activation = HEAD_IDENTITY;
    return ROSE_OK;
}

enum rose_status task_submit(struct rose_engine *e, const struct rose_request *r, uint64_t *id, struct rose_error *err)
{
    struct pool_wish wish;
    struct input in = {0};
    ROSE_TRY(wish_of(e, r, &wish, err));
    enum rose_status s = encode_request(e, r, &in, err);
    wish.skip = in.skip;
    if (s == ROSE_OK) s = pool_submit(e->pool, r, &wish, (const int32_t *)in.ids.p, in.typed ? in.types.p : NULL, in.ids.n, id, err);
    token_ids_free(&in.ids);
    token_ids_free(&in.types);
    return s;
}
