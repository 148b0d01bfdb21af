#define _GNU_SOURCE
#include "cli/commands.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/worker.h"

struct cli_common cli_common;
struct cli_sampling cli_sampling;

bool cli_is_terminal(int fd) { return isatty(fd) == 1; }

int cli_columns(void)
{
    struct winsize size;
    int64_t n;
    const char *env = option_env("COLUMNS");
    if (env && str_to_i64(str_of(env), &n) && n >= 40 && n <= 400) return (int)n;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return ROSE_MIN(size.ws_col, 120);
    return 80;
}

int cli_error(enum rose_status status, const struct rose_error *err)
{
    struct strbuf b = {0};
    const char *message = err->message[0] ? err->message : rose_status_name(status);
    bool named = !err->file[0] || strstr(message, err->file);
    char column[32]; /* some messages say the place themselves */
    snprintf(column, sizeof column, "column %d", err->column);
    bool placed = err->line > 0 && (err->column <= 0 || strstr(message, column)); /* column 0: a line is all that is known, and the message names it */
    strbuf_printf(&b, "rose: %s", message);
    if (err->line > 0 && !placed) strbuf_printf(&b, " (%s%sline %d, column %d)", named ? "" : err->file, named ? "" : ", ", err->line, err->column);
    else if (err->offset > 0 && !placed) strbuf_printf(&b, " (%s%sbyte %lld)", named ? "" : err->file, named ? "" : ", ", (long long)err->offset);
    else if (!named) strbuf_printf(&b, " (%s)", err->file);
    fprintf(stderr, "%s\n", b.p ? b.p : message);
    strbuf_free(&b);
    return CLI_FAILED;
}

static bool parse_bias(const char *text, struct rose_logit_bias *out);

int cli_usage(const struct cli_command *self, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("rose: ", stderr);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, "\nusage: rose %s%s%s\n       rose %s --help\n", self->name, *self->arguments ? " [OPTIONS] " : "", self->arguments, self->name);
    return CLI_USAGE;
}

static void print_help(const struct cli_command *self)
{
    const struct option *options;
    size_t count = self->options(&options);
    struct strbuf text = {0};
    strbuf_printf(&text, "usage: rose %s%s%s\n\n", self->name, *self->arguments ? " [OPTIONS] " : "", self->arguments);
    if (self->summary) strbuf_printf(&text, "%s\n\n", self->summary);
    option_help(options, count, cli_columns(), &text);
    if (self->details) strbuf_printf(&text, "%s%s", count ? "\n" : "", self->details);
    fwrite(text.p, 1, text.n, stdout);
    strbuf_free(&text);
}

/* "auto", "cpu", "cuda", "cuda:N" */
static bool is_device(const char *name)
{
    int64_t index;
    if (!strcmp(name, "auto") || !strcmp(name, "cpu") || !strcmp(name, "cuda")) return true;
    return !strncmp(name, "cuda:", 5) && str_to_i64(str_of(name + 5), &index) && index >= 0 && index <= 1023;
}

static bool has_option(const struct option *options, size_t count, const void *to)
{
    for (size_t i = 0; i < count; i++)
        if (options[i].target == to) return true;
    return false;
}

/* Values that the option table cannot judge: a wrong one is a usage error like any other. */
static bool check_values(const struct cli_command *self, const struct option *options, size_t count, int *status)
{
    const struct option_list *biases = &cli_sampling.logit_bias;
    struct rose_logit_bias bias;
    if (has_option(options, count, &cli_common.device) && !is_device(cli_common.device)) {
        *status = cli_usage(self, "the device \"%s\" (--device, or ROSE_DEVICE) is none of auto, cpu, cuda, cuda:N", cli_common.device);
        return false;
    }
    for (int i = 0; has_option(options, count, &cli_sampling.stop) && i < cli_sampling.stop.count; i++)
        if (!*cli_sampling.stop.items[i]) {
            *status = cli_usage(self, "--stop: the text is empty");
            return false;
        }
    bool off;
    int64_t bytes;
    struct rose_error err;
    if (has_option(options, count, &cli_common.packed_cache) && cli_packed_cache(cli_common.packed_cache, &off, &bytes, &err) != ROSE_OK) {
        *status = cli_usage(self, "%s", err.message);
        return false;
    }
    for (int i = 0; has_option(options, count, biases) && i < biases->count; i++)
        if (!parse_bias(biases->items[i], &bias)) {
            *status = cli_usage(self, "--logit-bias %s: write ID=X, for example 42=-100", biases->items[i]);
            return false;
        }
    return true;
}

