/* rose serve: models behind HTTP. */
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"

enum { MAX_MODELS = 32 };

static struct {
    const char *host, *unix_path, *tls_cert, *tls_key, *api_keys, *cors, *log_format;
    int64_t port, max_body, max_headers, max_output, connections, per_address, max_waiting;
    double idle, read, write, ping, drain;
    bool access_log, null_model;
    struct option_list alias;
} o;

static const struct option options[] = {
    {.type = OPTION_GROUP, .help = "Listening:"},
    {"host", 0, OPTION_TEXT, "ROSE_HOST", "NAME", NULL, "127.0.0.1", 0, 0, "address to listen on; 0.0.0.0 or :: for all", &o.host},
    {"port", 'p', OPTION_INT, "ROSE_PORT", "N", NULL, "8080", 0, 65535, "port; 0: any free one, which is printed", &o.port},
    {"unix", 0, OPTION_TEXT, NULL, "PATH", NULL, NULL, 0, 0, "listen on a Unix socket instead", &o.unix_path},
    {"tls-cert", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "certificate chain (PEM); with --tls-key", &o.tls_cert},
    {"tls-key", 0, OPTION_TEXT, NULL, "FILE", NULL, NULL, 0, 0, "private key (PEM)", &o.tls_key},
    {"api-keys", 0, OPTION_TEXT, "ROSE_API_KEYS", "FILE", NULL, NULL, 0, 0, "one key a line; requests need one of them", &o.api_keys},
    {"cors-origin", 0, OPTION_TEXT, NULL, "ORIGIN", NULL, NULL, 0, 0, "let pages from there call the API; * for all", &o.cors},
    {"alias", 0, OPTION_LIST, NULL, "NAME", NULL, NULL, 0, 0, "what requests call the model; once a MODEL, in their order", &o.alias},
    {.type = OPTION_GROUP, .help = "Limits:"},
    {"max-sequences", 0, OPTION_INT, NULL, "N", NULL, "64", 1, 4096, "sequences running at once", &cli_common.sequences},
    {"max-waiting", 0, OPTION_INT, NULL, "N", NULL, "4096", 1, 1 << 20, "requests that may wait; more get a 429", &o.max_waiting},
    {"step-tokens", 0, OPTION_INT, NULL, "N", NULL, "0", 0, 65536, "token budget of a step; 0: 512", &cli_common.step_tokens},
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
    {.type = OPTION_GROUP, .help = "Logging:"},
    {"log-format", 0, OPTION_CHOICE, "ROSE_LOG_FORMAT", NULL, "plain|json", "plain", 0, 0, "how lines look", &o.log_format},
    {"access-log", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "a line a request (default on; --no-access-log: none)", &o.access_log},
    {"null-model", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "measure the server alone: a generator answers, no weights are read", &o.null_model},
    CLI_COMMON_OPTIONS,
};

size_t cli_serve_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static enum rose_status open_model(struct rose_device *device, const char *model, const char *template, struct rose_engine **out, struct rose_error *err)
{
    const struct cli_common *c = &cli_common;
    struct rose_engine_options e = {.model = model, .context = (int)c->context, .max_sequences = (int)c->sequences, .max_waiting = (int)o.max_waiting,
                                    .step_tokens = (int)c->step_tokens, .kv = c->kv, .kv_bytes = (size_t)c->kv_bytes, .deterministic = c->deterministic,
                                    .no_prefix_cache = c->no_prefix_cache, .tokenizer_only = o.null_model, .chat_template = template};
    return rose_engine_open(device, &e, out, err);
}

static void fill(struct server_options *s)
{
    server_options_init(s);
    s->host = o.host;
    s->port = (int)o.port;
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
    s->log_json = !strcmp(o.log_format, "json");
    s->log_requests = o.access_log && !cli_common.quiet;
    s->null_model = o.null_model;
}

int cli_serve(const struct cli_command *self, int argc, char **argv)
{
    const char *words[MAX_MODELS];
    char names[MAX_MODELS][256];
    struct server_model models[MAX_MODELS] = {{0}};
    struct server_options server;
    struct rose_device *device = NULL;
    struct rose_error err = {0};
    struct strbuf template = {0};
    int count, status, opened = 0;
    o.access_log = true;
    if (!cli_parse(self, argc, argv, words, MAX_MODELS, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    if (o.alias.count > count) return cli_usage(self, "there are more --alias than models");
    if (!o.tls_cert != !o.tls_key) return cli_usage(self, "--tls-cert and --tls-key go together");
    fill(&server);
    server_block_signals(); /* before the engines' threads, which inherit the mask */
    struct rose_device_options d = {.kind = cli_common.device, .threads = o.null_model ? 1 : (int)cli_common.threads, .no_pin = cli_common.no_pin || o.null_model, .isa = cli_common.isa};
    enum rose_status s = ROSE_OK;
    if (cli_common.chat_template) s = cli_read(cli_common.chat_template, 4 << 20, &template, &err);
    if (s == ROSE_OK) s = rose_device_open(&d, &device, &err);
    for (; s == ROSE_OK && opened < count; opened += s == ROSE_OK) {
        models[opened].name = opened < o.alias.count ? o.alias.items[opened] : cli_model_name(words[opened], names[opened], sizeof names[opened]);
        s = open_model(device, words[opened], template.p, &models[opened].engine, &err);
    }
    if (s == ROSE_OK) s = server_run(&server, models, count, rose_device_name(device), &err);
    for (int i = 0; i < opened; i++) rose_engine_close(models[i].engine);
    rose_device_close(device);
    strbuf_free(&template);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}
