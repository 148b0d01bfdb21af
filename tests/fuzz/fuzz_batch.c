/* libFuzzer: what `rose batch` reads: its input, the output that it goes on behind, and that one's OUTPUT.resume, one behind the other with a zero
 * byte between them (those that are not there do not exist). Nothing behind it generates, so every line is answered by an error. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>

#include "base/file.h"
#include "base/json.h"
#include "fuzz_server.h"
#include "server/batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct str cut(struct str *rest)
{
    const char *end = rest->n ? memchr(rest->p, 0, rest->n) : NULL;
    struct str s = {rest->p, end ? (size_t)(end - rest->p) : rest->n};
    *rest = end ? (struct str){end + 1, rest->n - s.n - 1} : (struct str){NULL, 0};
    return s;
}

static void put(const char *path, struct str text)
{
    unlink(path);
    if (text.p) fuzz_write(path, text.p, text.n);
}

/* As many answers as the report says, each a line of JSON. */
static void check_output(const char *path, const struct batch_report *report)
{
    struct arena a;
    struct rose_error err = {0};
    struct str text;
    int answers = 0;
    arena_init(&a, 0);
    if (file_read(&a, path, (size_t)64 << 20, &text, &err)) abort();
    while (text.n) {
        const char *end = memchr(text.p, '\n', text.n);
        const struct json *j;
        if (!end) abort();
        struct str line = {text.p, (size_t)(end - text.p)};
        while (line.n && (line.p[line.n - 1] == ' ' || line.p[line.n - 1] == '\r')) line.n--;
        if (line.n && (json_parse(&a, NULL, line, &j, NULL) != ROSE_OK || !json_is(j, JSON_OBJECT))) abort();
        answers += line.n > 0;
        text = (struct str){end + 1, text.n - (size_t)(end + 1 - text.p)};
    }
    if (answers < report->skipped + report->done || report->total != report->skipped + report->done || report->failed != report->done) abort();
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rose_engine *engine;
    static char input[64], output[160], resume[160];
    static int fd;
    if (!engine) {
        engine = fuzz_engine("bert");
        fd = memfd_create("fuzz", 0);
        snprintf(input, sizeof input, "/proc/self/fd/%d", fd);
        snprintf(output, sizeof output, "%s", fuzz_path("out"));
        snprintf(resume, sizeof resume, "%s", fuzz_path("out.resume"));
    }
    struct str rest = {(const char *)data, size}, first = cut(&rest);
    if (fd < 0 || ftruncate(fd, 0) || (first.n && pwrite(fd, first.p, first.n, 0) != (ssize_t)first.n)) abort();
    put(output, cut(&rest));
    put(resume, cut(&rest));
    struct resume made = {.made_by = "rose batch", .output = output, .model = "m", .fingerprint = "9f"};
    struct batch_options o = {.input = input, .output = output, .at_once = 3, .resume = &made};
    struct server_model model = {.name = "m", .engine = engine};
    struct batch_report report;
    struct rose_error err = {0};
    resume_option(&made, "ctx", "64");
    if (batch_run(&o, &model, &report, &err) == ROSE_OK) check_output(output, &report);
    else if (!err.message[0]) abort();
    return 0;
}
