/* rose_tokenize and its kin. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

enum rose_status rose_tokenize(const struct rose_engine *e, const char *text, size_t bytes, int flags, int32_t *ids, size_t capacity, size_t *count, struct rose_error *err)
{
    struct token_ids all = {0};
    unsigned f = (flags & ROSE_TOKENIZE_NO_SPECIAL ? 0 : TOKENIZER_ADD_SPECIAL) | (flags & ROSE_TOKENIZE_PARSE_SPECIAL ? TOKENIZER_PARSE_SPECIAL : 0);
    enum rose_status s = tokenizer_encode(e->text.tokenizer, (struct str){text, bytes}, f, &all, err);
    if (s == ROSE_OK) {
        *count = all.n;
        size_t n = ROSE_MIN(all.n, capacity);
        if (n) memcpy(ids, all.p, n * sizeof *ids);
    }
    token_ids_free(&all);
    return s;
}

_Static_assert(sizeof(struct rose_token_span) == sizeof(struct token_span), "the tokenizer's spans are the public ones");

enum rose_status rose_token_spans(const struct rose_engine *e, const char *text, size_t bytes, int flags, const int32_t *ids, size_t count, struct rose_token_span *spans,
                                  struct rose_error *err)
{
    struct token_ids plain = {0};
    struct str s = {text, bytes};
    size_t before = 0;
    enum rose_status st = tokenizer_encode(e->text.tokenizer, s, flags & ROSE_TOKENIZE_PARSE_SPECIAL ? TOKENIZER_PARSE_SPECIAL : 0, &plain, err);
    /* What the post-processor put around them. */
    while (st == ROSE_OK && before + plain.n <= count && plain.n && memcmp(ids + before, plain.p, plain.n * sizeof *ids)) before++;
    if (st == ROSE_OK && before + plain.n > count) st = status_set(err, ROSE_INVALID, "the tokens are not those of this text");
    for (size_t i = 0; st == ROSE_OK && i < count; i++) spans[i] = (struct rose_token_span){-1, -1};
    if (st == ROSE_OK) st = tokenizer_spans(e->text.tokenizer, s, plain.p, plain.n, (struct token_span *)(void *)(spans + before), err);
    token_ids_free(&plain);
    return st;
}

enum rose_status rose_tokenize_chat(const struct rose_engine *e, const char *input, size_t bytes, int32_t *ids, size_t capacity, size_t *count, struct rose_error *err)
{
    struct token_ids all = {0};
    enum rose_status s = text_encode_chat(&e->text, (struct str){input, bytes}, 0, &all, err);
    if (s == ROSE_OK) {
        *count = all.n;
        size_t n = ROSE_MIN(all.n, capacity);
        if (n) memcpy(ids, all.p, n * sizeof *ids);
    }
    token_ids_free(&all);
    return s;
}

enum rose_status rose_detokenize(const struct rose_engine *e, const int32_t *ids, size_t count, int flags, char *text, size_t capacity, size_t *bytes, struct rose_error *err)
{
    struct strbuf out = {0};
    size_t vocabulary = tokenizer_facts(e->text.tokenizer)->vocab_size;
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= vocabulary)
            return status_set(err, ROSE_INVALID, "token %zu is %d; the vocabulary has 0 to %zu", i, ids[i], vocabulary - 1);
    enum rose_status s = tokenizer_decode(e->text.tokenizer, (const uint32_t *)ids, count, flags & ROSE_DETOKENIZE_SKIP_SPECIAL ? TOKENIZER_SKIP_SPECIAL : 0, &out, err);
    if (s == ROSE_OK) text_copy_out(strbuf_str(&out), text, capacity, bytes);
    strbuf_free(&out);
    return s;
}

const char *rose_token_text(const struct rose_engine *e, int32_t id, size_t *bytes)
{
    static _Thread_local struct strbuf piece; /* one a thread, reused: log-probabilities ask for many */
    piece.n = 0;
    *bytes = 0;
    if (id < 0 || !tokenizer_piece(e->text.tokenizer, (uint32_t)id, &piece)) return NULL;
    *bytes = piece.n;
    return piece.p ? piece.p : "";
}

enum rose_status rose_render(const struct rose_engine *e, const char *input, size_t input_bytes, char *text, size_t capacity, size_t *bytes, struct rose_error *err)
{
    struct template_output out;
    ROSE_TRY(text_render(&e->text, (struct str){input, input_bytes}, &out, err));
    text_copy_out(strbuf_str(&out.text), text, capacity, bytes);
    template_output_free(&out);
    return ROSE_OK;
}
