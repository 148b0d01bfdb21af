/* rose serve: models behind HTTP. */
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "server/loader.h"

enum { MAX_MODELS = 32 };

static struct {
    const char *host, *unix_path, *tls_cert, *tls_key, *api_keys, *cors, *log_format;
    int64_t port, grpc_port, max_body, max_headers, max_output, connections, per_address, max_waiting, cache_ready;
    double idle, read, write, ping, drain, stretch, stall;
    bool access_log, null_model, shared_memory, any_model, auto_truncate, parse_special;
    struct option_list alias, task;
} o;

static const struct option options[] = {
    {.type = OPTION_GROUP, .help = "Listening:"},
    {"host", 0, OPTION_TEXT, "ROSE_HOST", "NAME", NULL, "127.0.0.1", 0, 0, "address to listen on; 0.0.0.0 or :: for all", &o.host},
    {"port", 'p', OPTION_INT, "ROSE_PORT", "N", NULL, "8080", 0, 65535, "port; 0: any free one, which is printed", &o.port},
    {"grpc-port", 0, OPTION_INT, "ROSE_GRPC_PORT", "N", NULL, "-1", -1, 65535, "KServe v2 over gRPC too; 0: any free one, which is printed; -1: no gRPC", &o.grpc_port},
    {"unix", 0, OPTION_TEXT, NULL, "PATH", NULL, NULL, 0, 0, "listen on a Unix socket instead", &o.unix_path},
    {"tls-cert", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "certificate chain (PEM); with --tls-key", &o.tls_cert},
    {"tls-key", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "private key (PEM)", &o.tls_key},
    {"shared-memory", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "KServe's clients may register system shared memory (default on; --no-shared-memory: not)", &o.shared_memory},
    {"api-keys", 0, OPTION_TEXT, "ROSE_API_KEYS", "FILE", NULL, NULL, 0, 0, "one key a line; requests need one of them", &o.api_keys},
    {"cors-origin", 0, OPTION_TEXT, NULL, "ORIGIN", NULL, NULL, 0, 0, "let pages from there call the API; * for all", &o.cors},
    {"alias", 0, OPTION_LIST, NULL, "NAME", NULL, NULL, 0, 0, "what requests call the model; once a MODEL, in their order", &o.alias},
    {"any-model", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "a request that names a model which is not here goes to the first that can answer it, as with TEI", &o.any_model},
    {"auto-truncate", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "texts to embed, rank, score or classify that are too long are cut off, as with TEI's option; without it requests have to ask for that", &o.auto_truncate},
    {"parse-special", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "control tokens spelt out in texts to embed, rank, score or classify are those tokens, as for TEI and sentence-transformers; without it they are plain text", &o.parse_special},
    {"task", 0, OPTION_LIST, NULL, "TASK", NULL, NULL, 0, 0, "what the model is for: auto (what its files say), generate, embed, classify or score; once a MODEL, in their order", &o.task},
    {.type = OPTION_GROUP, .help = "Limits:"},
    {"max-sequences", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 4096, "sequences running at once; 0: 64, on a GPU 256", &cli_common.sequences},
    {"max-waiting", 0, OPTION_INT, NULL, "N", NULL, "4096", 1, 1 << 20, "requests that may wait; more get a 429", &o.max_waiting},
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "token budget of a step; 0: 512, on a GPU 8192, with experts 16384", &cli_common.step_tokens},
    {"step-stretch", 0, OPTION_NUMBER, NULL, "X", NULL, "0", 0, 1e6, "while answers are written, new prompts may stretch a step to X times its time without them; 0: 2, on a GPU no bound; 1000: no bound, first tokens come sooner", &o.stretch},
    {"cache-ready", 0, OPTION_SIZE, NULL, "SIZE", NULL, "512M", 0, 0, "CPU: memory of the cache that is taken from the system before it is needed, while nothing else is to do", &o.cache_ready},
    {"kv-bytes", 0, OPTION_SIZE, NULL, "SIZE", NULL, "0", 0, 0, "key-value cache; 0: what the machine has left", &cli_common.kv_bytes},
    {"no-prefix-cache", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "compute equal prefixes again", &cli_common.no_prefix_cache},
    {"max-body", 0, OPTION_SIZE, NULL, "SIZE", NULL, "32M", 1024, 1 << 30, "a request's body", &o.max_body},
    {"max-headers", 0, OPTION_SIZE, NULL, "SIZE", NULL, "32k", 4096, 1 << 24, "a connection's memory for headers and buffers", &o.max_headers},
    {"max-output", 0, OPTION_SIZE, NULL, "SIZE", NULL, "1M", 4096, 1 << 30, "bytes a client may leave unread before it counts as gone", &o.max_output},
    {"max-connections", 0, OPTION_INT, NULL, "N", NULL, "4096", 1, 1000000, "connections at once; more wait to be accepted", &o.connections},
    {"max-connections-per-address", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 1000000, "of one peer address; 0: no limit", &o.per_address},
    {"idle-timeout", 0, OPTION_NUMBER, NULL, "S", NULL, "60", 1, 86400, "seconds for a connection to bring its next request's headers", &o.idle},
    {"read-timeout", 0, OPTION_NUMBER, NULL, "S", NULL, "60", 1, 86400, "seconds for a request's body", &o.read},
    {"write-timeout", 0, OPTION_NUMBER, NULL, "S", NULL, "30", 1, 86400, "seconds without progress of a client that reads", &o.write},
    {"ping", 0, OPTION_NUMBER, NULL, "S", NULL, "15", 1, 86400, "seconds of silence before a stream gets a comment", &o.ping},
    {"drain", 0, OPTION_NUMBER, NULL, "S", NULL, "30", 0, 86400, "seconds that requests have to end after SIGTERM", &o.drain},
    {"stall", 0, OPTION_NUMBER, NULL, "S", NULL, "30", 0.1, 86400, "seconds of work without a step before /health says that an engine is stuck", &o.stall},
    {.type = OPTION_GROUP, .help = "Logging:"},
    {"log-format", 0, OPTION_CHOICE, "ROSE_LOG_FORMAT", NULL, "plain|json", "plain", 0, 0, "how lines look", &o.log_format},
    {"access-log", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "a line a request (default on; --no-access-log: none)", &o.access_log},
    {"null-model", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "measure the server alone: a generator answers, no weights are read", &o.null_model},
    {"dummy-weights", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "random weights from a config.json alone, to measure", &cli_common.dummy_weights},
    CLI_COMMON_OPTIONS,
};

