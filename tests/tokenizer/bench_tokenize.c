/* Tokenising speed of a tokenizer.json on a file, one thread: `bench_tokenize TOKENIZER_JSON FILE [ROUNDS]`
 * prints one JSON object with the best round, for bench/peers/tokenizing.py to put beside Hugging Face
 * `tokenizers`. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

enum { PIECE = 8192 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    struct arena arena;
    struct rose_error err = {0};
    struct tokenizer_files files = {0};
    struct str text;
    struct tokenizer *t;
    arena_init(&arena, 0);
    if (argc < 3 || file_read(&arena, argv[1], 1u << 30, &files.tokenizer_json, &err) ||
        file_read(&arena, argv[2], 1u << 30, &text, &err)) {
        fprintf(stderr, "bench_tokenize TOKENIZER_JSON FILE [ROUNDS]: %s\n", err.message);
        return 2;
    }
    double start = now();
    if (tokenizer_from_json(&files, &t, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double load = now() - start, best = 1e9;
    struct token_ids ids = {0};
    for (int i = 0, rounds = argc > 3 ? atoi(argv[3]) : 5; i < rounds; i++) {
        ids.n = 0;
        start = now();
        for (size_t at = 0, end; at < text.n; at = end) {
            const char *line =
                text.n - at > PIECE ? memchr(text.p + at + PIECE, '\n', text.n - at - PIECE) : NULL;
            end = line ? (size_t)(line - text.p) + 1 : text.n;
            if (tokenizer_encode(t, (struct str){text.p + at, end - at}, TOKENIZER_PARSE_SPECIAL, &ids, &err))
                return 1;
        }
        best = now() - start < best ? now() - start : best;
    }
    struct strbuf out = {0};
    start = now();
    if (tokenizer_decode(t, ids.p, ids.n, 0, &out, &err)) return 1;
    uint64_t h = 0xCBF29CE484222325ull;
    for (size_t i = 0; i < ids.n; i++) h = (h ^ ids.p[i]) * 0x100000001B3ull;
    printf(
        "{\"bytes\":%zu,\"tokens\":%zu,\"hash\":%llu,\"load_s\":%.6f,\"encode_s\":%.6f,\"decode_s\":%.6f}\n",
        text.n, ids.n, (unsigned long long)h, load, best, now() - start);
    strbuf_free(&out);
    token_ids_free(&ids);
    tokenizer_free(t);
    arena_free(&arena);
    return 0;
}