bool cli_parse(const struct cli_command *self, int argc, char **argv, const char **rest, int rest_room, int *rest_count, int *status)
{
    const struct option *options;
    size_t count = self->options(&options);
    struct rose_error err = {0};
    bool help;
    if (option_parse(options, count, argc, argv, rest, rest_room, rest_count, &help, &err) != ROSE_OK) {
        *status = cli_usage(self, "%s", err.message);
        return false;
    }
    if (help) {
        print_help(self);
        *status = CLI_OK;
        return false;
    }
    return check_values(self, options, count, status);
}

/* --- engine --------------------------------------------------------------------------------------------------------------------------- */

void cli_progress_begin(struct cli_progress *p) { *p = (struct cli_progress){.began = clock_seconds(), .on = !cli_common.quiet && cli_is_terminal(STDERR_FILENO)}; }

void cli_progress_end(const struct cli_progress *p)
{
    if (p->shown) fprintf(stderr, "\r%60s\r", "");
}

void cli_progress_show(void *user, const char *what, size_t done, size_t total)
{
    struct cli_progress *p = user;
    if (!p->on || !total || (!p->shown && clock_seconds() - p->began < 1)) return;
    int percent = (int)(100.0 * (double)done / (double)total), filled = percent * 30 / 100;
    if (p->shown && percent == p->percent) return;
    fprintf(stderr, "\r%s [%.*s%*s] %3d%% ", what, filled, "##############################", 30 - filled, "", percent);
    p->percent = percent;
    p->shown = true;
}

void cli_say(const char *line)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "rose: ");
    strbuf_add_printable(&b, str_of(line));
    strbuf_addc(&b, '\n');
    fwrite(b.p ? b.p : "", 1, b.n, stderr);
    strbuf_free(&b);
}

void cli_say_engine(const struct rose_engine *engine, const struct rose_device *device)
{
    struct rose_model_info i;
    struct strbuf b = {0};
    rose_engine_info(engine, &i);
    strbuf_printf(&b, "%s (%s, %s), %s; weights %.1f MB, cache %.1f MB for %d tokens of %s, work %.1f MB; loaded in %.3f s", i.name, i.architecture, i.weights_type,
            rose_device_name(device), (double)i.weights_bytes / 1e6, (double)i.kv_bytes / 1e6, i.context, i.kv_type, (double)i.work_bytes / 1e6, i.load_seconds);
    cli_say(b.p ? b.p : "");
    strbuf_free(&b);
}

static void on_message(void *user, enum rose_message_level level, const char *line)
{
    (void)user;
    bool info = level == ROSE_MESSAGE_INFO && strcmp(cli_common.log, "error"), debug = !strcmp(cli_common.log, "debug");
    if (info || debug || (level == ROSE_MESSAGE_WARNING && !cli_common.quiet)) cli_say(line);
}

enum rose_status cli_packed_cache(const char *text, bool *off, int64_t *bytes, struct rose_error *err)
{
    *off = text && !strcmp(text, "off");
    *bytes = 0;
    if (!text || *off || !strcmp(text, "on") || (option_size(str_of(text), bytes) && *bytes > 0)) return ROSE_OK;
    return status_set(err, ROSE_INVALID, "--packed-cache: \"%.60s\" is neither on, off nor a size such as 20G", text);
}

