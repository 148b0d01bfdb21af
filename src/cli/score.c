/* rose score: pairs to relevance (of models that only embed: to how alike their embeddings are), documents to a ranking, texts to labels, by what
 * the model is. rose rerank and rose classify are the same of one kind of model each, and refuse the others. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/similar.h"
#include "cli/commands.h"
#include "cli/texts.h"

static struct {
    const char *output, *query, *instruction, *truncate;
    int64_t top;
    bool raw, restart, parse_special;
} o;

#define OUTPUT_OPTIONS                                                                                                                               \
    {"output", 'o', OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "write here instead of standard output; what is there is gone on with", &o.output},  \
    {"restart", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "write the output anew, whatever is there", &o.restart}
#define TEXT_OPTIONS                                                                                                                                 \
    {"raw", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "logits instead of scores or probabilities", &o.raw},                                       \
    {"truncate", 0, OPTION_CHOICE, NULL, NULL, "none|left|right", "none", 0, 0, "which end of a text that is too long is cut off; none: an error",    \
     &o.truncate},                                                                                                                                   \
    {"parse-special", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "control tokens spelt out in a text are those tokens, as for sentence-transformers and TEI", &o.parse_special}, \
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "token budget of a batch of texts; 0: 1024, on a GPU 8192", &cli_common.step_tokens}

static const struct option options[] = {
    OUTPUT_OPTIONS,
    {"query", 0, OPTION_TEXT, NULL, "TEXT", NULL, NULL, 0, 0, "every line is a document to score against it", &o.query},
    {"instruction", 0, OPTION_TEXT, NULL, "TEXT", NULL, NULL, 0, 0, "what is looked for, for rerankers whose template says it", &o.instruction},
    {"top", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 1 << 30, "of a line's documents only the N best; 0: all", &o.top},
    TEXT_OPTIONS,
    CLI_COMMON_OPTIONS,
};
static const struct option label_options[] = {OUTPUT_OPTIONS, TEXT_OPTIONS, CLI_COMMON_OPTIONS};

size_t cli_score_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

size_t cli_classify_options(const struct option **out)
{
    *out = label_options;
    return ROSE_COUNT(label_options);
}

/* What a command takes: any model that gives numbers or labels; those that compare a query with documents; those with labels. */
enum kind { ANY, RANKS, LABELS };

/* One text or pair. A line with a list of documents makes several. */
struct item {
    struct str first, second;
    bool paired;
    size_t line, place, of; /* of: documents of the line, 0: no list */
};

/* A text to embed: an item's second one, or its first one where the item before has another. */
struct part {
    size_t item;
    bool first;
};

struct score {
    enum kind kind;
    const char *model, *input; /* as they are named */
    struct rose_engine *engine;
    struct rose_model_info info;
    bool scores, embeds; /* pairs by the model's own score, or by their embeddings */
    struct texts_lines lines;
    struct arena arena;
    struct item *items;
    size_t count, room;
    float *values;      /* [count], of lists */
    struct part *parts; /* [parts_count] */
    size_t parts_count;
    float *query;       /* [embedding_size] of the latest first text */
    FILE *out;
};

static enum rose_status add(struct score *s, struct item item, struct rose_error *err)
{
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 1024;
        struct item *more = realloc(s->items, room * sizeof *more);
        if (!more) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        s->items = more;
        s->room = room;
    }
    s->items[s->count++] = item;
    return ROSE_OK;
}

static struct str text_of(const struct json *j, const char *const *keys, bool *found)
{
    for (; *keys; keys++)
        if (json_is(json_get(j, *keys), JSON_STRING)) return *found = true, json_get(j, *keys)->string;
    *found = false;
    return (struct str){"", 0};
}

