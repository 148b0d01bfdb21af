/* rose embed: texts of a file to vectors. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/texts.h"

static struct {
    const char *output, *format, *prompt, *pooling, *normalize, *truncate;
    int64_t dimensions;
    bool sparse, tokens, restart, parse_special;
} o;

static const struct option options[] = {
    {"output", 'o', OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "write here instead of standard output; what is there is gone on with", &o.output},
    {"restart", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "write the output anew, whatever is there", &o.restart},
    {"format", 'f', OPTION_CHOICE, NULL, NULL, "jsonl|npy|f32", "jsonl", 0, 0, "JSON lines, NumPy's file, or float32 rows and nothing else", &o.format},
    {"prompt-name", 'p', OPTION_TEXT, NULL, "NAME", NULL, NULL, 0, 0, "the model's prompt of this name before every text; '' for none", &o.prompt},
    {"pooling", 0, OPTION_CHOICE, NULL, NULL, "model|cls|mean|last|weighted_mean|max", "model", 0, 0, "how a text's rows become one", &o.pooling},
    {"dimensions", 'd', OPTION_INT, NULL, "N", NULL, "0", 0, 1 << 20, "keep the first N values (Matryoshka); 0: all", &o.dimensions},
    {"normalize", 0, OPTION_CHOICE, NULL, NULL, "model|on|off", "model", 0, 0, "to length 1", &o.normalize},
    {"truncate", 0, OPTION_CHOICE, NULL, NULL, "none|left|right", "none", 0, 0, "which end of a text that is too long is cut off; none: an error", &o.truncate},
    {"parse-special", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "control tokens spelt out in a text are those tokens, as for sentence-transformers and TEI", &o.parse_special},
    {"sparse", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "weights of tokens from the model's lexical head (BGE-M3)", &o.sparse},
    {"tokens", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "a vector a token instead of one a text", &o.tokens},
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "token budget of a batch of texts; 0: 1024, on a GPU 8192", &cli_common.step_tokens},
    CLI_COMMON_OPTIONS,
};

size_t cli_embed_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

struct embed {
    const char *model, *input; /* as they are named */
    struct texts_lines lines;
    struct strbuf text; /* of a JSON line, unescaped */
    FILE *out;
    int columns;        /* of a row in npy and f32 */
    size_t first;
};

static enum rose_pooling pooling(void)
{
    static const char *const names[] = {"model", "cls", "mean", "last", "weighted_mean", "max"};
    for (size_t i = 0; i < ROSE_COUNT(names); i++)
        if (!strcmp(o.pooling, names[i])) return (enum rose_pooling)i;
    return ROSE_POOL_MODEL;
}

/* A line is the text itself; or JSON: a string, or an object with "text" (or "input"). */
static enum rose_status line_text(struct embed *e, struct str line, struct str *out, struct rose_error *err)
{
    *out = line;
    if (!line.n || (line.p[0] != '{' && line.p[0] != '"')) return ROSE_OK;
    struct arena a;
    const struct json *j;
    struct rose_error bad = {0};
    arena_init(&a, (size_t)1 << 30);
    enum rose_status s = json_parse(&a, NULL, line, &j, &bad);
    if (s == ROSE_OK) {
        const struct json *text = json_is(j, JSON_OBJECT) ? json_get(j, "text") : j;
        if (!text) text = json_get(j, "input");
        if (!json_is(text, JSON_STRING)) s = status_set(err, ROSE_INVALID, "a JSON line must be a string or an object with \"text\"");
        else {
            e->text.n = 0;
            strbuf_add(&e->text, text->string.p, text->string.n);
            *out = strbuf_str(&e->text);
        }
    } else if (line.p[0] == '"') {
        s = ROSE_OK; /* a text that begins with a quotation mark */
    } else {
        s = status_set(err, ROSE_INVALID, "the line begins like JSON and is none: %s; a text that begins with a brace is written as a JSON string", bad.message);
    }
    arena_free(&a);
    return s;
}

static enum rose_status request(void *arg, size_t i, struct rose_request *r, struct rose_error *err)
{
    struct embed *e = arg;
    struct str text;
    ROSE_TRY(line_text(e, e->lines.line[i], &text, err));
    r->task = ROSE_TASK_EMBED;
    r->prompt = text.p;
    r->prompt_bytes = text.n;
    r->prompt_name = o.prompt;
    r->pooling = o.tokens ? ROSE_POOL_NONE : pooling();
    r->dimensions = (int)o.dimensions;
    r->normalize = !strcmp(o.normalize, "on") ? ROSE_ON : !strcmp(o.normalize, "off") ? ROSE_OFF : ROSE_DEFAULT;
    r->truncate = !strcmp(o.truncate, "left") ? ROSE_TRUNCATE_LEFT : !strcmp(o.truncate, "right") ? ROSE_TRUNCATE_RIGHT : ROSE_TRUNCATE_NONE;
    r->sparse = o.sparse;
    r->tokenize_flags = o.parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0;
    return ROSE_OK;
}

