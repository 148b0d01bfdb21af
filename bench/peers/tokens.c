/* The peer's tokeniser alone: peer-tokens MODEL FILE ROUNDS prints, as JSON, the number of tokens
   and the seconds of each pass over FILE on one thread, loading excluded; with ROUNDS 0 the ids. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)level, (void)text, (void)user;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: peer-tokens MODEL FILE ROUNDS\n");
        return 2;
    }
    FILE *f = fopen(argv[2], "rb");
    if (!f) {
        perror(argv[2]);
        return 1;
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    llama_token *ids = malloc(((size_t)n + 16) * sizeof *ids);
    if (!text || !ids || fread(text, 1, (size_t)n, f) != (size_t)n) {
        fprintf(stderr, "%s: cannot read\n", argv[2]);
        return 1;
    }
    fclose(f);

    llama_log_set(quiet, NULL);
    struct llama_model_params p = llama_model_default_params();
    p.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(argv[1], p);
    if (!model) return 1;
    const struct llama_vocab *vocab = llama_model_get_vocab(model);

    int rounds = atoi(argv[3]);
    int count = llama_tokenize(vocab, text, (int)n, ids, (int)n + 16, false, false);
    if (!rounds) {
        for (int i = 0; i < count; i++) printf("%d\n", ids[i]);
        return 0;
    }
    printf("{\"bytes\": %ld, \"tokens\": %d, \"seconds\": [", n, count);
    for (int r = 0; r < rounds; r++) {
        double t = now();
        llama_tokenize(vocab, text, (int)n, ids, (int)n + 16, false, false);
        printf("%s%.6f", r ? ", " : "", now() - t);
    }
    printf("]}\n");
    return 0;
}