static enum rose_status add_json(struct score *s, size_t line, const struct json *j, struct rose_error *err)
{
    static const char *const firsts[] = {"query", "text", "text_1", NULL}, *const seconds[] = {"document", "pair", "text_2", NULL};
    bool has_first, has_second;
    struct str first = text_of(j, firsts, &has_first), second = text_of(j, seconds, &has_second);
    const struct json *list = json_get(j, "documents");
    if (!has_first && o.query) first = str_of(o.query), has_first = true;
    if (!has_first) return status_set(err, ROSE_INVALID, "line %zu: an object wants \"query\" and \"document\" or \"documents\", or \"text\"", line + 1);
    for (const char *const *key = seconds; *key && !has_second; key++)
        if (!json_is_null(json_get(j, *key))) return status_set(err, ROSE_INVALID, "line %zu: \"%s\" is no text", line + 1, *key);
    if (json_is_null(list)) return add(s, (struct item){first, second, has_second, line, 0, 0}, err);
    if (!json_is(list, JSON_ARRAY)) return status_set(err, ROSE_INVALID, "line %zu: \"documents\" must be a list of texts", line + 1);
    if (has_second) return status_set(err, ROSE_INVALID, "line %zu: it has \"documents\" and one document beside them: write either", line + 1);
    if (!s->scores && !s->embeds) return status_set(err, ROSE_INVALID, "line %zu: %s gives texts labels and ranks no \"documents\": write {\"text\": …}, or {\"text\": …, \"pair\": …}", line + 1, s->info.name);
    if (!list->count) return status_set(err, ROSE_INVALID, "line %zu: \"documents\" is empty", line + 1);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct json *d = json_at(list, i), *text = json_is(d, JSON_OBJECT) ? json_get(d, "text") : d;
        if (!json_is(text, JSON_STRING)) return status_set(err, ROSE_INVALID, "line %zu: \"documents\"[%u] is no text", line + 1, i);
        ROSE_TRY(add(s, (struct item){first, text->string, true, line, i, list->count}, err));
    }
    return ROSE_OK;
}

/* A line: JSON; or "query TAB document" where pairs are scored; or a text. */
static enum rose_status add_line(struct score *s, size_t line, struct rose_error *err)
{
    struct str text = s->lines.line[line];
    if (text.n && (text.p[0] == '{' || text.p[0] == '"')) {
        const struct json *j;
        struct rose_error bad = {0};
        enum rose_status status = json_parse(&s->arena, NULL, text, &j, &bad);
        if (status != ROSE_OK && text.p[0] == '{') return status_set(err, ROSE_INVALID, "line %zu begins like JSON and is none: %s; a text that begins with a brace is written as a JSON string", line + 1, bad.message);
        if (status == ROSE_OK && json_is(j, JSON_OBJECT)) return add_json(s, line, j, err);
        if (status == ROSE_OK && json_is(j, JSON_STRING)) text = j->string;
    }
    if (o.query) return add(s, (struct item){str_of(o.query), text, true, line, 0, 0}, err);
    const char *tab = text.n ? memchr(text.p, '\t', text.n) : NULL;
    if (!(s->scores || s->embeds) || !tab) return add(s, (struct item){text, {"", 0}, false, line, 0, 0}, err);
    size_t n = (size_t)(tab - text.p);
    return add(s, (struct item){{text.p, n}, {tab + 1, text.n - n - 1}, true, line, 0, 0}, err);
}

static enum rose_truncate truncation(void)
{
    return !strcmp(o.truncate, "left") ? ROSE_TRUNCATE_LEFT : !strcmp(o.truncate, "right") ? ROSE_TRUNCATE_RIGHT : ROSE_TRUNCATE_NONE;
}

static enum rose_status no_pair(struct rose_error *err)
{
    return status_set(err, ROSE_INVALID, "this model scores pairs: write {\"query\": …, \"document\": …}, or query TAB document, or give --query");
}

static enum rose_status request(void *arg, size_t i, struct rose_request *r, struct rose_error *err)
{
    const struct score *s = arg;
    const struct item *it = &s->items[i];
    if (s->scores && !it->paired) return no_pair(err);
    r->task = s->scores ? ROSE_TASK_SCORE : ROSE_TASK_CLASSIFY;
    r->prompt = it->first.p;
    r->prompt_bytes = it->first.n;
    r->pair = it->paired ? it->second.p : NULL;
    r->pair_bytes = it->second.n;
    r->instruction = o.instruction;
    r->activation = o.raw ? ROSE_OFF : ROSE_DEFAULT;
    r->truncate = truncation();
    r->tokenize_flags = o.parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0;
    return ROSE_OK;
}