size_t cli_serve_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

/* Loading takes longer than a moment: a line that overwrites itself on a terminal, else a line every few seconds. */
struct loading {
    struct cli_progress bar;
    time_t said;
    const char *model;
};

static void on_progress(void *user, const char *what, size_t done, size_t total)
{
    struct loading *l = user;
    time_t t = time(NULL);
    if (l->bar.on) cli_progress_show(&l->bar, what, done, total);
    if (l->bar.on || cli_common.quiet || !total || t < l->said + 5) return;
    l->said = t;
    struct strbuf b = {0};
    strbuf_printf(&b, "%s: %s, %d%%", l->model, what, (int)(100.0 * (double)done / (double)total));
    cli_say(b.p ? b.p : "");
    strbuf_free(&b);
}

static struct rose_engine_options engine_options(const char *template)
{
    const struct cli_common *c = &cli_common;
    return (struct rose_engine_options){.context = (int)c->context, .max_sequences = (int)c->sequences, .max_waiting = (int)o.max_waiting,
                                        .step_tokens = (int)c->step_tokens, .step_stretch = o.stretch, .kv = c->kv, .weights = c->weights, .kv_bytes = (size_t)c->kv_bytes, .cache_ready = (size_t)o.cache_ready, .deterministic = c->deterministic,
                                        .no_prefix_cache = c->no_prefix_cache, .tokenizer_only = o.null_model, .dummy_weights = c->dummy_weights, .chat_template = template};
}

static enum rose_status open_model(struct rose_device *device, const char *model, const struct rose_engine_options *options, struct rose_engine **out, struct rose_error *err)
{
    struct loading loading = {.model = model, .said = time(NULL)};
    struct rose_engine_options e = *options;
    cli_progress_begin(&loading.bar);
    e.model = model;
    e.progress = on_progress;
    e.progress_user = &loading;
    enum rose_status s = rose_engine_open(device, &e, out, err);
    cli_progress_end(&loading.bar);
    if (s == ROSE_OK && !o.null_model) cli_warn_context(*out);
    if (s == ROSE_OK && strcmp(cli_common.log, "error") && !o.null_model) cli_say_engine(*out, device);
    return s;
}

