/* The text side of a checkpoint: its tokenizer and chat template, from a Hugging Face directory or GGUF metadata. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/file.h"
#include "weights/gguf.h"

enum { MAX_TOKENIZER_FILE = 256 << 20, MAX_TEMPLATE_FILE = 4 << 20 };

/* --- Hugging Face directories ------------------------------------------------------------------------------------------------ */

static enum rose_status read_optional(struct arena *a, const char *dir, const char *name, size_t limit, struct str *out, struct rose_error *err)
{
    *out = (struct str){"", 0};
    const char *path = file_join(a, dir, name);
    if (!path) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (!file_exists(path)) return ROSE_OK;
    return file_read(a, path, limit, out, err);
}

/* "chat_template" of tokenizer_config.json: a text, or a list of {name, template} of which "default" counts. */
static struct str config_template(const struct json *config)
{
    const struct json *t = json_get(config, "chat_template");
    if (json_is(t, JSON_STRING)) return t->string;
    for (uint32_t i = 0; json_is(t, JSON_ARRAY) && i < t->count; i++)
        if (str_is(json_str(json_get(json_at(t, i), "name"), ""), "default")) return json_str(json_get(json_at(t, i), "template"), "");
    return (struct str){0};
}

static enum rose_status from_directory(const char *dir, struct text *t, struct str *chat, struct rose_error *err)
{
    struct arena *a = &t->arena;
    struct tokenizer_files files = {0};
    struct str sentence;
    const struct json *transformer = NULL;
    ROSE_TRY(read_optional(a, dir, "tokenizer.json", MAX_TOKENIZER_FILE, &files.tokenizer_json, err));
    ROSE_TRY(read_optional(a, dir, "tokenizer_config.json", MAX_TOKENIZER_FILE, &files.config_json, err));
    ROSE_TRY(read_optional(a, dir, "special_tokens_map.json", MAX_TOKENIZER_FILE, &files.special_tokens_map, err));
    if (!files.tokenizer_json.n)
        return status_at(err, ROSE_NOT_FOUND, dir, -1, "%s has no tokenizer.json, or an empty one (save the tokenizer with transformers' save_pretrained to make one)", dir);
    ROSE_TRY(read_optional(a, dir, "sentence_bert_config.json", MAX_TOKENIZER_FILE, &sentence, err));
    if (sentence.n) ROSE_TRY(json_parse(a, "sentence_bert_config.json", sentence, &transformer, err));
    files.lower_case = json_bool(json_get(transformer, "do_lower_case"), false);
    enum rose_status s = tokenizer_from_json(&files, &t->tokenizer, err);
    if (s != ROSE_OK) return status_wrap(err, s, "%s", dir); /* the message names the file */
    ROSE_TRY(read_optional(a, dir, "chat_template.jinja", MAX_TEMPLATE_FILE, chat, err));
    if (chat->n || !files.config_json.n) return ROSE_OK;
    const struct json *config;
    ROSE_TRY(json_parse(a, "tokenizer_config.json", files.config_json, &config, err));
    *chat = config_template(config);
    return ROSE_OK;
}

/* --- GGUF ------------------------------------------------------------------------------------------------------------------------- */

static int64_t gguf_id(const struct weights *w, const char *key)
{
    int64_t id;
    return gguf_i64(w, key, &id, NULL) == ROSE_OK ? id : -1;
}

static int gguf_switch(const struct weights *w, const char *key)
{
    bool on;
    return gguf_bool(w, key, &on, NULL) == ROSE_OK ? on : -1;
}

