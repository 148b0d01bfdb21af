/* rose cache: the packed weights kept for later starts. Prints what rose_packed_cache says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "base/json.h"
#include "cli/commands.h"

static struct {
    bool clear, json;
    const char *limit;
} o;

static const struct option options[] = {
    {"clear", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "remove all of them", &o.clear},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object", &o.json},
    {"packed-cache", 0, OPTION_TEXT, "ROSE_PACKED_CACHE", "on|off|SIZE", NULL, "on", 0, 0, "the limit to show", &o.limit},
};

size_t cli_cache_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static double gb(const struct json *j, const char *key) { return (double)json_int(json_get(j, key), 0) / 1e9; }

static void print(const struct json *j, struct strbuf *b)
{
    const struct json *files = json_get(j, "files");
    for (uint32_t i = 0; files && i < files->count; i++) {
        const struct json *f = json_at(files, i);
        struct str state = json_str(json_get(f, "state"), ""), model = json_str(json_get(f, "model"), "");
        time_t used = (time_t)json_int(json_get(f, "used"), 0);
        struct tm day;
        char text[16] = "";
        if (localtime_r(&used, &day)) strftime(text, sizeof text, "%Y-%m-%d", &day);
        strbuf_printf(b, "%9.3f GB  %s  %-8.*s ", gb(f, "bytes"), text, STR_ARG(state));
        strbuf_add_printable(b, model.n ? model : json_str(json_get(f, "file"), ""));
        strbuf_addc(b, '\n');
    }
    if (json_int(json_get(j, "removed"), 0)) strbuf_printf(b, "%lld files removed, %.3f GB\n", (long long)json_int(json_get(j, "removed"), 0), gb(j, "removed_bytes"));
    strbuf_printf(b, "%.3f GB of %.1f in ", gb(j, "bytes"), gb(j, "limit_bytes"));
    strbuf_add_printable(b, json_str(json_get(j, "folder"), ""));
    strbuf_addc(b, '\n');
}

int cli_cache(const struct cli_command *self, int argc, char **argv)
{
    int count, status;
    struct rose_error err = {0};
    struct arena arena;
    const struct json *j;
    char *text = NULL;
    bool off;
    int64_t limit;
    if (!cli_parse(self, argc, argv, NULL, 0, &count, &status)) return status;
    enum rose_status s = cli_packed_cache(o.limit, &off, &limit, &err);
    if (s != ROSE_OK) return cli_usage(self, "%s", err.message);
    s = rose_packed_cache(NULL, limit, o.clear, &text, &err);
    if (s != ROSE_OK) return cli_error(s, &err);
    arena_init(&arena, 0);
    struct strbuf out = {0};
    if (o.json) strbuf_printf(&out, "%s\n", text);
    else if ((s = json_parse(&arena, NULL, str_of(text), &j, &err)) == ROSE_OK) print(j, &out);
    fwrite(out.p ? out.p : "", 1, out.n, stdout);
    strbuf_free(&out);
    arena_free(&arena);
    rose_free(text);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}