static size_t line_of_item(void *arg, size_t i) { return ((const struct score *)arg)->items[i].line; }
static size_t line_of_part(void *arg, size_t i)
{
    const struct score *s = arg;
    return s->items[s->parts[i].item].line;
}

static int best(const float *v, int n)
{
    int k = 0;
    for (int i = 1; i < n; i++)
        if (v[i] > v[k]) k = i;
    return k;
}

static void add_values(struct strbuf *out, const float *v, int n)
{
    strbuf_addc(out, '[');
    for (int i = 0; i < n; i++) strbuf_printf(out, "%s%.9g", i ? "," : "", (double)v[i]);
    strbuf_addc(out, ']');
}

static void add_tokens(const struct score *s, const struct rose_event *e, struct strbuf *out)
{
    strbuf_adds(out, "\"tokens\":[");
    for (int t = 0; t < e->rows; t++) {
        const float *v = e->values + (size_t)t * (size_t)e->cols;
        int k = best(v, e->cols);
        size_t n;
        const char *text = rose_token_text(s->engine, e->value_ids[t], &n);
        strbuf_printf(out, "%s{\"id\":%d,\"token\":", t ? "," : "", e->value_ids[t]);
        json_add_str(out, (struct str){text ? text : "", n});
        strbuf_adds(out, ",\"label\":");
        json_add_str(out, str_of(s->info.labels[k]));
        strbuf_printf(out, ",\"score\":%.9g}", (double)v[k]);
    }
    strbuf_adds(out, "]}\n");
}

static enum rose_status answer(void *arg, size_t i, const struct rose_event *e, struct strbuf *out, struct rose_error *err)
{
    struct score *s = arg;
    const struct item *it = &s->items[i];
    (void)err;
    if (it->of) {
        s->values[i] = e->values[0];
        return ROSE_OK;
    }
    strbuf_printf(out, "{\"index\":%zu,", it->line);
    if (s->scores) {
        strbuf_printf(out, "\"score\":%.9g}\n", (double)e->values[0]);
    } else if (s->info.tasks & ROSE_CAN_CLASSIFY_TOKENS) {
        add_tokens(s, e, out);
    } else {
        strbuf_adds(out, "\"label\":");
        json_add_str(out, str_of(s->info.labels[best(e->values, e->cols)]));
        strbuf_adds(out, ",\"probs\":");
        add_values(out, e->values, e->cols);
        strbuf_adds(out, "}\n");
    }
    return ROSE_OK;
}

static const float *sorted_values;
static int by_score(const void *a, const void *b)
{
    float x = sorted_values[*(const size_t *)a], y = sorted_values[*(const size_t *)b];
    if (x != y) return x < y ? 1 : -1;
    return *(const size_t *)a < *(const size_t *)b ? -1 : 1;
}

/* The documents of a line, best first, when its last one has been answered. */
static bool emit_list(const struct score *s, size_t last)
{
    const struct item *it = &s->items[last];
    size_t *order = malloc(it->of * sizeof *order), shown = o.top && (size_t)o.top < it->of ? (size_t)o.top : it->of;
    struct strbuf out = {0};
    if (!order) return false;
    for (size_t k = 0; k < it->of; k++) order[k] = k;
    sorted_values = s->values + last + 1 - it->of;
    qsort(order, it->of, sizeof *order, by_score);
    strbuf_printf(&out, "{\"index\":%zu,\"results\":[", it->line);
    for (size_t k = 0; k < shown; k++) strbuf_printf(&out, "%s{\"index\":%zu,\"score\":%.9g}", k ? "," : "", order[k], (double)sorted_values[order[k]]);
    strbuf_adds(&out, "]}\n");
    bool good = !out.failed && fwrite(out.p, 1, out.n, s->out) == out.n;
    strbuf_free(&out);
    free(order);
    return good;
}

