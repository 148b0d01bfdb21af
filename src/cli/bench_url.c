/* rose bench --url: a server under load. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/load.h"

static struct {
    const char *url, *model, *key, *endpoint, *svg, *cacert;
    int64_t prompt, gen, requests, concurrency, seed, prefix, ids, texts;
    double rate, timeout, slo_ttft, slo_gap;
    bool json, ignore_eos, insecure;
} o;

static const struct option options[] = {
    {"url", 0, OPTION_TEXT, NULL, "URL", NULL, NULL, 0, 0, "the server: http[s]://HOST:PORT[/v1]", &o.url},
    {"model", 'm', OPTION_TEXT, NULL, "NAME", NULL, NULL, 0, 0, "which of its models; default: the first it names", &o.model},
    {"endpoint", 0, OPTION_CHOICE, NULL, NULL, "completions|chat|embeddings|infer|infer-json", "completions", 0, 0,
     "which interface; infer: KServe's, JSON in, binary out; infer-json: JSON out too", &o.endpoint},
    {"api-key", 0, OPTION_TEXT, NULL, "KEY", NULL, NULL, 0, 0, "sent as Authorization: Bearer", &o.key},
    {"cacert", 0, OPTION_TEXT, "CURL_CA_BUNDLE", "FILE", NULL, NULL, 0, 0, "https: trust the certificates in this PEM file instead of the system's", &o.cacert},
    {"insecure", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "https: trust any certificate", &o.insecure},
    {"prompt", 'p', OPTION_INT, NULL, "P", NULL, "128", 1, 1 << 20, "words of each prompt, about a token each", &o.prompt},
    {"ids", 0, OPTION_INT, NULL, "V", NULL, "0", 0, 1 << 24, "prompts of exactly --prompt random token ids below V instead of words (completions)", &o.ids},
    {"prefix", 0, OPTION_INT, NULL, "P", NULL, "0", 0, 1 << 20, "of them, so many are the same in all", &o.prefix},
    {"texts", 0, OPTION_INT, NULL, "N", NULL, "1", 1, 4096, "embeddings, infer: texts of each request", &o.texts},
    {"gen", 'g', OPTION_INT, NULL, "G", NULL, "64", 1, 1 << 20, "new tokens of each answer", &o.gen},
    {"requests", 'n', OPTION_INT, NULL, "N", NULL, "64", 1, 1 << 20, "how many in all", &o.requests},
    {"concurrency", 'c', OPTION_INT, NULL, "C", NULL, "8", 1, 20000, "closed loop: users who ask again when the answer is whole", &o.concurrency},
    {"rate", 'r', OPTION_NUMBER, NULL, "R", NULL, "0", 0, 1e6, "open loop: requests a second, a Poisson process", &o.rate},
    {"slo-ttft", 0, OPTION_NUMBER, NULL, "S", NULL, "1", 0, 1e6, "goodput counts answers whose first token took at most so long", &o.slo_ttft},
    {"slo-itl", 0, OPTION_NUMBER, NULL, "S", NULL, "0.1", 0, 1e6, "and whose mean time a token is at most so long", &o.slo_gap},
    {"timeout", 0, OPTION_NUMBER, NULL, "S", NULL, "600", 1, 1e6, "seconds before a request counts as failed", &o.timeout},
    {"seed", 's', OPTION_INT, NULL, "N", NULL, "1", 0, 0, "of prompts and arrivals", &o.seed},
    {"ignore-eos", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "ask for answers of full length (default on; not every server knows it)", &o.ignore_eos},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object", &o.json},
    {"svg", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "a picture of the distributions", &o.svg},
};

bool cli_bench_is_url(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--url") || !strncmp(argv[i], "--url=", 6)) return true;
    return false;
}

size_t cli_bench_url_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static const char *const words[] = {"time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state", "family", "student", "group",
                                    "country", "problem", "hand", "part", "place", "case", "week", "company", "system", "program", "question", "work", "number", "night", "point", "home",
                                    "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business", "issue", "side",
                                    "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end", "member", "law", "car"};

static void add_words(struct strbuf *b, uint64_t seed, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        strbuf_printf(b, " %s", words[(seed >> 33) % ROSE_COUNT(words)]);
    }
}

static void add_ids(struct strbuf *b, uint64_t seed, int64_t n, bool first)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        strbuf_printf(b, "%s%llu", first && !i ? "" : ",", (unsigned long long)((seed >> 33) % (uint64_t)o.ids));
    }
}

static bool is_infer(void) { return !strncmp(o.endpoint, "infer", 5); }
static bool is_whole(void) { return is_infer() || !strcmp(o.endpoint, "embeddings"); }

static void write_texts(int index, struct strbuf *b)
{
    uint64_t seed = (uint64_t)o.seed * 1000003 + (uint64_t)index * 7919 + 1;
    if (is_infer()) {
        strbuf_printf(b, "{\"parameters\":{\"binary_data_output\":%s},\"inputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[%lld,1],\"data\":[",
                      strcmp(o.endpoint, "infer") ? "false" : "true", (long long)o.texts);
    } else {
        strbuf_adds(b, "{\"model\":");
        json_add_str(b, str_of(o.model));
        strbuf_adds(b, ",\"encoding_format\":\"base64\",\"input\":[");
    }
    for (int64_t i = 0; i < o.texts; i++) {
        strbuf_adds(b, i ? ",\"" : "\"");
        add_words(b, seed + (uint64_t)i * 104729, o.prompt);
        strbuf_addc(b, '"');
    }
    strbuf_adds(b, is_infer() ? "]}]}" : "]}");
}

static void write_body(void *user, int index, struct strbuf *b)
{
    (void)user;
    if (is_whole()) {
        write_texts(index, b);
        return;
    }
    bool chat = !strcmp(o.endpoint, "chat");
    strbuf_adds(b, "{\"model\":");
    json_add_str(b, str_of(o.model));
    strbuf_printf(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"temperature\":0,\"max_tokens\":%lld%s,", (long long)o.gen, o.ignore_eos ? ",\"ignore_eos\":true" : "");
    int64_t shared = ROSE_MIN(o.prefix, o.prompt);
    uint64_t seed = (uint64_t)o.seed * 1000003 + (uint64_t)index * 7919 + 1;
    if (o.ids) {
        strbuf_adds(b, "\"prompt\":[");
        add_ids(b, 7, shared, true);
        add_ids(b, seed, o.prompt - shared, !shared);
        strbuf_adds(b, "]}");
        return;
    }
    strbuf_adds(b, chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"" : "\"prompt\":\"");
    add_words(b, 7, shared);
    add_words(b, seed, o.prompt - shared);
    strbuf_adds(b, chat ? "\"}]}" : "\"}");
}

static void show_progress(void *user, int done, int total)
{
    if (*(bool *)user) fprintf(stderr, "\r%d of %d ", done, total);
}

/* --- what came of it -------------------------------------------------------------------------------------------------------------------- */

