/* Answers of the embedding, ranking, scoring and classifying routes. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/similar.h"
#include "server/floats.h"
#include "server/pooled.h"

static void add_usage(const struct texts *t, struct strbuf *b) { strbuf_printf(b, "\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}", t->tokens, t->tokens); }

static void list_head(const struct pooled_call *c, const char *prefix, struct strbuf *b)
{
    strbuf_adds(b, "{");
    if (prefix) strbuf_printf(b, "\"id\":\"%s-%s\",\"created\":%lld,", prefix, c->http->id, (long long)time(NULL));
    strbuf_adds(b, "\"object\":\"list\",\"model\":");
    json_add_str(b, str_of(c->model->name));
    strbuf_adds(b, ",\"data\":[");
}

/* --- embeddings --------------------------------------------------------------------------------------------------------------------------- */

static void add_rows(const struct text_result *r, bool one, struct strbuf *b)
{
    if (one) {
        floats_add_list(b, r->values, (size_t)r->rows * (size_t)r->cols);
        return;
    }
    strbuf_addc(b, '[');
    for (int k = 0; k < r->rows; k++) {
        if (k) strbuf_addc(b, ',');
        floats_add_list(b, r->values + (ptrdiff_t)k * r->cols, (size_t)r->cols);
    }
    strbuf_addc(b, ']');
}

static void write_embeddings(const struct pooled_call *c, const struct texts *t, const char *prefix, const char *object, const char *field, struct strbuf *b)
{
    list_head(c, prefix, b);
    for (int i = 0; i < t->count; i++) {
        const struct text_result *r = &t->results[i];
        strbuf_printf(b, "%s{\"object\":\"%s\",\"index\":%d,\"%s\":", i ? "," : "", object, i, field);
        if (c->request.base64) {
            strbuf_addc(b, '"');
            floats_add_base64(b, r->values, (size_t)r->rows * (size_t)r->cols);
            strbuf_addc(b, '"');
        } else {
            bool tokens = t->rose.pooling == ROSE_POOL_NONE || (t->rose.task == ROSE_TASK_CLASSIFY && !(c->model->info.tasks & ROSE_CAN_CLASSIFY));
            add_rows(r, r->rows == 1 && !tokens, b); /* of one token too a list of rows */
        }
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "],");
    add_usage(t, b);
    strbuf_addc(b, '}');
}

static void write_tei_embeddings(const struct texts *t, bool rows, struct strbuf *b)
{
    strbuf_addc(b, '[');
    for (int i = 0; i < t->count; i++) {
        if (i) strbuf_addc(b, ',');
        add_rows(&t->results[i], !rows, b);
    }
    strbuf_addc(b, ']');
}

static void write_sparse(const struct texts *t, struct strbuf *b)
{
    strbuf_addc(b, '[');
    for (int i = 0; i < t->count; i++) {
        const struct text_result *r = &t->results[i];
        strbuf_adds(b, i ? ",[" : "[");
        for (int k = 0; r->ids && k < r->cols; k++) {
            strbuf_printf(b, "%s{\"index\":%d,\"value\":", k ? "," : "", r->ids[k]);
            floats_add(b, r->values[k]);
            strbuf_addc(b, '}');
        }
        strbuf_addc(b, ']');
    }
    strbuf_addc(b, ']');
}

/* --- pairs ---------------------------------------------------------------------------------------------------------------------------------- */

static int pairs_count(const struct pooled_request *r) { return ROSE_MAX(r->first_count, r->second_count); }

/* The pair's score: the model's own, or that of its embeddings, which lie one after the other. */
static float score_of(const struct pooled_call *c, const struct texts *t, int i)
{
    const struct pooled_request *r = &c->request;
    if (!c->by_embedding) return t->results[i].values[0];
    const struct text_result *x = &t->results[r->first_count == 1 ? 0 : i], *y = &t->results[r->first_count + (r->second_count == 1 ? 0 : i)];
    return similar(c->model->info.similarity, x->values, y->values, ROSE_MIN(x->cols, y->cols));
}

struct ranked { float score; int index; };

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static struct ranked *rank(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    int n = pairs_count(&c->request);
    struct ranked *list = malloc((size_t)n * sizeof *list + 1);
    if (!list) {
        b->failed = true;
        return NULL;
    }
    for (int i = 0; i < n; i++) list[i] = (struct ranked){score_of(c, t, i), i};
    qsort(list, (size_t)n, sizeof *list, by_score);
    return list;
}

static void write_rerank(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    const struct pooled_request *r = &c->request;
    struct ranked *list = rank(c, t, b);
    int n = pairs_count(r);
    if (!list) return;
    if (r->top_n && r->top_n < n) n = r->top_n;
    strbuf_printf(b, "{\"id\":\"rerank-%s\",\"model\":", c->http->id);
    json_add_str(b, str_of(c->model->name));
    strbuf_printf(b, ",\"usage\":{\"total_tokens\":%d,\"prompt_tokens\":%d},\"results\":[", t->tokens, t->tokens);
    for (int i = 0; i < n; i++) {
        strbuf_printf(b, "%s{\"index\":%d,\"relevance_score\":", i ? "," : "", list[i].index);
        floats_add(b, list[i].score);
        if (r->return_documents != 0) {
            strbuf_adds(b, ",\"document\":{\"text\":");
            json_add_str(b, r->second[list[i].index].text);
            strbuf_addc(b, '}');
        }
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "]}");
    free(list);
}

