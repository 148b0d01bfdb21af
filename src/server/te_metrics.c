#include "server/te_metrics.h"

#include <math.h>
#include <string.h>

#include "server/fields.h"

enum { DURATIONS = 35, LENGTHS = 20 };

/* TEI's: 10 us times powers of 1.5, and powers of two. */
static double bound(bool length, int i) { return length ? ldexp(1, i) : 1e-5 * pow(1.5, i + 1); }

static void observe(struct te_histogram *h, bool length, double x)
{
    int i = 0;
    while (i < (length ? LENGTHS : DURATIONS) && x > bound(length, i)) i++;
    h->count[i]++;
    h->total++;
    h->sum += x;
}

void te_metrics_times(struct te_metrics *m, double total, double tokenizing, double queued, double inference)
{
    observe(&m->duration, false, total);
    observe(&m->tokenizing, false, tokenizing);
    observe(&m->queued, false, queued);
    observe(&m->inference, false, inference);
}

void te_metrics_tokens(struct te_metrics *m, int tokens) { observe(&m->tokens, true, tokens); }

void te_metrics_failed(struct te_metrics *m, const struct api_error *e)
{
    const char *code = e->code ? e->code : "";
    enum te_error kind = TE_VALIDATION;
    if (e->status == 429) kind = TE_OVERLOADED;
    else if (!strcmp(code, "unsupported_model")) kind = TE_MODEL_TYPE;
    else if (!strcmp(code, "context_length_exceeded")) kind = TE_TOKENIZATION; /* where TEI finds texts that are too long */
    else if (!strcmp(code, "too_large")) kind = TE_BATCH_SIZE;
    else if (e->status >= 500) kind = TE_INFERENCE;
    m->failure[kind]++;
}

static void counter(struct strbuf *b, const char *name, const char *help, const char *label, const char *const *values, const uint64_t *counts, int n)
{
    strbuf_printf(b, "# HELP %s %s\n# TYPE %s counter\n", name, help, name);
    for (int i = 0; i < n; i++) {
        if (label && counts[i]) strbuf_printf(b, "%s{%s=\"%s\"} %llu\n", name, label, values[i], (unsigned long long)counts[i]);
        if (!label) strbuf_printf(b, "%s %llu\n", name, (unsigned long long)counts[i]);
    }
}

static void histogram(struct strbuf *b, const char *name, const char *help, bool length, const struct te_histogram *h)
{
    uint64_t below = 0;
    strbuf_printf(b, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (int i = 0; i < (length ? LENGTHS : DURATIONS); i++) {
        below += h->count[i];
        strbuf_printf(b, "%s_bucket{le=\"%.9g\"} %llu\n", name, bound(length, i), (unsigned long long)below);
    }
    strbuf_printf(b, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.9g\n%s_count %llu\n", name, (unsigned long long)h->total, name, h->sum, name, (unsigned long long)h->total);
}

void te_metrics_write(const struct te_metrics *m, int waiting, struct strbuf *b)
{
    static const char *const methods[] = {"single", "batch"};
    static const char *const errors[TE_ERRORS] = {"validation", "tokenization", "batch_size", "model_type", "overloaded", "inference"};
    uint64_t any = m->requests[0] + m->requests[1];
    for (int i = 0; i < TE_ERRORS; i++) any += m->failure[i];
    if (!any) return;
    counter(b, "te_request_count", "As text-embeddings-inference: requests to its routes.", "method", methods, m->requests, 2);
    counter(b, "te_request_success", "Those that were answered.", "method", methods, m->success, 2);
    counter(b, "te_request_failure", "Those that were not, and why.", "err", errors, m->failure, TE_ERRORS);
    counter(b, "te_embed_count", "Texts to embed.", NULL, NULL, &m->embeds, 1);
    counter(b, "te_embed_success", "Texts embedded.", NULL, NULL, &m->embedded, 1);
    counter(b, "te_predict_count", "Texts or pairs to classify or score.", NULL, NULL, &m->predicts, 1);
    counter(b, "te_predict_success", "Texts or pairs classified or scored.", NULL, NULL, &m->predicted, 1);
    histogram(b, "te_request_duration", "Seconds of a request.", false, &m->duration);
    histogram(b, "te_request_tokenization_duration", "Of these, tokenising.", false, &m->tokenizing);
    histogram(b, "te_request_queue_duration", "Of these, waiting.", false, &m->queued);
    histogram(b, "te_request_inference_duration", "Of these, computing.", false, &m->inference);
    histogram(b, "te_request_input_length", "Tokens of a text.", true, &m->tokens);
    strbuf_printf(b, "# HELP te_queue_size Texts that wait.\n# TYPE te_queue_size gauge\nte_queue_size %d\n", waiting);
}
