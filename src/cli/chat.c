/* rose chat: a conversation. Every turn sends the whole conversation; the prefix cache holds what was there before. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/line.h"
#include "cli/stream.h"

static const char *system_text;

static const struct option options[] = {
    {"system", 0, OPTION_TEXT, NULL, "TEXT", NULL, NULL, 0, 0, "a system message at the start", &system_text},
    CLI_SAMPLING_OPTIONS,
    CLI_COMMON_OPTIONS,
};

size_t cli_chat_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

struct chat {
    struct cli_engine e;
    struct strbuf system;   /* "": none */
    struct strbuf messages; /* JSON objects after the system message, with commas */
    struct strbuf answer;
    bool terminal, closed;  /* closed: standard output is gone */
    int prompt_tokens, cached_tokens, completion_tokens;
    enum rose_finish finish;
};

static void add_message(struct strbuf *b, const char *role, struct str content)
{
    if (b->n && b->p[b->n - 1] == '}') strbuf_addc(b, ',');
    strbuf_printf(b, "{\"role\":\"%s\",\"content\":", role);
    json_add_str(b, content);
    strbuf_addc(b, '}');
}

static bool on_event(void *user, const struct rose_event *event)
{
    struct chat *c = user;
    if (event->kind == ROSE_EVENT_TOKEN) {
        strbuf_add(&c->answer, event->text, event->text_bytes);
        if (!cli_put(event->text, event->text_bytes)) c->closed = true;
    } else if (event->kind == ROSE_EVENT_FINAL) {
        c->prompt_tokens = event->prompt_tokens_count;
        c->cached_tokens = event->cached_tokens;
        c->completion_tokens = event->completion_tokens;
        c->finish = event->finish;
    }
    return !c->closed;
}

/* One turn. A failed one leaves the conversation as it was. */
static enum rose_status turn(struct chat *c, struct str text, struct rose_error *err)
{
    struct rose_request r;
    struct rose_logit_bias biases[OPTION_LIST_MAX];
    struct strbuf prompt = {0};
    size_t before = c->messages.n;
    bool interrupted = false;
    if (!cli_request(&r, biases, err)) return ROSE_INVALID;
    add_message(&c->messages, "user", text);
    strbuf_adds(&prompt, "{\"messages\":[");
    if (c->system.n) {
        add_message(&prompt, "system", strbuf_str(&c->system));
        strbuf_addc(&prompt, ',');
    }
    strbuf_add(&prompt, c->messages.p, c->messages.n);
    strbuf_adds(&prompt, "],\"add_generation_prompt\":true}");
    r.kind = ROSE_REQUEST_CHAT;
    r.prompt = prompt.p;
    r.prompt_bytes = prompt.n;
    c->answer.n = 0;
    enum rose_status s = prompt.failed || c->messages.failed ? status_set(err, ROSE_NO_MEMORY, "out of memory") : cli_stream(c->e.engine, &r, on_event, c, &interrupted, err);
    strbuf_free(&prompt);
    if (s != ROSE_OK) {
        c->messages.n = before;
        return s;
    }
    add_message(&c->messages, "assistant", strbuf_str(&c->answer));
    if (c->terminal && interrupted) fputs(" [stopped]", stdout);
    if (c->terminal && c->finish == ROSE_FINISH_LENGTH) fputs(" [the answer was cut off]", stdout);
    if (!cli_put("\n", 1)) c->closed = true;
    return ROSE_OK;
}

static void help(void)
{
    puts("/system TEXT   set the system message (nothing: remove it) and begin anew\n"
         "/clear         begin anew\n"
         "/exit          leave; so does Ctrl-D\n"
         "Ctrl-C stops an answer. A line that ends in \\ goes on in the next.");
}

/* A line that begins with '/'; false: leave. */
static bool command(struct chat *c, const char *line)
{
    if (!strcmp(line, "/exit") || !strcmp(line, "/quit") || !strcmp(line, "/bye")) return false;
    if (!strcmp(line, "/clear")) {
        c->messages.n = 0;
    } else if (!strncmp(line, "/system", 7) && (!line[7] || line[7] == ' ')) {
        c->system.n = c->messages.n = 0;
        strbuf_adds(&c->system, line + 7 + strspn(line + 7, " "));
    } else {
        if (strcmp(line, "/help")) printf("There is no command %s.\n", line);
        help();
    }
    return true;
}

