/* rose bench MODEL: throughput and latency of a whole model. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/bench_texts.h"
#include "cli/bench_trace.h"
#include "cli/commands.h"

static struct {
    int64_t prompt, gen, batch, repeat, prefix;
    const char *texts, *trace;
    struct option_list cases;
    bool json, profile;
} o;

static const struct option options[] = {
    {"prompt", 'p', OPTION_INT, NULL, "P", NULL, "512", 1, 1 << 24, "prompt tokens of each sequence", &o.prompt},
    {"gen", 'g', OPTION_INT, NULL, "G", NULL, "128", 0, 1 << 24, "new tokens of each sequence", &o.gen},
    {"batch", 'b', OPTION_INT, NULL, "B", NULL, "1", 1, 4096, "sequences at once", &o.batch},
    {"prefix", 0, OPTION_INT, NULL, "P", NULL, "0", 0, 1 << 24, "prompt tokens that are the same in all sequences of a round", &o.prefix},
    {"case", 0, OPTION_LIST, NULL, "P:G:B", NULL, NULL, 0, 0, "prompt, new tokens and sequences instead; may be repeated: one engine measures them all", &o.cases},
    {"repeat", 'r', OPTION_INT, NULL, "N", NULL, "3", 1, 1000, "rounds; the median is given", &o.repeat},
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "token budget of a step; 0: 512, on a GPU 8192, with experts 16384", &cli_common.step_tokens},
    {"profile", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "where the time of one more round goes, by kind of launch", &o.profile},
    {"trace", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "GPU: the steps of one more round as Chrome trace events (Perfetto)", &o.trace},
    {"dummy-weights", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "random weights from a config.json alone", &cli_common.dummy_weights},
    {"texts", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "models that embed or classify: texts of this file, a line each", &o.texts},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object", &o.json},
    CLI_COMMON_OPTIONS,
};

size_t cli_bench_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static double began_s, ready_s; /* when the command began; how long until the engine was ready */

struct round {
    double ttft, prefill, rate; /* seconds: first token of the first sequence, all prompts; tokens a second while all sequences decode */
};

/* Random ids, different in every round and (behind --prefix) in every sequence, so that nothing else is shared or cached. */
static void random_prompt(int32_t *ids, int64_t n, int32_t vocabulary, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        ids[i] = (int32_t)((*state >> 33) % (uint64_t)vocabulary);
    }
}

static enum rose_status submit_all(struct rose_engine *e, int32_t *ids, int32_t vocabulary, uint64_t *state, struct rose_error *err)
{
    struct rose_request r;
    rose_request_init(&r);
    r.kind = ROSE_REQUEST_TOKENS;
    r.tokens = ids;
    r.tokens_count = (size_t)o.prompt;
    r.max_tokens = (int)o.gen;
    r.sampling.ignore_eos = true;
    for (int64_t b = 0; b < o.batch; b++) {
        uint64_t id;
        int64_t same = b ? ROSE_MIN(o.prefix, o.prompt) : 0;
        random_prompt(ids + same, o.prompt - same, vocabulary, state);
        ROSE_TRY(rose_submit(e, &r, &id, err));
    }
    return ROSE_OK;
}