struct series {
    const char *name, *key;
    double *values;
    size_t n;
};
struct summary {
    struct series series[3]; /* first token, between tokens, whole answer */
    int ok, failed, good;
    int64_t tokens, prompt_tokens;
    double seconds;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct series *s, double p)
{
    if (!s->n) return NAN;
    double at = p / 100 * (double)(s->n - 1);
    size_t i = (size_t)at;
    return i + 1 < s->n ? s->values[i] + (at - (double)i) * (s->values[i + 1] - s->values[i]) : s->values[i];
}

static double mean(const struct series *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->values[i];
    return s->n ? sum / (double)s->n : NAN;
}

static bool summarise(const struct load_report *p, struct summary *s)
{
    size_t n = (size_t)o.requests;
    *s = (struct summary){.series = {{"time to first token", "ttft_s", calloc(n, sizeof(double)), 0}, {"between tokens", "itl_s", p->gaps, p->gaps_count},
                                     {"whole answer", "e2e_s", calloc(n, sizeof(double)), 0}}, .seconds = p->seconds};
    if (!s->series[0].values || !s->series[2].values) return false;
    for (size_t i = 0; i < n; i++) {
        const struct load_result *r = &p->results[i];
        if (!r->ok) {
            s->failed++;
            continue;
        }
        s->ok++;
        s->tokens += r->tokens;
        s->prompt_tokens += r->prompt_tokens;
        s->series[0].values[s->series[0].n++] = r->ttft_s;
        s->series[2].values[s->series[2].n++] = r->total_s;
        double gap = r->tokens > 1 ? (r->total_s - r->ttft_s) / (r->tokens - 1) : 0;
        s->good += r->ttft_s <= o.slo_ttft && gap <= o.slo_gap;
    }
    for (int i = 0; i < 3; i++)
        if (s->series[i].n) qsort(s->series[i].values, s->series[i].n, sizeof(double), by_value);
    return true;
}

