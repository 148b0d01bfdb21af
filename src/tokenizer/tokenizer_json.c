#include <stdlib.h>

#include "base/utf8.h"
#include "tokenizer/internal.h"
#include "tokenizer/unicode.h"

/* tokenizer.json: model, vocabulary and added tokens. The pipeline's steps are read by steps_json.c. */

static enum rose_status bad(struct rose_error *err, const struct json *at, const char *what)
{
    return status_at(err, ROSE_FORMAT, "tokenizer.json", at ? (int64_t)at->offset : -1, "tokenizer.json: %s",
                     what);
}

static enum rose_status no_memory(struct rose_error *err)
{
    return status_set(err, ROSE_NO_MEMORY, "no memory for the tokenizer");
}

/* One more than the highest id, checked against what an honest vocabulary can have; 0 and err on failure. */
static enum rose_status id_range(const struct json *vocab, const struct json *added, size_t *size,
                                 struct rose_error *err)
{
    size_t count = (vocab ? vocab->count : 0) + (size_t)(added ? added->count : 0);
    int64_t top = (int64_t)count - 1;
    if (json_is(vocab, JSON_OBJECT))
        for (uint32_t i = 0; i < vocab->count; i++) {
            const struct json *v = &json_member(vocab, i)->value;
            if (!json_is(v, JSON_NUMBER) || !v->is_integer || v->integer < 0)
                return bad(err, v, "an id in model.vocab is not a whole number");
            if (v->integer > top) top = v->integer;
        }
    if (top >= (int64_t)(16 * count + 65536))
        return bad(err, vocab, "an id in model.vocab is far beyond the number of tokens");
    *size = (size_t)(top + 1);
    return ROSE_OK;
}

/* Copy the texts of the vocabulary into one block and enter them. */
static enum rose_status read_vocab(struct tokenizer *t, const struct json *vocab, const struct json *added,
                                   struct rose_error *err)
{
    bool list = json_is(vocab, JSON_ARRAY);
    size_t size = 0, bytes = 0;
    if (!list && !json_is(vocab, JSON_OBJECT)) return bad(err, vocab, "model.vocab is missing");
    ROSE_TRY(id_range(vocab, added, &size, err));
    for (uint32_t i = 0; i < vocab->count; i++) {
        const struct json *item = list ? json_at(vocab, i) : NULL;
        if (list && (!json_is(item, JSON_ARRAY) || item->count != 2 ||
                     !json_is(json_at(item, 0), JSON_STRING) || !json_is(json_at(item, 1), JSON_NUMBER)))
            return bad(err, item, "an entry of model.vocab is not [token, score]");
        bytes += list ? json_at(item, 0)->string.n : json_member(vocab, i)->key.n;
    }
    char *p = arena_alloc(&t->arena, bytes + 1);
    t->id_flags = ARENA_ARRAY(&t->arena, uint8_t, size + 1);
    if (!p || !t->id_flags || !vocab_init(&t->vocab, &t->arena, size, vocab->count)) return no_memory(err);
    if (list && !(t->scores = ARENA_ARRAY(&t->arena, double, size + 1))) return no_memory(err);
    for (uint32_t i = 0; i < vocab->count; i++) {
        struct str s = list ? json_at(json_at(vocab, i), 0)->string : json_member(vocab, i)->key;
        if (s.n) memcpy(p, s.p, s.n);
        vocab_put(&t->vocab, (struct str){p, s.n}, list ? i : (uint32_t)json_member(vocab, i)->value.integer);
        if (list) t->scores[i] = json_at(json_at(vocab, i), 1)->number;
        p += s.n;
    }
    return ROSE_OK;
}

static uint32_t find(const struct tokenizer *t, struct str s)
{
    return vocab_get(&t->vocab, s.p ? s.p : "", s.n);
}

static enum rose_status read_merges(struct tokenizer *t, const struct json *merges, struct rose_error *err)
{
    if (!json_is(merges, JSON_ARRAY)) return bad(err, merges, "model.merges is missing");
    struct strbuf joined = {0};
    enum rose_status status = pairs_init(&t->pairs, &t->arena, merges->count) ? ROSE_OK : no_memory(err);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < merges->count && !status; i++) {
        const struct json *m = json_at(merges, i);
        struct str left, right;
        if (json_is(m, JSON_ARRAY) && m->count == 2 && json_is(json_at(m, 0), JSON_STRING) &&
            json_is(json_at(m, 1), JSON_STRING))
            left = json_at(m, 0)->string, right = json_at(m, 1)->string;
        else if (json_is(m, JSON_STRING) && str_starts(m->string, STR("#version")))
            continue;
        else if (!json_is(m, JSON_STRING) || !bpe_split_merge(m->string, &left, &right)) {
            status = bad(err, m, "an entry of model.merges is not two tokens");
            break;
        }
        joined.n = 0;
        strbuf_add(&joined, left.p, left.n);
        if (str_starts(right, t->prefix))
            strbuf_add(&joined, right.p + t->prefix.n, right.n - t->prefix.n);
        else
            status = bad(err, m, "the right half of a merge lacks the continuing_subword_prefix");
        uint32_t l = find(t, left), r = find(t, right), id = find(t, strbuf_str(&joined));
        if (!status && (l == TOKEN_NONE || r == TOKEN_NONE || id == TOKEN_NONE))
            status = bad(err, m, "a merge speaks of a token that model.vocab lacks");
        if (!status) pairs_put(&t->pairs, l, r, rank++, id);
    }
    strbuf_free(&joined);
    return status;
}