/* More threads than cores take turns, with a change of turns at every barrier. */
static void warn_threads(void)
{
    char line[160];
    int cores = workers_cores();
    if (cli_common.threads <= cores || cli_common.quiet) return;
    snprintf(line, sizeof line, "--threads %lld on %d core%s: they take turns, which is slower than --threads %d", (long long)cli_common.threads, cores, cores == 1 ? "" : "s", cores);
    cli_say(line);
}

enum rose_status cli_device(bool text_only, struct rose_device **out, struct rose_error *err)
{
    const struct cli_common *c = &cli_common;
    if (!text_only) warn_threads();
    bool off;
    int64_t packed;
    ROSE_TRY(cli_packed_cache(c->packed_cache, &off, &packed, err));
    struct rose_device_options device = {.kind = text_only ? "cpu" : c->device, .threads = text_only ? 1 : (int)c->threads, .no_pin = c->no_pin || text_only, .isa = c->isa, .no_packed_cache = off, .packed_cache_bytes = packed,
                                         .driver = option_env("ROSE_CUDA_DRIVER"), .nvrtc = option_env("ROSE_NVRTC"), .message = on_message};
    return rose_device_open(&device, out, err);
}

void cli_warn_context(const struct rose_engine *engine)
{
    struct rose_model_info i;
    rose_engine_info(engine, &i);
    bool generates = i.tasks & ROSE_CAN_GENERATE;
    if (cli_common.quiet || !i.model_context || cli_common.context <= i.model_context || (!generates && cli_common.sized)) return;
    struct strbuf b = {0};
    strbuf_printf(&b, "--ctx %lld is more than the %d tokens that %s %s", (long long)cli_common.context, i.model_context, i.name,
                  generates ? "was made for; answers get worse behind them" : "has positions for, which is what it takes");
    cli_say(b.p ? b.p : "");
    strbuf_free(&b);
}

enum rose_status cli_open(const char *model, bool tokenizer_only, struct cli_engine *out, struct rose_error *err)
{
    const struct cli_common *c = &cli_common;
    *out = (struct cli_engine){0};
    struct cli_progress progress;
    cli_progress_begin(&progress);
    struct rose_engine_options engine = {.model = model, .context = (int)c->context, .max_sequences = c->sequences ? (int)c->sequences : 1, .kv = c->kv,
                                         .step_tokens = (int)c->step_tokens, .step_stretch = 1000, .kv_bytes = (size_t)c->kv_bytes, .deterministic = c->deterministic,
                                         .no_prefix_cache = c->no_prefix_cache, .tokenizer_only = tokenizer_only, .dummy_weights = c->dummy_weights, .task = c->task, .weights = c->weights, .progress = cli_progress_show, .progress_user = &progress};
    struct strbuf text = {0};
    if (c->chat_template) ROSE_TRY(cli_read(c->chat_template, 4 << 20, &text, err));
    out->chat_template = text.p;
    engine.chat_template = text.p;
    ROSE_TRY(cli_device(tokenizer_only, &out->device, err));
    enum rose_status s = rose_engine_open(out->device, &engine, &out->engine, err);
    if (s == ROSE_NOT_FOUND && cli_pull_offer(model)) s = rose_engine_open(out->device, &engine, &out->engine, err);
    cli_progress_end(&progress);
    if (s == ROSE_OK && !tokenizer_only) cli_warn_context(out->engine);
    if (s == ROSE_OK && strcmp(c->log, "error") && !tokenizer_only) cli_say_engine(out->engine, out->device);
    return s;
}

const char *cli_model_name(const char *model, char *room, size_t bytes)
{
    struct str s = str_of(model);
    while (s.n > 1 && s.p[s.n - 1] == '/') s.n--;
    bool is_path = s.p[0] == '/' || s.p[0] == '.' || s.p[0] == '~' || str_ends(s, STR(".gguf"));
    if (str_ends(s, STR(".gguf"))) s.n -= 5;
    for (size_t i = s.n; is_path && i-- > 0;)
        if (s.p[i] == '/') {
            s = (struct str){s.p + i + 1, s.n - i - 1};
            break;
        }
    snprintf(room, bytes, "%.*s", (int)s.n, s.p);
    return room;
}