static enum rose_status from_gguf(struct weights *w, struct text *t, struct str *chat, struct rose_error *err)
{
    struct tokenizer_vocab v = {.bos = gguf_id(w, "tokenizer.ggml.bos_token_id"), .eos = gguf_id(w, "tokenizer.ggml.eos_token_id"),
                                .eot = gguf_id(w, "tokenizer.ggml.eot_token_id"), .unk = gguf_id(w, "tokenizer.ggml.unknown_token_id"),
                                .sep = gguf_id(w, "tokenizer.ggml.seperator_token_id"), .pad = gguf_id(w, "tokenizer.ggml.padding_token_id"),
                                .cls = gguf_id(w, "tokenizer.ggml.cls_token_id"), .mask = gguf_id(w, "tokenizer.ggml.mask_token_id"),
                                .add_bos = gguf_switch(w, "tokenizer.ggml.add_bos_token"), .add_eos = gguf_switch(w, "tokenizer.ggml.add_eos_token"),
                                .add_sep = gguf_switch(w, "tokenizer.ggml.add_sep_token"), .add_space_prefix = gguf_switch(w, "tokenizer.ggml.add_space_prefix"),
                                .remove_extra_whitespaces = gguf_switch(w, "tokenizer.ggml.remove_extra_whitespaces")};
    size_t n;
    ROSE_TRY(gguf_str(w, "tokenizer.ggml.model", &v.model, err));
    if (gguf_get(w, "tokenizer.ggml.pre")) ROSE_TRY(gguf_str(w, "tokenizer.ggml.pre", &v.pre, err));
    ROSE_TRY(gguf_strings(w, "tokenizer.ggml.tokens", &v.tokens, &v.count, err));
    if (gguf_get(w, "tokenizer.ggml.scores")) {
        ROSE_TRY(gguf_f32s(w, "tokenizer.ggml.scores", &v.scores, &n, err));
        if (n != v.count) return status_at(err, ROSE_FORMAT, weights_path(w), -1, "tokenizer.ggml.scores has %zu entries for %zu tokens", n, v.count);
    }
    if (gguf_get(w, "tokenizer.ggml.token_type")) {
        ROSE_TRY(gguf_i32s(w, "tokenizer.ggml.token_type", &v.types, &n, err));
        if (n != v.count) return status_at(err, ROSE_FORMAT, weights_path(w), -1, "tokenizer.ggml.token_type has %zu entries for %zu tokens", n, v.count);
    }
    if (gguf_get(w, "tokenizer.ggml.merges")) ROSE_TRY(gguf_strings(w, "tokenizer.ggml.merges", &v.merges, &v.merge_count, err));
    const struct gguf_value *map = gguf_get(w, "tokenizer.ggml.precompiled_charsmap");
    if (map && map->type == GGUF_ARRAY && (map->item == GGUF_U8 || map->item == GGUF_I8)) v.precompiled_charsmap = (struct str){(const char *)map->data, map->count};
    enum rose_status s = tokenizer_from_vocab(&v, &t->tokenizer, err);
    if (s != ROSE_OK) return status_wrap(err, s, "%s", weights_path(w));
    gguf_str(w, "tokenizer.chat_template", chat, NULL);
    return ROSE_OK;
}

/* --- both --------------------------------------------------------------------------------------------------------------------------- */

static char *token_text(struct text *t, int64_t id)
{
    struct str s = id >= 0 ? tokenizer_token(t->tokenizer, (uint32_t)id) : (struct str){0};
    return arena_strndup(&t->arena, s.p ? s.p : "", s.p ? s.n : 0);
}

enum rose_status text_open(struct weights *w, const char *template_override, struct text *t, struct rose_error *err)
{
    *t = (struct text){0};
    struct str chat = {0};
    const char *path = weights_path(w);
    if (weights_kind(w) == WEIGHTS_GGUF) {
        ROSE_TRY(from_gguf(w, t, &chat, err));
    } else {
        const char *slash = strrchr(path, '/');
        const char *dir = weights_kind(w) == WEIGHTS_HF ? path : slash ? arena_strndup(&t->arena, path, (size_t)(slash - path)) : ".";
        ROSE_TRY(from_directory(dir, t, &chat, err));
    }
    if (template_override) chat = str_of(template_override);
    const struct tokenizer_facts *f = tokenizer_facts(t->tokenizer);
    t->bos = token_text(t, f->bos);
    t->eos = token_text(t, f->eos);
    t->pad = token_text(t, f->pad);
    t->unk = token_text(t, f->unk);
    if (!t->bos || !t->eos || !t->pad || !t->unk) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (!chat.n) return ROSE_OK;
    t->chat_template_text = arena_strndup(&t->arena, chat.p, chat.n);
    if (!t->chat_template_text) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    return template_parse(str_of(t->chat_template_text), "chat template", &t->chat_template, err);
}