static void fill(struct server_options *s)
{
    server_options_init(s);
    s->host = o.host;
    s->port = (int)o.port;
    s->grpc_port = (int)o.grpc_port;
    s->unix_path = o.unix_path;
    s->tls_cert = o.tls_cert;
    s->tls_key = o.tls_key;
    s->api_keys = o.api_keys;
    s->cors_origin = o.cors;
    s->notify_socket = option_env("NOTIFY_SOCKET");
    s->body_limit = (size_t)o.max_body;
    s->header_limit = (size_t)o.max_headers;
    s->output_limit = (size_t)o.max_output;
    s->connections = (int)o.connections;
    s->connections_per_address = (int)o.per_address;
    s->idle_s = o.idle;
    s->read_s = o.read;
    s->write_s = o.write;
    s->ping_s = o.ping;
    s->drain_s = o.drain;
    s->stall_s = o.stall;
    s->log_json = !strcmp(o.log_format, "json");
    s->log_debug = !strcmp(cli_common.log, "debug");
    s->log_requests = o.access_log && !cli_common.quiet;
    s->null_model = o.null_model;
    s->no_shared_memory = !o.shared_memory;
    s->any_model = o.any_model;
    s->auto_truncate = o.auto_truncate;
    s->parse_special = o.parse_special;
}

/* The models among the words, by their names; the repositories stay words. */
static enum rose_status open_models(struct rose_device *device, const char *const *words, int count, const struct rose_engine_options *options, struct server_model *models,
                                    int *opened, struct rose_error *err)
{
    static char names[MAX_MODELS][256];
    *opened = 0;
    for (int i = 0; i < count; i++) {
        int n = *opened;
        if (repository_is(words[i])) continue;
        if (n < o.alias.count) snprintf(names[n], sizeof names[n], "%s", o.alias.items[n]);
        else cli_model_name(words[i], names[n], sizeof names[n]);
        models[n] = (struct server_model){.name = names[n], .path = words[i], .task = n < o.task.count ? o.task.items[n] : NULL};
        /* One memory for all: each takes its part of what is left. A repository counts as one here and divides its part likewise. */
        struct rose_engine_options share = *options;
        share.memory_share = 1.0 / (count - i);
        share.task = models[n].task;
        ROSE_TRY(open_model(device, words[i], &share, &models[n].engine, err));
        ++*opened;
    }
    return ROSE_OK;
}

int cli_serve(const struct cli_command *self, int argc, char **argv)
{
    const char *words[MAX_MODELS], *repositories[MAX_MODELS];
    struct server_model models[MAX_MODELS] = {{0}};
    struct server_options server;
    struct rose_device *device = NULL;
    struct rose_error err = {0};
    struct strbuf template = {0};
    int count, status, opened = 0;
    o.access_log = o.shared_memory = true;
    if (!cli_parse(self, argc, argv, words, MAX_MODELS, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    fill(&server);
    server.repositories = repositories;
    for (int i = 0; i < count; i++)
        if (repository_is(words[i])) repositories[server.repositories_count++] = words[i];
    if (o.alias.count > count - server.repositories_count || o.task.count > count - server.repositories_count)
        return cli_usage(self, "there are more --alias or --task than models");
    if (!o.tls_cert != !o.tls_key) return cli_usage(self, "--tls-cert and --tls-key go together");
    server_block_signals(); /* before the engines' threads, which inherit the mask */
    enum rose_status s = ROSE_OK;
    if (cli_common.chat_template) s = cli_read(cli_common.chat_template, 4 << 20, &template, &err);
    struct rose_engine_options engine = engine_options(template.p);
    if (s == ROSE_OK) s = cli_device(o.null_model, &device, &err);
    server.rose_device = device;
    server.engine = &engine;
    if (s == ROSE_OK) s = open_models(device, words, count, &engine, models, &opened, &err);
    /* Named models may be unloaded by KServe's route: the server closes those it took over. */
    bool taken = s == ROSE_OK;
    for (int i = 0; i < opened; i++) models[i].owned = taken;
    if (s == ROSE_OK) s = server_run(&server, models, opened, rose_device_name(device), &err);
    for (int i = 0; !taken && i < opened; i++) rose_engine_close(models[i].engine);
    rose_device_close(device);
    strbuf_free(&template);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}