static void write_tei_rerank(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    struct ranked *list = rank(c, t, b);
    if (!list) return;
    strbuf_addc(b, '[');
    for (int i = 0; i < pairs_count(&c->request); i++) {
        strbuf_printf(b, "%s{\"index\":%d,\"score\":", i ? "," : "", list[i].index);
        floats_add(b, list[i].score);
        if (c->request.return_text) {
            strbuf_adds(b, ",\"text\":");
            json_add_str(b, c->request.second[list[i].index].text);
        }
        strbuf_addc(b, '}');
    }
    strbuf_addc(b, ']');
    free(list);
}

static void write_score(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    list_head(c, "score", b);
    for (int i = 0; i < pairs_count(&c->request); i++) {
        strbuf_printf(b, "%s{\"index\":%d,\"object\":\"score\",\"score\":", i ? "," : "", i);
        floats_add(b, score_of(c, t, i));
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "],");
    add_usage(t, b);
    strbuf_addc(b, '}');
}

static void write_similarity(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    strbuf_addc(b, '[');
    for (int i = 0; i < pairs_count(&c->request); i++) {
        if (i) strbuf_addc(b, ',');
        floats_add(b, score_of(c, t, i));
    }
    strbuf_addc(b, ']');
}

/* --- classes ---------------------------------------------------------------------------------------------------------------------------------- */

static const char *label(const struct pooled_call *c, int i) { return i < c->model->info.labels_count ? c->model->info.labels[i] : "score"; }

static int largest(const struct text_result *r)
{
    int best = 0;
    for (int i = 1; i < r->cols; i++)
        if (r->values[i] > r->values[best]) best = i;
    return best;
}

static void write_classes(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    list_head(c, "classify", b);
    for (int i = 0; i < t->count; i++) {
        const struct text_result *r = &t->results[i];
        strbuf_printf(b, "%s{\"index\":%d,\"label\":", i ? "," : "", i);
        json_add_str(b, str_of(label(c, largest(r))));
        strbuf_printf(b, ",\"num_classes\":%d,\"probs\":", r->cols);
        add_rows(r, r->rows == 1, b);
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "],");
    add_usage(t, b);
    strbuf_addc(b, '}');
}

static void write_predictions(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    if (!c->request.single) strbuf_addc(b, '[');
    for (int i = 0; i < t->count; i++) {
        const struct text_result *r = &t->results[i];
        struct ranked *list = malloc((size_t)r->cols * sizeof *list + 1);
        if (!list) {
            b->failed = true;
            return;
        }
        for (int k = 0; k < r->cols; k++) list[k] = (struct ranked){r->values[k], k};
        qsort(list, (size_t)r->cols, sizeof *list, by_score);
        if (i) strbuf_addc(b, ',');
        strbuf_addc(b, '[');
        for (int k = 0; k < r->cols; k++) {
            strbuf_adds(b, k ? ",{\"score\":" : "{\"score\":");
            floats_add(b, list[k].score);
            strbuf_adds(b, ",\"label\":");
            json_add_str(b, str_of(label(c, list[k].index)));
            strbuf_addc(b, '}');
        }
        strbuf_addc(b, ']');
        free(list);
    }
    if (!c->request.single) strbuf_addc(b, ']');
}

void pooled_write(const struct pooled_call *c, const struct texts *t, struct strbuf *b)
{
    switch (c->request.route) {
    case POOLED_EMBEDDINGS: write_embeddings(c, t, NULL, "embedding", "embedding", b); break;
    case POOLED_POOLING: write_embeddings(c, t, "pool", "pooling", "data", b); break;
    case POOLED_RERANK: write_rerank(c, t, b); break;
    case POOLED_SCORE: write_score(c, t, b); break;
    case POOLED_CLASSIFY: write_classes(c, t, b); break;
    case POOLED_TEI_EMBED: write_tei_embeddings(t, false, b); break;
    case POOLED_TEI_EMBED_ALL: write_tei_embeddings(t, true, b); break;
    case POOLED_TEI_EMBED_SPARSE: write_sparse(t, b); break;
    case POOLED_TEI_RERANK: write_tei_rerank(c, t, b); break;
    case POOLED_TEI_PREDICT: write_predictions(c, t, b); break;
    default: write_similarity(c, t, b); break;
    }
}

/* TEI's statuses: 413 what is too large or long, 422 what is wrong, 424 what failed. */
static void tei_error(const struct api_error *e, int *status, const char **type)
{
    *status = e->status;
    *type = "Validation";
    if (e->status == 429) *type = "Overloaded";
    else if (e->status == 400 && e->code && !strcmp(e->code, "context_length_exceeded")) *status = 413;
    else if (e->status == 400 && !(e->code && !strcmp(e->code, "invalid_json"))) *status = 422;
    else if (e->status == 500) *status = 424, *type = "Backend";
    else if (e->status == 503) *type = "Unhealthy";
}

void pooled_refuse(struct httpd_request *http, bool tei, const struct api_error *e)
{
    struct strbuf b = {0};
    int status;
    const char *type;
    if (!tei) {
        generation_refuse(http, &openai_chat_writer, e);
        return;
    }
    tei_error(e, &status, &type);
    strbuf_adds(&b, "{\"error\":");
    json_add_str(&b, str_of(e->message));
    strbuf_printf(&b, ",\"error_type\":\"%s\"}", type);
    if (status == 429 || status == 503) httpd_add_header(http, "Retry-After", "1");
    httpd_reply(http, status, "application/json", strbuf_str(&b));
    strbuf_free(&b);
}