enum rose_status text_open_ids(int32_t vocabulary, struct text *t, struct rose_error *err)
{
    *t = (struct text){0};
    struct str *tokens = ARENA_ARRAY(&t->arena, struct str, (size_t)vocabulary);
    int32_t *types = ARENA_ARRAY(&t->arena, int32_t, (size_t)vocabulary);
    char *texts = ARENA_ARRAY(&t->arena, char, (size_t)vocabulary * 12);
    if (!tokens || !types || !texts) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (int32_t i = 0; i < vocabulary; i++) {
        int n = snprintf(texts, 12, "[%d]", i);
        tokens[i] = (struct str){texts, (size_t)n};
        types[i] = TOKEN_USER_DEFINED;
        texts += n;
    }
    struct tokenizer_vocab v = {.model = STR("gpt2"), .tokens = tokens, .count = (size_t)vocabulary, .types = types, .bos = -1, .eos = -1, .eot = -1, .unk = -1, .sep = -1,
                                .pad = -1, .cls = -1, .mask = -1, .add_sep = -1, .add_space_prefix = -1, .remove_extra_whitespaces = -1};
    ROSE_TRY(tokenizer_from_vocab(&v, &t->tokenizer, err));
    t->bos = t->eos = t->pad = t->unk = arena_strndup(&t->arena, "", 0);
    return t->bos ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
}

void text_close(struct text *t)
{
    tokenizer_free(t->tokenizer);
    template_free(t->chat_template);
    arena_free(&t->arena);
    *t = (struct text){0};
}

void text_copy_out(struct str from, char *to, size_t capacity, size_t *bytes)
{
    size_t n = ROSE_MIN(from.n, capacity);
    if (n) memcpy(to, from.p, n);
    *bytes = from.n;
}

/* The model's special tokens, which templates print; what the input names stays. */
static enum rose_status add_tokens(const struct text *t, struct arena *a, const struct json *input, bool prompt, const struct json **out, struct rose_error *err)
{
    const struct { const char *name; const char *value; } tokens[] = {{"bos_token", t->bos}, {"eos_token", t->eos}, {"pad_token", t->pad}, {"unk_token", t->unk}};
    struct json *all = ARENA_NEW(a, struct json);
    struct json_member *members = ARENA_ARRAY(a, struct json_member, input->count + ROSE_COUNT(tokens) + 1);
    if (!all || !members) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (input->count) memcpy(members, input->members, input->count * sizeof *members);
    *all = (struct json){.type = JSON_OBJECT, .members = members, .count = input->count};
    for (size_t i = 0; i < ROSE_COUNT(tokens); i++)
        if (*tokens[i].value && !json_get(input, tokens[i].name))
            members[all->count++] = (struct json_member){str_of(tokens[i].name), {.type = JSON_STRING, .string = str_of(tokens[i].value)}};
    if (prompt && !json_get(input, "add_generation_prompt"))
        members[all->count++] = (struct json_member){STR("add_generation_prompt"), {.type = JSON_TRUE}};
    *out = all;
    return ROSE_OK;
}

static enum rose_status check_messages(const struct json *input, struct rose_error *err)
{
    const struct json *messages = json_get(input, "messages");
    if (!json_is(messages, JSON_ARRAY)) return status_set(err, ROSE_INVALID, "\"messages\" must be a list of messages, each with a role and content");
    if (!messages->count) return status_set(err, ROSE_INVALID, "\"messages\" is empty: there must be at least one message");
    for (uint32_t i = 0; i < messages->count; i++) {
        if (json_at(messages, i)->type != JSON_OBJECT) return status_set(err, ROSE_INVALID, "\"messages\"[%u] must be an object with a role and content", i);
        if (!json_is(json_get(json_at(messages, i), "role"), JSON_STRING)) return status_set(err, ROSE_INVALID, "\"messages\"[%u].role must be a string", i);
    }
    return ROSE_OK;
}

static enum rose_status parse_input(struct arena *a, struct str input, const struct json **out, struct rose_error *err)
{
    enum rose_status s = json_parse(a, NULL, input, out, err);
    if (s != ROSE_OK) return s == ROSE_FORMAT ? ROSE_INVALID : s;
    if ((*out)->type != JSON_OBJECT) return status_set(err, ROSE_INVALID, "the input must be a JSON object with \"messages\"");
    return ROSE_OK;
}

/* request: the chat is about to be answered, so that there must be messages and the answer's beginning is prompted for. */
static struct str trim(struct str s)
{
    while (s.n && s.p[0] && strchr(" \t\r\n", s.p[0])) s.p++, s.n--;
    while (s.n && s.p[s.n - 1] && strchr(" \t\r\n", s.p[s.n - 1])) s.n--;
    return s;
}

/* "continue_final_message": the text ends behind the last message's content, so that the model goes on with it. Templates may trim the
 * content; as in transformers, the last place where it stands counts, with its trailing white space where the template kept that. */
