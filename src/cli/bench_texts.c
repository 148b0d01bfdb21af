/* rose bench MODEL for models that embed, classify or score: texts a second, and the time of one text alone. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/bench_texts.h"
#include "cli/texts.h"

struct bench {
    const struct bench_texts *o;
    struct rose_engine *engine;
    struct rose_model_info info;
    struct texts_lines lines; /* of --texts; else random tokens */
    int32_t *ids;             /* [batch, prompt] */
    size_t count, tokens;
};

/* Submit text i (all of them when i is the count) and wait for the answers. */
static enum rose_status run(struct bench *b, size_t from, size_t to, double *seconds, struct rose_error *err)
{
    struct rose_event events[64];
    size_t submitted = from, ended = from;
    double began = clock_seconds();
    b->tokens = 0;
    while (ended < to) {
        bool full = false;
        while (submitted < to && !full) {
            struct rose_request r;
            uint64_t id;
            rose_request_init(&r);
            r.task = b->info.tasks & ROSE_CAN_EMBED ? ROSE_TASK_EMBED : ROSE_TASK_CLASSIFY;
            if (b->lines.count) r.prompt = b->lines.line[submitted].p, r.prompt_bytes = b->lines.line[submitted].n, r.truncate = ROSE_TRUNCATE_RIGHT;
            else r.kind = ROSE_REQUEST_TOKENS, r.tokens = b->ids + submitted * (size_t)b->o->prompt, r.tokens_count = (size_t)b->o->prompt;
            enum rose_status s = rose_submit(b->engine, &r, &id, err);
            full = s == ROSE_BUSY && submitted > ended;
            if (s != ROSE_OK && !full) return s;
            submitted += !full;
        }
        size_t n = rose_events(b->engine, events, ROSE_COUNT(events), -1);
        for (size_t i = 0; i < n; i++) {
            if (events[i].finish != ROSE_FINISH_STOP) return status_set(err, events[i].status, "%s", events[i].message ? events[i].message : "a text failed");
            b->tokens += (size_t)events[i].prompt_tokens_count;
            ended++;
        }
    }
    *seconds = clock_seconds() - began;
    return ROSE_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void print(const struct bench *b, const char *device, double seconds, double one)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double texts = (double)b->count / seconds, tokens = (double)b->tokens / seconds, peak = (double)usage.ru_maxrss / 1024;
    if (b->o->json) {
        struct strbuf out = {0};
        strbuf_adds(&out, "{\"model\":");
        json_add_str(&out, str_of(b->info.name));
        strbuf_adds(&out, ",\"device\":");
        json_add_str(&out, str_of(device));
        strbuf_printf(&out, ",\"texts\":%zu,\"tokens\":%zu,\"texts_s\":%.3f,\"tok_s\":%.3f,\"one_text_s\":%.6f,\"load_s\":%.6f,\"peak_rss_mb\":%.2f}\n", b->count, b->tokens, texts,
                      tokens, one, b->info.load_seconds, peak);
        fwrite(out.p, 1, out.n, stdout);
        strbuf_free(&out);
        return;
    }
    printf("%s (%s) on %s\n", b->info.name, b->info.weights_type, device);
    printf("  %zu text%s of %.1f tokens%s\n", b->count, b->count == 1 ? "" : "s", (double)b->tokens / (double)b->count, b->lines.count ? ", tokenising included" : "");
    printf("  throughput   %10.1f texts/s, %.1f tok/s\n  one text     %10.2f ms\n  load         %10.1f ms\n  peak memory  %10.1f MiB\n", texts, tokens, one * 1e3,
           b->info.load_seconds * 1e3, peak);
}

static enum rose_status measure(struct bench *b, struct rose_device *device, bool profile, struct rose_error *err)
{
    double all[1000], one[1000], warm;
    ROSE_TRY(run(b, 0, b->count, &warm, err));
    for (int64_t i = 0; i < b->o->repeat; i++) ROSE_TRY(run(b, 0, b->count, &all[i], err));
    size_t tokens = b->tokens, ones = 50;
    for (size_t i = 0; i < ones; i++) ROSE_TRY(run(b, i % b->count, i % b->count + 1, &one[i], err));
    b->tokens = tokens;
    print(b, rose_device_name(device), median(all, (size_t)b->o->repeat), median(one, ones));
    /* A round of its own: on a GPU the profile stops behind every launch. */
    if (profile) ROSE_TRY(rose_device_profile(device, true, err));
    return profile ? run(b, 0, b->count, &warm, err) : ROSE_OK;
}

enum rose_status bench_texts_run(struct rose_device *device, struct rose_engine *engine, const struct bench_texts *o, bool profile, struct rose_error *err)
{
    struct bench b = {.o = o, .engine = engine, .count = (size_t)o->batch};
    enum rose_status s = ROSE_OK;
    uint64_t state = 42;
    rose_engine_info(engine, &b.info);
    if (!(b.info.tasks & (ROSE_CAN_EMBED | ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS)))
        return status_set(err, ROSE_UNSUPPORTED, "%s only scores pairs: there is no benchmark of these", b.info.name);
    if (!o->file && o->prompt > b.info.longest_input)
        return status_set(err, ROSE_LIMIT, "--prompt %lld: %s takes %d tokens at most", (long long)o->prompt, b.info.name, b.info.longest_input);
    if (o->file) s = texts_read(o->file, &b.lines, err);
    if (s == ROSE_OK && o->file && !b.lines.count) s = status_set(err, ROSE_INVALID, "%s is empty", o->file);
    if (s == ROSE_OK && o->file) b.count = b.lines.count;
    if (s == ROSE_OK && !o->file) {
        size_t n = b.count * (size_t)o->prompt;
        if (!(b.ids = malloc(n * sizeof *b.ids))) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
        for (size_t i = 0; b.ids && i < n; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            b.ids[i] = (int32_t)((state >> 33) % (uint64_t)b.info.vocabulary);
        }
    }
    if (s == ROSE_OK) s = measure(&b, device, profile, err);
    texts_free(&b.lines);
    free(b.ids);
    return s;
}