static void add_row(struct strbuf *out, const float *v, int n)
{
    strbuf_addc(out, '[');
    for (int i = 0; i < n; i++) strbuf_printf(out, "%s%.9g", i ? "," : "", (double)v[i]);
    strbuf_addc(out, ']');
}

static enum rose_status answer(void *arg, size_t i, const struct rose_event *ev, struct strbuf *out, struct rose_error *err)
{
    const struct embed *e = arg;
    if (strcmp(o.format, "jsonl")) {
        if (ev->rows != 1 || ev->cols != e->columns) return status_set(err, ROSE_INTERNAL, "an answer of %d x %d instead of 1 x %d", ev->rows, ev->cols, e->columns);
        strbuf_add(out, ev->values, (size_t)ev->cols * sizeof *ev->values);
        return ROSE_OK;
    }
    strbuf_printf(out, "{\"index\":%zu,", i);
    if (o.sparse) {
        strbuf_adds(out, "\"indices\":[");
        for (int k = 0; k < ev->value_ids_count; k++) strbuf_printf(out, "%s%d", k ? "," : "", ev->value_ids[k]);
        strbuf_adds(out, "],\"values\":");
        add_row(out, ev->values, ev->cols);
    } else if (o.tokens) {
        strbuf_adds(out, "\"embeddings\":[");
        for (int k = 0; k < ev->rows; k++) {
            if (k) strbuf_addc(out, ',');
            add_row(out, ev->values + (size_t)k * (size_t)ev->cols, ev->cols);
        }
        strbuf_addc(out, ']');
    } else {
        strbuf_adds(out, "\"embedding\":");
        add_row(out, ev->values, ev->cols);
    }
    strbuf_adds(out, "}\n");
    return ROSE_OK;
}

static bool emit(void *arg, size_t i, struct str out)
{
    struct embed *e = arg;
    (void)i;
    return fwrite(out.p, 1, out.n, e->out) == out.n;
}

/* NumPy's format 1.0: magic, version, length of the header, a Python dict padded so that data begin at byte 128. */
enum { NPY_HEADER = 128 };
static void npy_header(char head[NPY_HEADER], size_t rows, int columns)
{
    memset(head, ' ', NPY_HEADER);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)(NPY_HEADER - 10), head[9] = 0;
    int n = snprintf(head + 10, NPY_HEADER - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", rows, columns);
    head[10 + n] = ' ';
    head[NPY_HEADER - 1] = '\n';
}

static bool npy_put(FILE *f, size_t rows, int columns)
{
    char head[NPY_HEADER];
    npy_header(head, rows, columns);
    return fseek(f, 0, SEEK_SET) == 0 && fwrite(head, 1, NPY_HEADER, f) == NPY_HEADER;
}

/* Is the file's head one of ours, with as many columns and whatever rows it says (a killed run's are old), or the beginning of one? */
static bool npy_is_ours(FILE *f, int columns)
{
    char there[NPY_HEADER + 1], head[NPY_HEADER];
    rewind(f);
    size_t n = fread(there, 1, NPY_HEADER, f), rows = 0;
    there[n] = '\0';
    const char *shape = n == NPY_HEADER ? strchr(there + 10, '(') : NULL;
    if (shape && sscanf(shape, "(%zu,", &rows) != 1) return false;
    npy_header(head, rows, columns);
    return !memcmp(there, head, n);
}

/* How many answers an output file holds already; what is behind the last whole one is cut off. */
static enum rose_status resume(struct embed *e, const struct texts_made *m, struct rose_error *err)
{
    if (!strcmp(o.format, "jsonl")) return texts_resume(m, &e->lines, &e->out, &e->first, err);
    long head = strcmp(o.format, "npy") ? 0 : NPY_HEADER, row = (long)e->columns * (long)sizeof(float), size;
    ROSE_TRY(texts_open(m, &e->out, &size, err));
    if (size < 0 && head) return status_at(err, ROSE_INVALID, o.output, -1, "--format npy wants a regular file, which %s is not: its head is written last", o.output);
    if (size < 0) return ROSE_OK;
    if (head && !npy_is_ours(e->out, e->columns)) return resume_refuse(&m->resume, err, "%s holds something else than rows of %d float32 as NumPy writes them", o.output, e->columns);
    e->first = size > head ? (size_t)((size - head) / row) : 0;
    ROSE_TRY(texts_settle(m, &e->lines, e->first, size, err));
    long whole = head + (long)e->first * row;
    if (fflush(e->out) || ftruncate(fileno(e->out), whole) || (head && !npy_put(e->out, e->first, e->columns)) || fseek(e->out, whole, SEEK_SET))
        return status_at(err, ROSE_IO, o.output, -1, "cannot write %s: %s", o.output, strerror(errno));
    return ROSE_OK;
}

