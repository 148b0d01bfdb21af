/* Prometheus' text format. */
#include "server/internal.h"

#include <math.h>

/* A label's value: backslash, quote and line feed escaped. */
static void add_label(struct strbuf *b, const char *value)
{
    for (const char *p = value; *p; p++) {
        if (*p == '\n') strbuf_adds(b, "\\n");
        else {
            if (*p == '"' || *p == '\\') strbuf_addc(b, '\\');
            strbuf_addc(b, *p);
        }
    }
}

static void head(struct strbuf *b, const char *name, const char *type, const char *help) { strbuf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type); }

static void sample(struct strbuf *b, const char *name, const char *model, double value)
{
    strbuf_printf(b, "%s{model=\"", name);
    add_label(b, model);
    strbuf_adds(b, "\"} ");
    json_add_num(b, value);
    strbuf_addc(b, '\n');
}

static void histogram(struct strbuf *b, const char *name, const char *model, const struct rose_histogram *h)
{
    uint64_t below = 0;
    for (int i = 0; i < ROSE_HISTOGRAM_BUCKETS; i++) {
        below += h->count[i];
        strbuf_printf(b, "%s_bucket{model=\"", name);
        add_label(b, model);
        if (i + 1 < ROSE_HISTOGRAM_BUCKETS) strbuf_printf(b, "\",le=\"%.9g\"} %llu\n", ldexp(1, i - 12), (unsigned long long)below);
        else strbuf_printf(b, "\",le=\"+Inf\"} %llu\n", (unsigned long long)h->total);
    }
    strbuf_printf(b, "%s_sum{model=\"", name);
    add_label(b, model);
    strbuf_printf(b, "\"} %.9g\n%s_count{model=\"", h->sum, name);
    add_label(b, model);
    strbuf_printf(b, "\"} %llu\n", (unsigned long long)h->total);
}

enum source { U64, INT, DOUBLE, HISTOGRAM, PAGES_USED };
#define FROM(member) offsetof(struct rose_stats, member)
static const struct metric {
    const char *name, *type, *help;
    enum source source;
    size_t offset;
} metrics[] = {
    {"rose_requests_running", "gauge", "Sequences in the running batch.", INT, FROM(running)},
    {"rose_requests_waiting", "gauge", "Sequences that wait for pages or a place.", INT, FROM(waiting)},
    {"rose_requests_total", "counter", "Requests accepted.", U64, FROM(requests)},
    {"rose_requests_finished_total", "counter", "Requests that have ended, for whatever reason.", U64, FROM(finished)},
    {"rose_requests_cancelled_total", "counter", "Requests whose client left or that were cancelled.", U64, FROM(cancelled)},
    {"rose_requests_failed_total", "counter", "Requests that ended with an error of the engine.", U64, FROM(failed)},
    {"rose_tokens_in_total", "counter", "Prompt tokens of requests whose prompt has been read.", U64, FROM(tokens_in)},
    {"rose_tokens_out_total", "counter", "Tokens generated.", U64, FROM(tokens_out)},
    {"rose_prefix_lookup_tokens_total", "counter", "Prompt tokens looked up in the prefix cache.", U64, FROM(prefix_lookup_tokens)},
    {"rose_prefix_hit_tokens_total", "counter", "Prompt tokens found there.", U64, FROM(prefix_hit_tokens)},
    {"rose_preemptions_total", "counter", "Sequences that lost their pages and were computed again.", U64, FROM(preemptions)},
    {"rose_steps_total", "counter", "Steps of the engine.", U64, FROM(steps)},
    {"rose_late_compiles_total", "counter", "Kernels compiled after the model was ready.", U64, FROM(late_compiles)},
    {"rose_kv_pages", "gauge", "Pages of the key-value cache.", INT, FROM(pages_total)},
    {"rose_kv_pages_used", "gauge", "Pages that requests hold.", PAGES_USED, 0},
    {"rose_kv_pages_free", "gauge", "Pages that hold nothing.", INT, FROM(pages_free)},
    {"rose_kv_pages_cached", "gauge", "Pages that only the prefix cache holds.", INT, FROM(pages_cached)},
    {"rose_step_prefill_rows", "gauge", "Prompt tokens in the latest step.", INT, FROM(last_prefill_rows)},
    {"rose_step_decode_rows", "gauge", "Sequences that decoded in the latest step.", INT, FROM(last_decode_rows)},
    {"rose_seconds_since_step", "gauge", "Seconds since the latest step while there is work, else 0.", DOUBLE, FROM(seconds_since_step)},
    {"rose_time_to_first_token_seconds", "histogram", "From submission to the first token.", HISTOGRAM, FROM(ttft)},
    {"rose_inter_token_seconds", "histogram", "Between two tokens of a sequence.", HISTOGRAM, FROM(inter_token)},
    {"rose_request_seconds", "histogram", "From submission to the end.", HISTOGRAM, FROM(end_to_end)},
    {"rose_queue_seconds", "histogram", "From submission to admission.", HISTOGRAM, FROM(queue_time)},
    {"rose_step_seconds", "histogram", "Duration of a step.", HISTOGRAM, FROM(step_time)},
};