static enum rose_status optional_text(struct tokenizer *t, const struct json *v, struct str *out,
                                      struct rose_error *err)
{
    if (json_is_null(v)) return ROSE_OK;
    if (!json_is(v, JSON_STRING)) return bad(err, v, "a string was expected");
    *out = tokenizer_copy(t, v->string);
    return out->p ? ROSE_OK : no_memory(err);
}

static enum rose_status read_model(struct tokenizer *t, const struct json *root, struct rose_error *err)
{
    static const char *const names[] = {"BPE", "Unigram", "WordPiece", "WordLevel"};
    const struct json *model = json_get(root, "model"), *vocab = json_get(model, "vocab");
    if (!json_is(model, JSON_OBJECT)) return bad(err, model, "the member model is missing");
    int kind = -1;
    struct str type = json_str(json_get(model, "type"), "");
    for (int i = 0; i < 4; i++)
        if (str_is(type, names[i])) kind = i;
    if (!type.n) /* old files do not say */
        kind = json_get(model, "merges")                      ? MODEL_BPE
               : json_is(vocab, JSON_ARRAY)                   ? MODEL_UNIGRAM
               : json_get(model, "continuing_subword_prefix") ? MODEL_WORDPIECE
                                                              : MODEL_WORDLEVEL;
    if (kind < 0)
        return status_set(err, ROSE_UNSUPPORTED, "tokenizer.json: the model type \"%.*s\" is unknown",
                          (int)ROSE_MIN(type.n, 60), type.p);
    t->model = (enum model_kind)kind;
    if ((kind == MODEL_UNIGRAM) != json_is(vocab, JSON_ARRAY))
        return bad(err, vocab, "model.vocab is not of the form that the model type has");
    ROSE_TRY(read_vocab(t, vocab, json_get(root, "added_tokens"), err));
    t->byte_fallback = json_bool(json_get(model, "byte_fallback"), false);
    t->fuse_unk = json_bool(json_get(model, "fuse_unk"), false);
    t->ignore_merges = json_bool(json_get(model, "ignore_merges"), false);
    ROSE_TRY(optional_text(t, json_get(model, "continuing_subword_prefix"), &t->prefix, err));
    ROSE_TRY(optional_text(t, json_get(model, "end_of_word_suffix"), &t->suffix, err));
    int64_t chars = json_int(json_get(model, "max_input_chars_per_word"), 100);
    t->max_chars = chars > 0 ? (size_t)chars : 0;
    if (kind == MODEL_WORDPIECE && !t->prefix.p) t->prefix = STR("##");
    if (kind == MODEL_UNIGRAM) {
        const struct json *unk = json_get(model, "unk_id");
        if (!json_is_null(unk)) {
            if (json_int(unk, -1) < 0 || json_int(unk, -1) >= (int64_t)vocab->count)
                return bad(err, unk, "model.unk_id is no id of the vocabulary");
            t->unk = (uint32_t)json_int(unk, 0);
        }
    } else {
        const char *usual = kind == MODEL_WORDPIECE ? "[UNK]" : kind == MODEL_WORDLEVEL ? "<unk>" : NULL;
        struct str unk = json_str(json_get(model, "unk_token"), usual);
        if (unk.p) t->unk = find(t, unk);
    }
    return kind == MODEL_BPE ? read_merges(t, json_get(model, "merges"), err) : ROSE_OK;
}