static enum rose_status run_round(struct rose_engine *e, int32_t *ids, int32_t vocabulary, uint64_t *state, struct round *out, struct rose_error *err)
{
    struct rose_event events[256];
    int64_t prompts = 0, finals = 0, tokens = 0; /* tokens: from the last prompt's end to the first sequence's */
    double first = 0, prefilled = 0, ended = 0, began = clock_seconds();
    ROSE_TRY(submit_all(e, ids, vocabulary, state, err));
    while (finals < o.batch) {
        size_t n = rose_events(e, events, ROSE_COUNT(events), -1);
        double t = clock_seconds();
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == ROSE_EVENT_PROMPT && ++prompts == o.batch) prefilled = t;
            if (events[i].kind == ROSE_EVENT_TOKEN && !first) first = t;
            if (events[i].kind == ROSE_EVENT_TOKEN && prefilled > 0 && t > prefilled && !finals) tokens++, ended = t;
            if (events[i].kind != ROSE_EVENT_FINAL) continue;
            finals++;
            if (events[i].finish == ROSE_FINISH_ERROR) return status_set(err, events[i].status, "%s", events[i].message ? events[i].message : "a request failed");
        }
    }
    double end = clock_seconds();
    *out = (struct round){(first ? first : end) - began, prefilled - began, tokens ? (double)tokens / (ended - prefilled) : 0};
    return ROSE_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const struct round *rounds, int64_t n, size_t member)
{
    double v[1000];
    for (int64_t i = 0; i < n; i++) memcpy(&v[i], (const char *)&rounds[i] + member, sizeof *v);
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void print(const struct rose_model_info *info, const char *device, const struct round *rounds)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double prefill = median(rounds, o.repeat, offsetof(struct round, prefill)), decode_rate = median(rounds, o.repeat, offsetof(struct round, rate));
    double ttft = median(rounds, o.repeat, offsetof(struct round, ttft));
    double prefill_rate = (double)(o.prompt * o.batch) / prefill;
    double peak = (double)usage.ru_maxrss / 1024;
    if (o.json) {
        struct strbuf b = {0};
        strbuf_adds(&b, "{\"model\":");
        json_add_str(&b, str_of(info->name));
        strbuf_adds(&b, ",\"device\":");
        json_add_str(&b, str_of(device));
        strbuf_printf(&b, ",\"prompt\":%lld,\"gen\":%lld,\"batch\":%lld,\"prefill_tok_s\":%.3f,\"decode_tok_s\":%.3f,\"ttft_s\":%.6f,\"load_s\":%.6f,\"ready_s\":%.6f,\"upload_gb_s\":%.3f,\"graphs_mb\":%.2f,\"peak_rss_mb\":%.2f}\n",
                      (long long)o.prompt, (long long)o.gen, (long long)o.batch, prefill_rate, decode_rate, ttft, info->load_seconds, ready_s,
                      info->upload_seconds > 0 ? (double)info->weights_bytes / info->upload_seconds / 1e9 : 0, (double)info->graph_bytes / 1e6, peak);
        fwrite(b.p, 1, b.n, stdout);
        strbuf_free(&b);
        return;
    }
    printf("%s (%s) on %s\n", info->name, info->weights_type, device);
    printf("  prompt %lld, new %lld, batch %lld\n", (long long)o.prompt, (long long)o.gen, (long long)o.batch);
    printf("  prefill      %10.1f tok/s\n", prefill_rate);
    if (o.gen > 1) printf("  decode       %10.1f tok/s\n", decode_rate);
    printf("  first token  %10.1f ms\n  load         %10.1f ms\n  peak memory  %10.1f MiB\n", ttft * 1e3, info->load_seconds * 1e3, peak);
}

static void print_profile(const struct rose_device *device, FILE *to)
{
    struct rose_profile_entry e[64];
    size_t n = rose_device_profile_read(device, e, ROSE_COUNT(e));
    double all = 0;
    for (size_t i = 0; i < n; i++) all += e[i].seconds;
    fprintf(to, "  %-16s %8s %10s %6s %9s %9s\n", "launch", "calls", "ms", "%", "GB/s", "GOP/s");
    for (size_t i = 0; i < n; i++)
        fprintf(to, "  %-16s %8llu %10.2f %6.1f %9.1f %9.1f\n", e[i].name, (unsigned long long)e[i].calls, e[i].seconds * 1e3, 100 * e[i].seconds / all,
               e[i].bytes / e[i].seconds / 1e9, e[i].operations / e[i].seconds / 1e9);
}