/* Behind the answers that are there: whatever answers depend on. */
static enum rose_status go_on(struct embed *e, struct rose_error *err)
{
    struct texts_made m;
    char dimensions[24], context[24];
    snprintf(dimensions, sizeof dimensions, "%lld", (long long)o.dimensions);
    snprintf(context, sizeof context, "%lld", (long long)cli_common.context);
    ROSE_TRY(texts_made(&m, "rose embed", e->model, e->input, o.output, o.restart, err));
    resume_option(&m.resume, "format", o.format);
    resume_option(&m.resume, "prompt-name", o.prompt ? o.prompt : "(the model's)");
    resume_option(&m.resume, "pooling", o.pooling);
    resume_option(&m.resume, "dimensions", dimensions);
    resume_option(&m.resume, "normalize", o.normalize);
    resume_option(&m.resume, "truncate", o.truncate);
    resume_option(&m.resume, "ctx", context);
    resume_option(&m.resume, "parse-special", o.parse_special ? "on" : "off");
    resume_option(&m.resume, "sparse", o.sparse ? "on" : "off");
    resume_option(&m.resume, "tokens", o.tokens ? "on" : "off");
    return resume(e, &m, err);
}

/* What the model cannot do is no fault of the first line. */
static enum rose_status check_options(const struct rose_model_info *info, struct rose_error *err)
{
    int size = o.tokens ? info->hidden : info->embedding_size;
    if (!(info->tasks & ROSE_CAN_EMBED))
        return status_set(err, ROSE_UNSUPPORTED, "%s does not embed: %s", info->name, info->tasks & ROSE_CAN_GENERATE ? "it generates text (rose run, rose chat)" :
                          info->tasks & ROSE_CAN_SCORE ? "it scores pairs (rose rerank)" : "it gives texts labels (rose classify)");
    if (o.dimensions > size)
        return status_set(err, ROSE_INVALID, "--dimensions %lld is more than the %d values that %s gives a %s", (long long)o.dimensions, size, info->name, o.tokens ? "token" : "text");
    if (o.sparse && !(info->tasks & ROSE_CAN_SPARSE)) return status_set(err, ROSE_UNSUPPORTED, "--sparse: %s has no lexical head", info->name);
    for (int i = 0; o.prompt && i < info->prompts_count; i++)
        if (!strcmp(info->prompts[i], o.prompt)) return ROSE_OK;
    if (!o.prompt || !*o.prompt) return ROSE_OK;
    struct strbuf list = {.limit = 400};
    for (int i = 0; i < info->prompts_count; i++) strbuf_printf(&list, "%s%s", i ? ", " : "", info->prompts[i]);
    enum rose_status s = status_set(err, ROSE_INVALID, "--prompt-name %s: %s has no prompt of that name; it has: %s", o.prompt, info->name, list.n ? list.p : "none");
    strbuf_free(&list);
    return s;
}

static enum rose_status run(struct cli_engine *engine, struct embed *e, bool *interrupted, struct rose_error *err)
{
    struct rose_model_info info;
    rose_engine_info(engine->engine, &info);
    ROSE_TRY(check_options(&info, err));
    e->columns = o.dimensions ? (int)o.dimensions : info.embedding_size;
    e->out = stdout;
    if (o.output) ROSE_TRY(go_on(e, err));
    if (!o.output && !strcmp(o.format, "npy")) return status_set(err, ROSE_INVALID, "--format npy wants --output FILE: its head says how many rows there are");
    struct texts_job job = {engine->engine, e->first, e->lines.count, "embedding", e, request, answer, emit, NULL};
    enum rose_status s = texts_run(&job, interrupted, err);
    bool bad = fflush(e->out) != 0;
    if (o.output && !strcmp(o.format, "npy")) {
        fseek(e->out, 0, SEEK_END);
        long rows = (ftell(e->out) - NPY_HEADER) / (long)((size_t)e->columns * sizeof(float));
        bad |= !npy_put(e->out, (size_t)rows, e->columns) || fflush(e->out) != 0;
    }
    if (s == ROSE_OK && bad) s = status_at(err, ROSE_IO, o.output ? o.output : "", -1, "the output cannot be written: %s", strerror(errno));
    return s;
}

int cli_embed(const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    bool interrupted = false;
    struct rose_error err = {0};
    struct embed e = {0};
    struct cli_engine engine;
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    if ((o.sparse || o.tokens) && strcmp(o.format, "jsonl")) return cli_usage(self, "--sparse and --tokens are written as JSON lines only");
    cli_common.sequences = 256;
    cli_common.task = "embed";
    e.model = words[0];
    e.input = count > 1 ? words[1] : "-";
    enum rose_status s = texts_read(e.input, &e.lines, &err);
    if (s != ROSE_OK) return cli_error(s, &err);
    s = cli_open(words[0], false, &engine, &err);
    if (s == ROSE_OK) s = run(&engine, &e, &interrupted, &err);
    status = s == ROSE_OK ? (interrupted ? CLI_SIGNAL + SIGINT : CLI_OK) : cli_error(s, &err);
    cli_close(&engine);
    if (e.out && e.out != stdout) fclose(e.out);
    texts_free(&e.lines);
    strbuf_free(&e.text);
    return status;
}
