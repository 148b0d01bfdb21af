/* libFuzzer: KServe's infer requests. The first two bytes are the length of the JSON header in 16-byte steps (0xFFFF: none). What is accepted
 * must be readable to its end: every BYTES element, every number, and back to JSON. The same text as the parameters of a load and as settings. */
#include "fuzz_kserve.h"
#include "server/internal.h"
#include "server/loader.h"

/* A server that holds one name that can never be loaded. */
static void change(struct str text, struct arena *arena)
{
    struct model one = {.name = "m", .version = 1, .policy = {.kind = VERSIONS_SPECIFIC}, .repository = "d"};
    struct server_options o = {0};
    struct server s = {.options = &o, .models = {.models = &one, .count = 1}};
    struct model *m;
    struct model_wait wait;
    struct api_error e = {0};
    const struct json *j;
    if (json_parse(arena, NULL, text, &j, NULL) != ROSE_OK) return;
    if (kserve_load(&s, STR("nobody"), j, arena, &wait, &m, &e) || e.status < 400 || !e.message[0]) abort();
    for (int log = 0; log < 2; log++) {
        e = (struct api_error){0};
        if (!kserve_settings_change(&s, log, j, &e) && (e.status < 400 || !e.message[0])) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct kserve_request r;
    struct api_error e = {0};
    if (size < 2) return 0;
    size_t header = data[0] | (size_t)data[1] << 8;
    /* A copy of its own, so that reading past the end shows. */
    char *body = malloc(size - 2 + 1);
    if (!body) return 0;
    memcpy(body, data + 2, size - 2);
    arena_init(&arena, (size_t)64 << 20);
    if (kserve_read((struct str){body, size - 2}, header == 0xFFFF ? SIZE_MAX : header, &arena, NULL, &r, &e)) {
        for (int i = 0; i < r.inputs_count; i++) use(&r.inputs[i]);
    } else if (e.status < 400 || !e.message[0]) {
        abort();
    }
    /* Raw bytes as BYTES of one and of two elements. */
    for (int n = 1; n <= 2; n++) {
        struct kserve_tensor t = {STR("t"), KSERVE_BYTES, 1, {n}, (size_t)n, {body, size - 2}};
        if (kserve_check(&t, &e)) use(&t);
    }
    change((struct str){body, size - 2}, &arena);
    arena_free(&arena);
    free(body);
    return 0;
}
