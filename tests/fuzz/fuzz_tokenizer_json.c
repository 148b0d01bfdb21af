/* tokenizer.json from hostile hands: it loads or is refused, and what loads encodes and decodes without harm.
 */
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello world<s>\xF0\x9F\x99\x82 12 '\xE2\x96\x81\n  e\xCC\x81\xFFx";
    struct tokenizer_files files = {.tokenizer_json = {(const char *)data, size},
                                    .config_json = STR("{\"bos_token\":\"<s>\"}")};
    struct tokenizer *t;
    struct rose_error err;
    if (tokenizer_from_json(&files, &t, &err)) return 0;
    struct token_ids ids = {.limit = 4096}, types = {0};
    struct strbuf out = {0};
    struct tokenizer_segment segments[] = {{STR(text), true}, {STR(text), false}};
    tokenizer_encode(t, STR(text), TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL | TOKENIZER_ONE_BOS, &ids,
                     &err);
    tokenizer_encode_segments(t, segments, 2, TOKENIZER_PARSE_SPECIAL, &ids, &err);
    tokenizer_encode_pair(t, STR(text), STR("b"), TOKENIZER_ADD_SPECIAL, &ids, &types, &err);
    if (ids.n > ids.limit) __builtin_trap();
    tokenizer_decode(t, ids.p, ids.n, TOKENIZER_CLEAN_UP, &out, &err);
    for (size_t i = 0; i < ids.n; i++) tokenizer_piece(t, ids.p[i], &out);
    token_ids_free(&ids);
    token_ids_free(&types);
    strbuf_free(&out);
    tokenizer_free(t);
    return 0;
}
