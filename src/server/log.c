#define _GNU_SOURCE
#include "server/internal.h"

#include <stdio.h>
#include <time.h>

static void add_time(struct strbuf *b)
{
    struct timespec t;
    struct tm tm;
    char text[40];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    strbuf_printf(b, "%s.%03ldZ", text, t.tv_nsec / 1000000);
}

static void write_line(struct strbuf *b)
{
    strbuf_addc(b, '\n');
    if (!b->failed) fwrite(b->p, 1, b->n, stderr);
    strbuf_free(b);
}

void log_request(const struct server *s, const struct httpd_request *r)
{
    struct strbuf b = {0};
    double seconds = httpd_now() - r->began_s;
    if (s->options->log_json) {
        strbuf_adds(&b, "{\"time\":\"");
        add_time(&b);
        strbuf_printf(&b, "\",\"level\":\"info\",\"event\":\"request\",\"id\":\"%s\",\"method\":", r->id);
        json_add_str(&b, str_of(r->method));
        strbuf_adds(&b, ",\"path\":");
        json_add_str(&b, str_of(r->path));
        strbuf_printf(&b, ",\"status\":%d,\"seconds\":%.6f,\"bytes\":%zu,\"gone\":%s", r->status, seconds, r->sent, r->gone ? "true" : "false");
        if (r->log_model) {
            strbuf_adds(&b, ",\"model\":");
            json_add_str(&b, str_of(r->log_model));
        }
        if (r->log_finish)
            strbuf_printf(&b, ",\"finish\":\"%s\",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"completion_tokens\":%d", r->log_finish, r->log_prompt, r->log_cached,
                          r->log_completion);
        strbuf_addc(&b, '}');
    } else {
        struct strbuf path = {0};
        json_add_str(&path, (struct str){r->path, strnlen(r->path, 200)}); /* quoted and escaped: a path cannot fake a line */
        add_time(&b);
        strbuf_printf(&b, " %s %.10s %s %d %.3fs %zuB", r->id, r->method, path.p ? path.p : "\"\"", r->status, seconds, r->sent);
        if (r->log_finish) strbuf_printf(&b, " %s %d+%d tokens (%d cached)", r->log_finish, r->log_prompt, r->log_completion, r->log_cached);
        if (r->gone) strbuf_adds(&b, " gone");
        strbuf_free(&path);
    }
    write_line(&b);
}

void log_line(const struct server_options *o, const char *level, const char *fmt, ...)
{
    struct strbuf b = {0}, text = {0};
    va_list args;
    va_start(args, fmt);
    strbuf_vprintf(&text, fmt, args);
    va_end(args);
    if (o->log_json) {
        strbuf_adds(&b, "{\"time\":\"");
        add_time(&b);
        strbuf_printf(&b, "\",\"level\":\"%s\",\"event\":\"server\",\"message\":", level);
        json_add_str(&b, strbuf_str(&text));
        strbuf_addc(&b, '}');
    } else {
        strbuf_adds(&b, "rose: "); /* a line stays one, whatever a model's file is called */
        strbuf_add_printable(&b, strbuf_str(&text));
    }
    strbuf_free(&text);
    write_line(&b);
}
