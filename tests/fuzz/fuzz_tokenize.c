/* Hostile text through fixed tokenizers of several kinds. The first byte picks one, the second the flags.
 * Byte-level models give every text back; plain text never becomes a control token; a stream shows whole
 * characters and the same text. */
#include <stdlib.h>

#include "base/file.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"smollm", "llama2",        "t5",   "bert",   "added", "deepseek3", "clip",
                                    "o200k",  "unknown_regex", "xlmr", "falcon", "splits"};
enum { COUNT = sizeof names / sizeof *names };

static struct tokenizer *load(int k)
{
    static struct tokenizer *loaded[COUNT];
    if (loaded[k]) return loaded[k];
    struct arena arena;
    struct rose_error err;
    arena_init(&arena, 0);
    struct tokenizer_files files = {0};
    char *path = arena_printf(&arena, "tests/golden/tokenizer/%s.json", names[k]);
    if (file_read(&arena, path, 1 << 22, &files.tokenizer_json, &err) ||
        tokenizer_from_json(&files, &loaded[k], &err))
        abort();
    arena_free(&arena);
    return loaded[k];
}

static void repaired(struct str s, struct strbuf *out)
{
    for (size_t i = 0, n; i < s.n; i += n) {
        uint32_t cp;
        n = utf8_decode((struct str){s.p + i, s.n - i}, &cp);
        if (cp == UTF8_INVALID)
            strbuf_adds(out, "\xEF\xBF\xBD");
        else
            strbuf_add(out, s.p + i, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    const struct tokenizer *t = load(data[0] % COUNT);
    unsigned flags = data[1] & 7;
    struct str text = {(const char *)data + 2, size - 2};
    struct token_ids ids = {0}, plain = {0};
    struct strbuf whole = {0}, streamed = {0}, want = {0};
    struct rose_error err;
    if (!tokenizer_encode(t, text, flags, &ids, &err)) {
        tokenizer_decode(t, ids.p, ids.n, data[1] >> 3 & 1, &whole, &err);
        struct token_stream stream;
        struct str part;
        token_stream_init(&stream, t, data[1] >> 3 & 1);
        for (size_t i = 0; i <= ids.n; i++) {
            if (i < ids.n ? token_stream_add(&stream, ids.p[i], &part, &err)
                          : token_stream_end(&stream, &part, &err))
                abort();
            if (!utf8_valid(part)) abort();
            strbuf_add(&streamed, part.p, part.n);
        }
        token_stream_free(&stream);
        if (!str_eq(strbuf_str(&whole), strbuf_str(&streamed))) abort();
    }
    struct tokenizer_segment segment = {text, false};
    if (!tokenizer_encode_segments(t, &segment, 1, TOKENIZER_PARSE_SPECIAL, &plain, &err)) {
        for (size_t i = 0; i < plain.n; i++)
            if (tokenizer_is_special(t, plain.p[i]) && plain.p[i] != tokenizer_facts(t)->unk) abort();
        const char *name = names[data[0] % COUNT];
        if (str_is(str_of(name), "smollm") || str_is(str_of(name), "deepseek3") ||
            str_is(str_of(name), "o200k")) {
            whole.n = 0;
            repaired(text, &want);
            tokenizer_decode(t, plain.p, plain.n, 0, &whole, &err);
            if (!str_eq(strbuf_str(&whole), strbuf_str(&want))) abort();
        }
    }
    struct token_ids few = {.limit = 3};
    enum rose_status status = tokenizer_encode(t, text, flags, &few, &err);
    if (few.n > 3 || (status == ROSE_OK && few.n != ids.n)) abort();
    token_ids_free(&few);
    token_ids_free(&ids);
    token_ids_free(&plain);
    strbuf_free(&whole);
    strbuf_free(&streamed);
    strbuf_free(&want);
    return 0;
}