static bool emit(void *arg, size_t i, struct str out)
{
    struct score *s = arg;
    const struct item *it = &s->items[i];
    if (it->of) return it->place + 1 < it->of || emit_list(s, i);
    return fwrite(out.p, 1, out.n, s->out) == out.n;
}

/* --- pairs of models that embed ------------------------------------------------------------------------------------------------------- */

static enum rose_status plan_parts(struct score *s, size_t from, struct rose_error *err)
{
    s->parts = calloc(2 * (s->count - from) + 1, sizeof *s->parts);
    s->query = calloc((size_t)s->info.embedding_size + 1, sizeof *s->query);
    if (!s->parts || !s->query) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = from; i < s->count; i++) {
        if (i == from || !str_eq(s->items[i].first, s->items[i - 1].first)) s->parts[s->parts_count++] = (struct part){i, true};
        s->parts[s->parts_count++] = (struct part){i, false};
    }
    return ROSE_OK;
}

static enum rose_status request_part(void *arg, size_t i, struct rose_request *r, struct rose_error *err)
{
    const struct score *s = arg;
    const struct item *it = &s->items[s->parts[i].item];
    if (!it->paired) return no_pair(err);
    struct str text = s->parts[i].first ? it->first : it->second;
    r->task = ROSE_TASK_EMBED;
    r->prompt = text.p;
    r->prompt_bytes = text.n;
    r->truncate = truncation();
    r->tokenize_flags = o.parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0;
    return ROSE_OK;
}

static enum rose_status answer_part(void *arg, size_t i, const struct rose_event *e, struct strbuf *out, struct rose_error *err)
{
    const struct score *s = arg;
    (void)i;
    if (e->rows != 1 || e->cols != s->info.embedding_size) return status_set(err, ROSE_UNSUPPORTED, "this model gives a text %d rows, which have no similarity", e->rows);
    strbuf_add(out, e->values, (size_t)e->cols * sizeof *e->values);
    return ROSE_OK;
}

/* In the order of the texts, so the query's embedding is there when its documents' come. */
static bool emit_part(void *arg, size_t i, struct str out)
{
    struct score *s = arg;
    size_t item = s->parts[i].item;
    const struct item *it = &s->items[item];
    const float *v = (const float *)(const void *)out.p;
    if (s->parts[i].first) {
        memcpy(s->query, v, out.n);
        return true;
    }
    s->values[item] = similar(s->info.similarity, s->query, v, s->info.embedding_size);
    if (it->of) return it->place + 1 < it->of || emit_list(s, item);
    return fprintf(s->out, "{\"index\":%zu,\"score\":%.9g}\n", it->line, (double)s->values[item]) > 0;
}

/* Behind the answers that are there: whatever answers depend on. */
static enum rose_status go_on(struct score *s, size_t *lines, struct rose_error *err)
{
    struct texts_made m;
    char top[24], context[24];
    snprintf(top, sizeof top, "%lld", (long long)o.top);
    snprintf(context, sizeof context, "%lld", (long long)cli_common.context);
    ROSE_TRY(texts_made(&m, "rose score", s->model, s->input, o.output, o.restart, err));
    resume_option(&m.resume, "query", o.query ? o.query : "");
    resume_option(&m.resume, "instruction", o.instruction ? o.instruction : "");
    resume_option(&m.resume, "raw", o.raw ? "on" : "off");
    resume_option(&m.resume, "truncate", o.truncate);
    resume_option(&m.resume, "parse-special", o.parse_special ? "on" : "off");
    resume_option(&m.resume, "ctx", context);
    resume_option(&m.resume, "top", top);
    return texts_resume(&m, &s->lines, &s->out, lines, err);
}