static enum rose_status measure(struct cli_engine *e, struct rose_error *err)
{
    struct rose_model_info info;
    struct round rounds[1000], warm;
    uint64_t state = 42;
    rose_engine_info(e->engine, &info);
    if (!(info.tasks & ROSE_CAN_GENERATE)) {
        struct bench_texts t = {o.prompt, o.batch, o.repeat, o.texts, o.json};
        enum rose_status s = bench_texts_run(e->device, e->engine, &t, o.profile, err);
        if (s == ROSE_OK && o.profile) print_profile(e->device, o.json ? stderr : stdout);
        if (s == ROSE_OK && o.profile) s = rose_device_profile(e->device, false, err);
        return s;
    }
    int32_t *ids = malloc((size_t)o.prompt * sizeof *ids);
    if (!ids) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    enum rose_status s = run_round(e->engine, ids, info.vocabulary, &state, &warm, err);
    for (int64_t i = 0; s == ROSE_OK && i < o.repeat; i++) {
        if (s == ROSE_OK) s = run_round(e->engine, ids, info.vocabulary, &state, &rounds[i], err);
    }
    if (s == ROSE_OK) print(&info, rose_device_name(e->device), rounds);
    enum { MARKS = 8192 };
    if (s == ROSE_OK && o.trace) s = rose_device_trace(e->device, MARKS, err);
    if (s == ROSE_OK && o.trace) s = run_round(e->engine, ids, info.vocabulary, &state, &warm, err);
    if (s == ROSE_OK && o.trace) s = bench_trace_write(e->device, o.trace, MARKS, err);
    if (s == ROSE_OK && o.trace) s = rose_device_trace(e->device, 0, err);
    /* A round of its own: on a GPU the profile stops behind every launch. */
    if (s == ROSE_OK && o.profile) s = rose_device_profile(e->device, true, err);
    if (s == ROSE_OK && o.profile) s = run_round(e->engine, ids, info.vocabulary, &state, &warm, err);
    if (s == ROSE_OK && o.profile) print_profile(e->device, o.json ? stderr : stdout);
    if (s == ROSE_OK && o.profile) s = rose_device_profile(e->device, false, err);
    free(ids);
    return s;
}

static bool read_case(const char *text, int64_t *prompt, int64_t *gen, int64_t *batch)
{
    long long p, g, b;
    char rest;
    if (sscanf(text, "%lld:%lld:%lld%c", &p, &g, &b, &rest) != 3 || p < 1 || p > 1 << 24 || g < 0 || g > 1 << 24 || b < 1 || b > 4096) return false;
    *prompt = p, *gen = g, *batch = b;
    return true;
}

/* The engine must hold the largest of them. */
static bool size_engine(const struct cli_command *self, int *status)
{
    int64_t context = o.prompt + o.gen + 1, batch = o.batch, p, g, b;
    for (int i = 0; i < o.cases.count; i++) {
        if (!read_case(o.cases.items[i], &p, &g, &b)) {
            *status = cli_usage(self, "--case %s: write PROMPT:GEN:BATCH, for example 128:64:8", o.cases.items[i]);
            return false;
        }
        context = i ? ROSE_MAX(context, p + g + 1) : p + g + 1;
        batch = i ? ROSE_MAX(batch, b) : b;
    }
    cli_common.sequences = batch;
    if (o.texts) cli_common.sequences = 256;
    else if (!cli_common.context) cli_common.context = context, cli_common.sized = true;
    return true;
}

static enum rose_status measure_all(struct cli_engine *e, struct rose_error *err)
{
    if (!o.cases.count) return measure(e, err);
    for (int i = 0; i < o.cases.count; i++) {
        read_case(o.cases.items[i], &o.prompt, &o.gen, &o.batch);
        ROSE_TRY(measure(e, err));
        fflush(stdout);
    }
    return ROSE_OK;
}

int cli_bench(const struct cli_command *self, int argc, char **argv)
{
    const char *words[1];
    int count, status;
    struct rose_error err = {0};
    began_s = clock_seconds();
    if (cli_bench_is_url(argc, argv)) return cli_bench_url(self, argc, argv);
    if (cli_bench_is_op(argc, argv)) return cli_bench_op(self, argc, argv);
    if (!cli_parse(self, argc, argv, words, 1, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    if (!size_engine(self, &status)) return status;
    struct cli_engine e;
    enum rose_status s = cli_open(words[0], false, &e, &err);
    ready_s = clock_seconds() - began_s;
    if (s == ROSE_OK) s = measure_all(&e, &err);
    status = s == ROSE_OK ? CLI_OK : cli_error(s, &err);
    cli_close(&e);
    return status;
}