void cli_close(struct cli_engine *e)
{
    rose_engine_close(e->engine);
    rose_device_close(e->device);
    free(e->chat_template);
}

static bool parse_bias(const char *text, struct rose_logit_bias *out)
{
    const char *equals = strchr(text, '=');
    int64_t id;
    double bias;
    if (!equals || !str_to_i64((struct str){text, (size_t)(equals - text)}, &id) || !str_to_f64(str_of(equals + 1), &bias) || id < 0 || id > INT32_MAX) return false;
    *out = (struct rose_logit_bias){(int32_t)id, (float)bias};
    return true;
}

bool cli_request(struct rose_request *r, struct rose_logit_bias *biases, struct rose_error *err)
{
    const struct cli_sampling *s = &cli_sampling;
    rose_request_init(r);
    r->max_tokens = (int)s->max_tokens;
    r->sampling = (struct rose_sampling){.temperature = (float)s->temperature, .top_k = (int)s->top_k, .top_p = (float)s->top_p, .min_p = (float)s->min_p,
                                         .repetition_penalty = (float)s->repetition, .presence_penalty = (float)s->presence,
                                         .frequency_penalty = (float)s->frequency, .has_seed = s->seed >= 0, .seed = (uint64_t)s->seed, .ignore_eos = s->ignore_eos,
                                         .logit_bias = biases, .logit_bias_count = (size_t)s->logit_bias.count};
    r->stops = s->stop.items;
    r->stops_count = (size_t)s->stop.count;
    for (int i = 0; i < s->logit_bias.count; i++)
        if (!parse_bias(s->logit_bias.items[i], &biases[i]))
            return status_set(err, ROSE_INVALID, "--logit-bias %s: write ID=X, for example 42=-100", s->logit_bias.items[i]), false;
    return true;
}

/* --- texts ------------------------------------------------------------------------------------------------------------------------------ */

enum rose_status cli_read(const char *path, size_t limit, struct strbuf *out, struct rose_error *err)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rbe");
    if (!f) return status_at(err, ROSE_IO, path, -1, "cannot open %s: %s", path, strerror(errno));
    *out = (struct strbuf){.limit = limit};
    char piece[65536];
    if (standard && !cli_common.quiet && cli_is_terminal(STDIN_FILENO) && cli_is_terminal(STDERR_FILENO)) fputs("rose: reading from the terminal; Ctrl-D ends it\n", stderr);
    /* A terminal's end is no lasting one: after it another fread would wait for a second Ctrl-D. */
    for (size_t n; !feof(f) && (n = fread(piece, 1, sizeof piece, f)) > 0;)
        if (!strbuf_add(out, piece, n)) break;
    bool bad = ferror(f);
    if (!standard) fclose(f);
    if (bad || out->failed) {
        strbuf_free(out);
        return status_at(err, bad ? ROSE_IO : ROSE_LIMIT, path, -1, bad ? "cannot read %s" : "%s is larger than the limit", standard ? "standard input" : path);
    }
    strbuf_add(out, "", 0);
    return ROSE_OK;
}

enum rose_status cli_render(const struct rose_engine *e, struct str input, struct strbuf *out, struct rose_error *err)
{
    size_t n;
    *out = (struct strbuf){0};
    ROSE_TRY(rose_render(e, input.p, input.n, NULL, 0, &n, err));
    if (!strbuf_reserve(out, n)) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    ROSE_TRY(rose_render(e, input.p, input.n, out->p, n, &out->n, err));
    return ROSE_OK;
}

enum rose_status cli_detokenize(const struct rose_engine *e, const int32_t *ids, size_t count, int flags, struct strbuf *out, struct rose_error *err)
{
    size_t n;
    *out = (struct strbuf){0};
    ROSE_TRY(rose_detokenize(e, ids, count, flags, NULL, 0, &n, err));
    if (!strbuf_reserve(out, n)) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    ROSE_TRY(rose_detokenize(e, ids, count, flags, out->p, n, &out->n, err));
    return ROSE_OK;
}