static enum rose_status read_added(struct tokenizer *t, const struct json *list, struct rose_error *err)
{
    size_t model_count = 0; /* ids of new tokens follow the number of model tokens, whatever the file says */
    for (uint32_t i = 0; i <= t->vocab.mask; i++) model_count += t->vocab.slots[i].id != TOKEN_NONE;
    if (json_is_null(list)) return ROSE_OK;
    if (!json_is(list, JSON_ARRAY)) return bad(err, list, "added_tokens is no array");
    t->added = ARENA_ARRAY(&t->arena, struct added_token, (size_t)list->count + 1);
    struct vocab seen;
    struct arena scratch;
    arena_init(&scratch, 0);
    enum rose_status status = t->added && vocab_init(&seen, &scratch, (size_t)list->count + 1, list->count)
                                  ? ROSE_OK
                                  : no_memory(err);
    size_t next = model_count;
    for (uint32_t i = 0; i < list->count && !status; i++) {
        const struct json *v = json_at(list, i), *content = json_get(v, "content");
        if (!json_is(content, JSON_STRING))
            status = bad(err, v, "an added token has no content");
        else if (content->string.n) {
            uint32_t at = vocab_get(&seen, content->string.p, content->string.n);
            struct added_token *a = &t->added[at == TOKEN_NONE ? t->added_count : at];
            if (at == TOKEN_NONE) {
                *a = (struct added_token){.text = tokenizer_copy(t, content->string),
                                          .id = find(t, content->string)};
                if (!a->text.p) status = no_memory(err);
                if (a->id == TOKEN_NONE) a->id = (uint32_t)next++;
                vocab_put(&seen, content->string, (uint32_t)t->added_count++);
            }
            a->special = json_bool(json_get(v, "special"), false);
            a->normalized = json_bool(json_get(v, "normalized"), true);
            a->single_word = json_bool(json_get(v, "single_word"), false);
            a->lstrip = json_bool(json_get(v, "lstrip"), false);
            a->rstrip = json_bool(json_get(v, "rstrip"), false);
            if (a->id >= t->vocab.size)
                status = bad(err, v, "an added token has an id beyond the vocabulary");
        }
    }
    arena_free(&scratch);
    return status;
}

/* A special token's id by its name in a configuration: a string or an object with content. */
static void name_token(struct tokenizer *t, const struct json *config, const char *key, int64_t *id)
{
    const struct json *v = json_get(config, key);
    if (json_is(v, JSON_OBJECT)) v = json_get(v, "content");
    if (*id < 0 && json_is(v, JSON_STRING)) *id = tokenizer_find(t, v->string);
}

static void read_names(struct tokenizer *t, const struct json *config)
{
    struct tokenizer_facts *f = &t->facts;
    name_token(t, config, "bos_token", &f->bos);
    name_token(t, config, "eos_token", &f->eos);
    name_token(t, config, "eot_token", &f->eot);
    name_token(t, config, "pad_token", &f->pad);
    name_token(t, config, "sep_token", &f->sep);
    name_token(t, config, "cls_token", &f->cls);
    name_token(t, config, "mask_token", &f->mask);
    if (f->unk < 0) name_token(t, config, "unk_token", &f->unk);
    const struct json *clean = json_get(config, "clean_up_tokenization_spaces");
    if (!json_is_null(clean)) f->clean_up = json_bool(clean, false);
}

/* What the post-processor puts at the ends of a text. */
static void read_ends(struct tokenizer *t)
{
    const struct post *p = &t->post;
    if (!p->present || !p->single_count) return;
    const struct post_piece *first = &p->single[0], *last = &p->single[p->single_count - 1];
    struct tokenizer_facts *f = &t->facts;
    f->add_bos = first->kind == POST_ID && ((int64_t)first->id == f->bos || (int64_t)first->id == f->cls);
    f->add_eos = last->kind == POST_ID && ((int64_t)last->id == f->eos || (int64_t)last->id == f->sep);
}

static enum rose_status read_object(struct arena *scratch, const char *file, struct str text, const struct json **out, struct rose_error *err)
{
    ROSE_TRY(json_parse(scratch, file, text, out, err));
    if (json_is(*out, JSON_OBJECT)) return ROSE_OK;
    return status_at(err, ROSE_FORMAT, file, (int64_t)(*out)->offset, "%s: the file is no object", file);
}

static enum rose_status read_all(struct tokenizer *t, const struct tokenizer_files *files,
                                 struct arena *scratch, struct rose_error *err)
{
    const struct json *root, *config = NULL, *map = NULL;
    ROSE_TRY(read_object(scratch, "tokenizer.json", files->tokenizer_json, &root, err));
    if (files->config_json.n) ROSE_TRY(read_object(scratch, "tokenizer_config.json", files->config_json, &config, err));
    if (files->special_tokens_map.n) ROSE_TRY(read_object(scratch, "special_tokens_map.json", files->special_tokens_map, &map, err));
    ROSE_TRY(read_model(t, root, err));
    ROSE_TRY(read_added(t, json_get(root, "added_tokens"), err));
    ROSE_TRY(tokenizer_json_steps(t, root, files->lower_case, err));
    ROSE_TRY(tokenizer_finish(t, err));
    read_names(t, config);
    read_names(t, map);
    read_ends(t);
    return ROSE_OK;
}

enum rose_status tokenizer_from_json(const struct tokenizer_files *files, struct tokenizer **out,
                                     struct rose_error *err)
{
    *out = NULL;
    struct tokenizer *t =
        tokenizer_new(((size_t)64 << 20) + 64 * ROSE_MIN(files->tokenizer_json.n, SIZE_MAX / 256));
    if (!t) return no_memory(err);
    struct arena scratch;
    arena_init(&scratch, ((size_t)64 << 20) + 128 * ROSE_MIN(files->tokenizer_json.n, SIZE_MAX / 256));
    enum rose_status status = read_all(t, files, &scratch, err);
    arena_free(&scratch);
    if (status)
        tokenizer_free(t);
    else
        *out = t;
    return status;
}