static void print_table(const struct summary *s)
{
    if (o.rate > 0) printf("%s: %d requests, open loop, %.3g a second\n", o.model, (int)o.requests, o.rate);
    else printf("%s: %d requests, closed loop, %d at once\n", o.model, (int)o.requests, (int)o.concurrency);
    printf("%d answered, %d failed, %.2f s; %.2f requests/s, ", s->ok, s->failed, s->seconds, s->ok / s->seconds);
    if (is_whole()) printf("%.2f texts/s", s->ok * (double)o.texts / s->seconds);
    else printf("%.1f tokens/s out", (double)s->tokens / s->seconds);
    if (!is_infer()) printf(", %.1f%s in", (double)s->prompt_tokens / s->seconds, is_whole() ? " tokens/s" : "");
    if (is_whole()) printf("\ngoodput %.2f requests/s (an answer within %g s)\n\n", s->good / s->seconds, o.slo_ttft);
    else printf("\ngoodput %.2f requests/s (first token within %g s, %g s a token)\n\n", s->good / s->seconds, o.slo_ttft, o.slo_gap);
    printf("%-22s %10s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p90", "p99", "max");
    for (int i = 0; i < 3; i++) {
        const struct series *e = &s->series[i];
        if (!e->n || (is_whole() && i < 2)) continue; /* embeddings have no first token, and answers of one no time between */
        printf("%-22s %10.2f %10.2f %10.2f %10.2f %10.2f\n", e->name, 1e3 * mean(e), 1e3 * percentile(e, 50), 1e3 * percentile(e, 90), 1e3 * percentile(e, 99), 1e3 * percentile(e, 100));
    }
}

static void print_json(const struct summary *s)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "{\"model\":");
    json_add_str(&b, str_of(o.model));
    strbuf_printf(&b, ",\"requests\":%d,\"concurrency\":%d,\"rate\":%.6g,\"prompt\":%d,\"gen\":%d,\"ok\":%d,\"failed\":%d,\"seconds\":%.6f", (int)o.requests,
                  o.rate > 0 ? 0 : (int)o.concurrency, o.rate, (int)o.prompt, (int)o.gen, s->ok, s->failed, s->seconds);
    strbuf_printf(&b, ",\"requests_per_s\":%.6g,\"output_tokens_per_s\":%.6g,\"input_tokens_per_s\":%.6g,\"goodput_per_s\":%.6g,\"output_tokens\":%lld,\"input_tokens\":%lld",
                  s->ok / s->seconds, (double)s->tokens / s->seconds, (double)s->prompt_tokens / s->seconds, s->good / s->seconds, (long long)s->tokens, (long long)s->prompt_tokens);
    for (int i = 0; i < 3; i++) {
        static const struct { const char *key; double p; } points[] = {{"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}, {"max", 100}};
        strbuf_printf(&b, ",\"%s\":{\"mean\":", s->series[i].key);
        json_add_num(&b, mean(&s->series[i]));
        for (size_t k = 0; k < ROSE_COUNT(points); k++) {
            strbuf_printf(&b, ",\"%s\":", points[k].key);
            json_add_num(&b, percentile(&s->series[i], points[k].p));
        }
        strbuf_addc(&b, '}');
    }
    strbuf_addc(&b, '}');
    puts(b.p ? b.p : "");
    strbuf_free(&b);
}

/* Three panels side by side: which share of the values is at most so large; the axis ends at the 99.5th percentile. */
static enum rose_status write_svg(const struct summary *s, struct rose_error *err)
{
    enum { WIDE = 300, HIGH = 220, LEFT = 40, TOP = 40, INNER_W = 240, INNER_H = 140 };
    struct strbuf b = {0};
    strbuf_printf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", 3 * WIDE, HIGH);
    for (int i = 0; i < 3; i++) {
        const struct series *e = &s->series[i];
        double end = ROSE_MAX(percentile(e, 99.5), 1e-9);
        int x0 = i * WIDE + LEFT;
        strbuf_printf(&b, "<text x=\"%d\" y=\"20\" font-size=\"13\">%s (ms)</text>\n<path d=\"M%d %d v%d h%d\" fill=\"none\" stroke=\"#888\"/>\n", x0, e->name, x0, TOP, INNER_H, INNER_W);
        strbuf_printf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">100 %%</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>\n", x0 - 4, TOP + 8, x0 - 4, TOP + INNER_H);
        for (int k = 0; k <= 4; k++)
            strbuf_printf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.3g</text>\n", x0 + k * INNER_W / 4, TOP + INNER_H + 16, 1e3 * end * k / 4);
        strbuf_printf(&b, "<polyline fill=\"none\" stroke=\"#b0124a\" stroke-width=\"1.5\" points=\"");
        for (int p = 0; e->n && p <= 199; p++)
            strbuf_printf(&b, "%.1f,%.1f ", x0 + INNER_W * ROSE_MIN(percentile(e, p / 2.0) / end, 1.0), TOP + INNER_H * (1 - p / 200.0));
        strbuf_adds(&b, "\"/>\n");
        if (e->n)
            strbuf_printf(&b, "<text x=\"%d\" y=\"%d\" fill=\"#555\">p50 %.4g   p90 %.4g   p99 %.4g</text>\n", x0, TOP + INNER_H + 34, 1e3 * percentile(e, 50), 1e3 * percentile(e, 90),
                          1e3 * percentile(e, 99));
    }
    strbuf_adds(&b, "</svg>\n");
    enum rose_status st = b.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : file_write_atomic(o.svg, strbuf_str(&b), err);
    strbuf_free(&b);
    return st;
}