/* A model of another kind than the command's: the sentence names the command that takes it. */
static enum rose_status check_kind(const struct score *s, struct rose_error *err)
{
    const char *name = s->info.name;
    bool labels = s->info.tasks & (ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS) && !s->scores;
    if (s->info.tasks & ROSE_CAN_GENERATE) return status_set(err, ROSE_UNSUPPORTED, "%s generates text: it neither scores nor classifies nor embeds (rose run, rose chat)", name);
    if (s->kind == RANKS && labels) return status_set(err, ROSE_UNSUPPORTED, "%s gives texts labels and no relevance: use rose classify", name);
    if (s->kind == LABELS && s->scores) return status_set(err, ROSE_UNSUPPORTED, "%s gives pairs one score and no labels: use rose rerank", name);
    if (s->kind == LABELS && s->embeds) return status_set(err, ROSE_UNSUPPORTED, "%s embeds texts and has no labels: use rose embed, or rose rerank to compare pairs", name);
    if (labels && (o.query || o.instruction || o.top))
        return status_set(err, ROSE_UNSUPPORTED, "%s gives texts labels: --query, --instruction and --top are for models that score pairs", name);
    if (s->embeds && (o.raw || o.instruction)) return status_set(err, ROSE_UNSUPPORTED, "%s embeds: pairs are compared by their embeddings, without logits or an instruction", name);
    return ROSE_OK;
}

static enum rose_status run(struct score *s, bool *interrupted, struct rose_error *err)
{
    size_t lines = 0, first = 0;
    rose_engine_info(s->engine, &s->info);
    s->scores = s->info.tasks & ROSE_CAN_SCORE;
    s->embeds = !(s->info.tasks & (ROSE_CAN_SCORE | ROSE_CAN_CLASSIFY | ROSE_CAN_CLASSIFY_TOKENS));
    ROSE_TRY(check_kind(s, err));
    if (o.output) ROSE_TRY(go_on(s, &lines, err));
    for (size_t i = 0; i < s->lines.count; i++) {
        if (i == lines) first = s->count;
        ROSE_TRY(add_line(s, i, err));
    }
    if (lines == s->lines.count) first = s->count;
    if (!(s->values = calloc(s->count + 1, sizeof *s->values))) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    struct texts_job job = {s->engine, first, s->count, "scoring", s, request, answer, emit, line_of_item};
    if (s->embeds) {
        ROSE_TRY(plan_parts(s, first, err));
        job = (struct texts_job){s->engine, 0, s->parts_count, "scoring", s, request_part, answer_part, emit_part, line_of_part};
    }
    enum rose_status status = texts_run(&job, interrupted, err);
    if (fflush(s->out) && status == ROSE_OK) status = status_at(err, ROSE_IO, o.output ? o.output : "", -1, "the output cannot be written: %s", strerror(errno));
    return status;
}

static int command(enum kind kind, const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    bool interrupted = false;
    struct rose_error err = {0};
    struct score s = {.kind = kind, .out = stdout};
    struct cli_engine engine;
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    cli_common.sequences = 256;
    cli_common.task = "score";
    arena_init(&s.arena, 0);
    s.model = words[0];
    s.input = count > 1 ? words[1] : "-";
    enum rose_status st = texts_read(s.input, &s.lines, &err);
    if (st != ROSE_OK) return cli_error(st, &err);
    st = cli_open(words[0], false, &engine, &err);
    s.engine = engine.engine;
    if (st == ROSE_OK) st = run(&s, &interrupted, &err);
    status = st == ROSE_OK ? (interrupted ? CLI_SIGNAL + SIGINT : CLI_OK) : cli_error(st, &err);
    cli_close(&engine);
    if (s.out && s.out != stdout) fclose(s.out);
    texts_free(&s.lines);
    arena_free(&s.arena);
    free(s.items);
    free(s.values);
    free(s.parts);
    free(s.query);
    return status;
}

int cli_score(const struct cli_command *self, int argc, char **argv) { return command(ANY, self, argc, argv); }
int cli_rerank(const struct cli_command *self, int argc, char **argv) { return command(RANKS, self, argc, argv); }
int cli_classify(const struct cli_command *self, int argc, char **argv) { return command(LABELS, self, argc, argv); }