static void add_metric(struct strbuf *b, const struct metric *m, const char *model, const struct rose_stats *st)
{
    const void *p = (const char *)st + m->offset;
    switch (m->source) {
    case U64: sample(b, m->name, model, (double)*(const uint64_t *)p); break;
    case INT: sample(b, m->name, model, *(const int *)p); break;
    case DOUBLE: sample(b, m->name, model, *(const double *)p); break;
    case HISTOGRAM: histogram(b, m->name, model, p); break;
    case PAGES_USED: sample(b, m->name, model, st->pages_total - st->pages_free - st->pages_cached); break;
    }
}

static void add_http(const struct server *s, struct strbuf *b)
{
    head(b, "rose_http_requests_total", "counter", "Answers by path and class of status; 0xx: the client left before one.");
    for (int i = 0; i < ROUTES_MAX; i++)
        for (int c = 0; c < 6; c++)
            if (s->answers[i][c]) strbuf_printf(b, "rose_http_requests_total{path=\"%s\",code=\"%dxx\"} %llu\n", routes_name(i) ? routes_name(i) : "other", c, (unsigned long long)s->answers[i][c]);
    head(b, "rose_http_connections", "gauge", "Open connections.");
    strbuf_printf(b, "rose_http_connections %d\n", httpd_connections(s->http));
    head(b, "rose_http_requests_open", "gauge", "Requests that have no whole answer yet.");
    strbuf_printf(b, "rose_http_requests_open %d\n", httpd_requests(s->http));
    head(b, "rose_http_clients_gone_total", "counter", "Clients that left before their answer was whole.");
    strbuf_printf(b, "rose_http_clients_gone_total %llu\n", (unsigned long long)s->clients_gone);
    head(b, "rose_http_sent_bytes_total", "counter", "Bytes of bodies sent.");
    strbuf_printf(b, "rose_http_sent_bytes_total %llu\n", (unsigned long long)s->bytes_sent);
    head(b, "rose_http_answers_open", "gauge", "Engine requests that have a client.");
    strbuf_printf(b, "rose_http_answers_open %llu\n", (unsigned long long)s->models.handles_open);
}

void metrics_write(struct server *s, struct strbuf *b)
{
    head(b, "rose_build_info", "gauge", "1, with the version.");
    strbuf_printf(b, "rose_build_info{version=\"%s\"} 1\n", ROSE_VERSION);
    head(b, "rose_uptime_seconds", "gauge", "Since the server began to listen.");
    strbuf_printf(b, "rose_uptime_seconds %.3f\n", httpd_now() - s->started_s);
    for (size_t k = 0; k < ROSE_COUNT(metrics); k++) {
        head(b, metrics[k].name, metrics[k].type, metrics[k].help);
        for (int i = 0; i < s->models.count; i++) {
            struct rose_stats st;
            char label[MODEL_LABEL_MAX];
            if (!model_is_up(&s->models.models[i])) continue;
            model_stats(&s->models.models[i], &st);
            add_metric(b, &metrics[k], models_label(&s->models, &s->models.models[i], label), &st);
        }
    }
    add_http(s, b);
    int waiting = 0;
    for (int i = 0; i < s->models.count; i++) {
        struct rose_stats st;
        const struct model *m = &s->models.models[i];
        if (!model_is_up(m) || m->info.tasks & ROSE_CAN_GENERATE) continue;
        model_stats(m, &st);
        waiting += st.waiting;
    }
    te_metrics_write(&s->te, waiting, b);
}