/* A message of one or more lines. NULL: the end, or *interrupted. */
static const char *read_message(struct line_editor *l, struct strbuf *b, bool *interrupted)
{
    b->n = 0;
    for (const char *prompt = "> ";; prompt = "… ") {
        const char *line = line_read(l, prompt, interrupted);
        if (!line) return b->n && !*interrupted ? b->p : NULL;
        size_t n = strlen(line);
        bool more = n && line[n - 1] == '\\';
        if (!strbuf_add(b, line, n - more)) return NULL;
        if (!more) return b->p;
        strbuf_addc(b, '\n');
    }
}

/* Between a line and its answer Ctrl-C has nothing to stop; it must not stop the program. */
static void between(int signal) { (void)signal; }

static int converse(struct chat *c, struct line_editor *l)
{
    struct strbuf text = {0};
    int status = CLI_OK;
    struct sigaction act = {.sa_handler = between, .sa_flags = SA_RESTART}, before;
    if (c->terminal) sigaction(SIGINT, &act, &before);
    while (!c->closed) {
        struct rose_error err = {0};
        bool interrupted = false;
        const char *line = read_message(l, &text, &interrupted);
        if (!line && interrupted && c->terminal) continue;
        if (interrupted) status = CLI_SIGNAL + SIGINT; /* nobody is there to type the next line */
        if (!line) break;
        if (!line[strspn(line, " \t\n")]) continue;
        if (*line == '/') {
            if (!command(c, line)) break;
            continue;
        }
        enum rose_status s = turn(c, strbuf_str(&text), &err);
        if (s == ROSE_OK) continue;
        status = cli_error(s, &err);
        if (s == ROSE_LIMIT && c->messages.n) fputs("rose: /clear begins anew\n", stderr);
        if (!c->terminal) break;
        status = CLI_OK;
    }
    if (c->terminal) sigaction(SIGINT, &before, NULL);
    strbuf_free(&text);
    return status;
}

/* The cache directory's rose/history; NULL: no place for it. */
static const char *history_path(struct arena *a)
{
    const char *cache = option_env("XDG_CACHE_HOME"), *home = option_env("HOME");
    const char *dir = cache ? file_join(a, cache, "rose") : home ? file_join(a, home, ".cache/rose") : NULL;
    return dir && file_make_dirs(dir, NULL) == ROSE_OK ? file_join(a, dir, "history") : NULL;
}

int cli_chat(const struct cli_command *self, int argc, char **argv)
{
    const char *words[1];
    int count, status;
    struct rose_error err = {0};
    struct chat c = {.terminal = cli_is_terminal(0) && cli_is_terminal(1)};
    if (!cli_parse(self, argc, argv, words, 1, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    enum rose_status s = cli_open(words[0], false, &c.e, &err);
    struct rose_model_info info = {0};
    if (s == ROSE_OK) rose_engine_info(c.e.engine, &info);
    if (s == ROSE_OK && !info.chat_template)
        s = status_set(&err, ROSE_UNSUPPORTED, "%s has no chat template; give one with --chat-template FILE, or use rose run", info.name);
    if (s == ROSE_OK) {
        struct arena a;
        arena_init(&a, 0);
        struct line_editor *l = line_open(c.terminal ? history_path(&a) : NULL);
        if (system_text) strbuf_adds(&c.system, system_text);
        if (c.terminal && !cli_common.quiet) printf("%s on %s. /help lists commands.\n", info.name, rose_device_name(c.e.device));
        status = l ? converse(&c, l) : cli_error(ROSE_NO_MEMORY, &err);
        line_close(l);
        arena_free(&a);
    } else {
        status = cli_error(s, &err);
    }
    cli_close(&c.e);
    strbuf_free(&c.system);
    strbuf_free(&c.messages);
    strbuf_free(&c.answer);
    return status;
}
