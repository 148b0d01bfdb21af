/* libFuzzer: bodies of requests through the routes themselves, to the end of their answers. The first byte chooses the route and, by its two
 * highest bits, whether the rest is the body or comes as gzip or deflate. Behind them are a tokenizer and a model that repeats one word. Every
 * answer has a status, and its JSON, or that of its events, is JSON. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>

#include "fuzz_server.h"
#include "server/coding.h"
#include "server/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY = 64 << 10, SHARED = 4096, PUMPS = 12 };

static struct server_options options;
static struct server server;

/* A region that can be registered. */
static void shared_gone(void) { shm_unlink("/rose-fuzz"); }

static void open_server(void)
{
    struct rose_error err = {0};
    server_options_init(&options);
    options.null_model = true;
    server.options = &options;
    struct server_model m = {.name = "m", .engine = fuzz_engine("bert")};
    int fd = shm_open("/rose-fuzz", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, SHARED) || close(fd) || atexit(shared_gone) || models_open(&server.models, &options, &m, 1, &err)) abort();
    server.models.models[0].info.tasks = ROSE_CAN_GENERATE;
    server.models.models[0].info.context = 512;
}

static void is_json(struct str text)
{
    struct arena a;
    const struct json *j;
    arena_init(&a, 0);
    if (json_parse(&a, NULL, text, &j, NULL) != ROSE_OK) abort();
    arena_free(&a);
}

/* Lines of an event stream: "data: JSON", ": remark", nothing. */
static void are_events(struct str text)
{
    while (text.n) {
        const char *end = memchr(text.p, '\n', text.n);
        size_t n = end ? (size_t)(end - text.p) : text.n;
        struct str line = {text.p, n};
        if (!end || (n && line.p[0] != ':' && !str_starts(line, STR("data: ")))) abort();
        if (n && line.p[0] != ':') is_json((struct str){line.p + 6, n - 6});
        text = (struct str){end + 1, text.n - n - 1};
    }
}

/* Its answer, or as much of it as a client reads that leaves then. */
static void answer(struct httpd_request *r)
{
    struct model *m = &server.models.models[0];
    struct rose_stats stats;
    for (int i = 0; i < PUMPS && !(r->status && r->ended); i++) models_pump(&server.models, m);
    bool whole = r->status && r->ended;
    if (whole && (r->status < 200 || r->status > 599)) abort();
    if (whole && r->type && str_starts(str_of(r->type), STR("application/json")) && r->out.n) is_json(strbuf_str(&r->out));
    if (whole && r->type && str_starts(str_of(r->type), STR("text/event-stream"))) are_events(strbuf_str(&r->out));
    if (r->on_gone) r->on_gone(r);
    for (model_stats(m, &stats); stats.requests != stats.finished; model_stats(m, &stats)) models_pump(&server.models, m);
    if (server.models.handles_open) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"/v2/models/m/generate", "/v2/models/m/generate_stream", "/v2/models/m/infer", "/tokenize", "/decode", "/v2/systemsharedmemory/region/r/register",
                                        "/v2/cudasharedmemory/region/r/register", "/v1/completions"};
    if (!server.options) open_server();
    if (!size) return 0;
    struct httpd_request r = {.method = "POST", .path = paths[data[0] % ROSE_COUNT(paths)], .id = "fuzz", .body = {.limit = BODY}};
    enum coding coding = data[0] >> 6 == 2 ? CODING_GZIP : data[0] >> 6 == 3 ? CODING_DEFLATE : CODING_IDENTITY;
    arena_init(&r.arena, (size_t)64 << 20);
    strbuf_add(&r.body, data + 1, size - 1);
    if (coding_decode(coding, &r.body) == CODING_OK) {
        if (r.body.n > BODY) abort();
        routes_request(&server, &r);
        answer(&r);
    } else if (coding == CODING_IDENTITY || r.body.n != ROSE_MIN(size - 1, BODY) || memcmp(r.body.p ? r.body.p : "", data + 1, r.body.n)) {
        abort(); /* what cannot be undone stays */
    }
    for (int i = 0; i < server.regions.count; i++)
        if (server.regions.all[i]->bytes > SHARED || server.regions.all[i]->offset > SHARED - server.regions.all[i]->bytes) abort();
    regions_remove(&server.regions, (struct str){"", 0}, false);
    strbuf_free(&r.body);
    strbuf_free(&r.out);
    arena_free(&r.arena);
    return 0;
}