/* Does a model of the server's list do what the endpoint is for? Other servers than Rose do not say. */
static bool is_for(const struct json *model, const char *task)
{
    const struct json *tasks = json_get(model, "tasks");
    if (!json_is(tasks, JSON_ARRAY)) return true;
    for (uint32_t i = 0; i < tasks->count; i++)
        if (str_is(json_str(json_at(tasks, i), ""), task)) return true;
    return false;
}

/* The first model of the server's that can answer. */
static enum rose_status find_model(const struct load_target *t, struct arena *a, struct rose_error *err)
{
    struct strbuf text;
    const struct json *json;
    enum rose_status s = load_get(t, "/models", o.key, &text, err);
    if (s == ROSE_OK) s = json_parse(a, "/models", strbuf_str(&text), &json, err);
    if (s == ROSE_OK) {
        const struct json *data = json_get(json, "data");
        const char *task = is_whole() ? "embed" : "generate";
        uint32_t count = json_is(data, JSON_ARRAY) ? data->count : 0, i = 0;
        while (i < count && !is_for(json_at(data, i), task)) i++;
        struct str id = i < count ? json_str(json_get(json_at(data, i), "id"), "") : (struct str){"", 0};
        o.model = arena_strndup(a, id.p, id.n);
        if (!id.n && i == count && count) s = status_set(err, ROSE_NOT_FOUND, "none of the server's models is for --endpoint %s, as it says: none has the task \"%s\"", o.endpoint, task);
        else if (!id.n) s = status_set(err, ROSE_NOT_FOUND, "the server names no model: use --model");
    }
    strbuf_free(&text);
    return s;
}

int cli_bench_url(const struct cli_command *self, int argc, char **argv)
{
    struct cli_command command = *self;
    struct load_options load = {0};
    struct load_report report = {0};
    struct rose_error err = {0};
    struct summary s = {0};
    struct arena a;
    const char *rest[1];
    int count, status;
    o.ignore_eos = true;
    command.options = cli_bench_url_options;
    command.arguments = "--url URL";
    command.summary = "Throughput and latency of a server, Rose or any other with OpenAI's interface.";
    command.details = "Without --rate C users ask again as soon as their answer is whole (closed loop).\n";
    if (!cli_parse(&command, argc, argv, rest, 1, &count, &status)) return status;
    if (count) return cli_usage(&command, "with --url there is no MODEL; use --model for one of the server's");
    arena_init(&a, 0);
    bool terminal = cli_is_terminal(2);
    enum rose_status st = load_target_read(o.url, &load.target, &err);
    load.target.cacert = o.cacert && o.cacert[0] ? o.cacert : NULL;
    load.target.insecure = o.insecure;
    if (st == ROSE_OK && !o.model) st = find_model(&load.target, &a, &err);
    if (is_infer()) snprintf(load.target.path, sizeof load.target.path, "/v2");
    if (st == ROSE_OK) {
        static char route[512];
        snprintf(route, sizeof route, "/models/%.400s/infer", o.model);
        load.route = is_infer() ? route : !strcmp(o.endpoint, "embeddings") ? "/embeddings" : !strcmp(o.endpoint, "chat") ? "/chat/completions" : "/completions";
        load.whole = is_whole();
        load.key = o.key;
        load.rate = o.rate;
        load.concurrency = o.rate > 0 ? 0 : (int)o.concurrency;
        load.requests = (int)o.requests;
        load.timeout_s = o.timeout;
        load.seed = (uint64_t)o.seed;
        load.body = write_body;
        load.progress = show_progress;
        load.user = &terminal;
        st = load_run(&load, &report, &err);
        if (terminal) fputs("\r                    \r", stderr);
    }
    if (st == ROSE_OK && !summarise(&report, &s)) st = status_set(&err, ROSE_NO_MEMORY, "out of memory");
    if (st == ROSE_OK) {
        if (o.json) print_json(&s);
        else if (s.ok) print_table(&s); /* else an error says why */
    }
    if (st == ROSE_OK && o.svg && s.ok) st = write_svg(&s, &err);
    if (st == ROSE_OK && s.failed && report.reason[0]) fprintf(stderr, "rose: the first refusal, status %d: %s\n", report.reason_status, report.reason);
    if (st == ROSE_OK && !s.ok) st = status_set(&err, ROSE_IO, "no request was answered (the last status was %d)", report.results[o.requests - 1].status);
    free(s.series[0].values);
    free(s.series[2].values);
    load_report_free(&report);
    arena_free(&a);
    return st == ROSE_OK ? CLI_OK : cli_error(st, &err);
}