static enum rose_status cut_behind_final(const struct json *input, struct template_output *out, struct rose_error *err)
{
    const struct json *messages = json_get(input, "messages"), *last = json_is(messages, JSON_ARRAY) && messages->count ? json_at(messages, messages->count - 1) : NULL;
    struct str content = json_str(json_get(last, "content"), ""), wanted = trim(content);
    ptrdiff_t at = -1;
    for (ptrdiff_t i = 0; wanted.n && (i = str_find(strbuf_str(&out->text), wanted, (size_t)i)) >= 0; i++) at = i;
    if (at < 0) return status_set(err, ROSE_INVALID, "continue_final_message: the chat template does not show the last message's content, so there is nothing to go on with");
    size_t end = (size_t)at + wanted.n, tail = (size_t)(content.p + content.n - (wanted.p + wanted.n));
    if (out->text.n - end >= tail && !memcmp(out->text.p + end, wanted.p + wanted.n, tail)) end += tail;
    out->text.n = end;
    while (out->count && out->segments[out->count - 1].begin >= end) out->count--;
    if (out->count && out->segments[out->count - 1].end > end) out->segments[out->count - 1].end = end;
    return ROSE_OK;
}

static enum rose_status render(const struct text *t, struct str input, bool request, struct template_output *out, struct rose_error *err)
{
    struct arena a;
    const struct json *json = NULL;
    arena_init(&a, (size_t)256 << 20);
    *out = (struct template_output){0};
    enum rose_status s = ROSE_OK;
    if (!t->chat_template)
        s = status_set(err, ROSE_UNSUPPORTED, "the model has no chat template; give one with --chat-template FILE, or send a plain prompt (--raw)");
    if (s == ROSE_OK) s = parse_input(&a, input, &json, err);
    if (s == ROSE_OK && request) s = check_messages(json, err);
    if (s == ROSE_OK) s = add_tokens(t, &a, json, request, &json, err);
    if (s == ROSE_OK) s = template_render(t->chat_template, json, &(struct template_options){.as_transformers = true}, out, err);
    if (s == ROSE_OK && json_bool(json_get(json, "continue_final_message"), false) && (s = cut_behind_final(json, out, err)) != ROSE_OK) template_output_free(out);
    arena_free(&a);
    return s;
}

enum rose_status text_render(const struct text *t, struct str input, struct template_output *out, struct rose_error *err) { return render(t, input, false, out, err); }

enum rose_status text_encode_chat(const struct text *t, struct str input, size_t limit, struct token_ids *out, struct rose_error *err)
{
    struct template_output rendered;
    ROSE_TRY(render(t, input, true, &rendered, err));
    struct tokenizer_segment *segments = calloc(rendered.count ? rendered.count : 1, sizeof *segments);
    enum rose_status s = segments ? ROSE_OK : status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; segments && i < rendered.count; i++) {
        struct template_segment g = rendered.segments[i];
        segments[i] = (struct tokenizer_segment){{rendered.text.p + g.begin, g.end - g.begin}, g.trusted};
    }
    out->limit = limit;
    /* As transformers does for chats, no special tokens are added: the template writes its own BOS. */
    if (s == ROSE_OK) s = tokenizer_encode_segments(t->tokenizer, segments, rendered.count, TOKENIZER_PARSE_SPECIAL, out, err);
    free(segments);
    template_output_free(&rendered);
    return s;
}

/* The input is the template's whole world: nothing is added or left out but what transformers does to messages. */
enum rose_status rose_render_template(const char *source, size_t source_bytes, const char *file, const char *input, size_t input_bytes, char *to, size_t capacity,
                                      size_t *bytes, struct rose_error *err)
{
    struct template *template;
    struct template_output out = {0};
    struct arena a;
    const struct json *json = NULL;
    ROSE_TRY(template_parse((struct str){source, source_bytes}, file, &template, err));
    arena_init(&a, (size_t)256 << 20);
    enum rose_status s = parse_input(&a, (struct str){input, input_bytes}, &json, err);
    if (s == ROSE_OK) s = template_render(template, json, &(struct template_options){.as_transformers = true}, &out, err);
    if (s == ROSE_OK) text_copy_out(strbuf_str(&out.text), to, capacity, bytes);
    template_output_free(&out);
    arena_free(&a);
    template_free(template);
    return s;
}
