/* libFuzzer: bodies of requests through every reader of the server. The first byte chooses: chat, completions, messages, tokenize, detokenize, and
 * from 128 on the embedding routes. */
#include <stdint.h>
#include <stdlib.h>

#include "server/api.h"
#include "server/pooled.h"
#include "server/reasoning.h"

static void check(bool ok, const struct api_error *e)
{
    /* What is refused says so. */
    if (!ok && (e->status < 400 || !e->message[0])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    const struct json *body;
    struct api_request r;
    struct api_tokens t;
    struct api_error e = {0};
    if (!size) return 0;
    arena_init(&arena, (size_t)64 << 20);
    struct str text = {(const char *)data + 1, size - 1};
    if (json_parse(&arena, NULL, text, &body, NULL) == ROSE_OK) {
        struct pooled_request p = {0};
        if (data[0] >= 128) check(pooled_read((enum pooled_route)(data[0] % POOLED_ROUTES), body, &arena, &p, &e), &e);
        switch (data[0] % 5) {
        case 0: check(openai_chat_read(body, &arena, &r, &e), &e); break;
        case 1: check(openai_completion_read(body, &arena, &r, &e), &e); break;
        case 2: check(anthropic_read(body, data[0] > 127, &arena, &r, &e), &e); break;
        case 3: check(openai_tokenize_read(body, &arena, &t, &e), &e); break;
        default: check(openai_detokenize_read(body, &arena, &t, &e), &e); break;
        }
    }
    /* The splitter loses nothing but tags and white space, in whatever pieces. */
    struct reasoning split = {.state = data[0] & 1 ? REASONING_BEGIN : REASONING_THINK};
    struct strbuf thoughts = {0}, content = {0};
    for (size_t at = 0; at < text.n; at += 1 + data[0] % 7) reasoning_add(&split, (struct str){text.p + at, ROSE_MIN(text.n - at, (size_t)1 + data[0] % 7)}, &thoughts, &content);
    reasoning_end(&split, &thoughts, &content);
    if (thoughts.n + content.n > text.n) abort();
    strbuf_free(&thoughts);
    strbuf_free(&content);
    arena_free(&arena);
    return 0;
}
