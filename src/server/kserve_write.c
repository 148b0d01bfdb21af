/* Answers of KServe v2 over HTTP: JSON, and behind it the raw tensors. */
#include <stdio.h>

#include "server/kserve.h"

void kserve_add_error(const struct api_error *e, struct strbuf *b)
{
    strbuf_adds(b, "{\"error\":");
    json_add_str(b, str_of(e->message));
    strbuf_addc(b, '}');
}

void kserve_refuse(struct httpd_request *r, const struct api_error *e)
{
    struct strbuf b = {0};
    kserve_add_error(e, &b);
    if (e->status == 429 || e->status == 503) httpd_add_header(r, "Retry-After", "1");
    httpd_reply(r, e->status, "application/json", strbuf_str(&b));
    strbuf_free(&b);
}

static void add_output(const struct kserve_tensor *t, const struct kserve_wanted *w, bool binary, struct strbuf *b)
{
    strbuf_adds(b, "{\"name\":");
    json_add_str(b, t->name);
    strbuf_printf(b, ",\"datatype\":\"%s\",\"shape\":[", kserve_type_name(t->type));
    for (int i = 0; i < t->rank; i++) strbuf_printf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    strbuf_addc(b, ']');
    if (w && w->region.n) {
        strbuf_adds(b, ",\"parameters\":{\"shared_memory_region\":");
        json_add_str(b, w->region);
        if (w->offset) strbuf_printf(b, ",\"shared_memory_offset\":%zu", w->offset);
        strbuf_printf(b, ",\"shared_memory_byte_size\":%zu}", t->data.n);
    } else if (binary) {
        strbuf_printf(b, ",\"parameters\":{\"binary_data_size\":%zu}", t->data.n);
    } else {
        strbuf_adds(b, ",\"data\":");
        kserve_to_json(t, b);
    }
    strbuf_addc(b, '}');
}

static void answer(struct kserve_call *c, const struct kserve_answer *a)
{
    struct httpd_request *http = c->http;
    struct strbuf *b = httpd_stream(http);
    bool raw = false;
    struct api_error e;
    strbuf_adds(b, "{");
    if (c->request.id.n) {
        strbuf_adds(b, "\"id\":");
        json_add_str(b, c->request.id);
        strbuf_addc(b, ',');
    }
    strbuf_adds(b, "\"model_name\":");
    json_add_str(b, str_of(c->model->name));
    strbuf_printf(b, ",\"model_version\":\"%d\",\"outputs\":[", c->model->version);
    for (int i = 0; i < a->count; i++) {
        const struct kserve_wanted *w = a->wanted[i];
        bool binary = w ? w->binary : c->request.binary;
        raw |= binary && !(w && w->region.n);
        if (!binary && !(w && w->region.n) && a->outputs[i].type == KSERVE_BF16) {
            b->n = 0;
            api_error_field(&e, "datatype", "datatype BF16 has no form in JSON: ask for binary data");
            kserve_refuse(http, &e);
            return;
        }
        if (i) strbuf_addc(b, ',');
        add_output(&a->outputs[i], w, binary, b);
    }
    strbuf_adds(b, "]}");
    if (raw) {
        char *n = arena_printf(&http->arena, "%zu", b->n);
        httpd_add_header(http, "Inference-Header-Content-Length", n ? n : "");
        for (int i = 0; i < a->count; i++) {
            const struct kserve_wanted *w = a->wanted[i];
            if ((w ? w->binary : c->request.binary) && !(w && w->region.n)) strbuf_add(b, a->outputs[i].data.p, a->outputs[i].data.n);
        }
    }
    if (b->failed) {
        api_error_set(&e, 503, "server_error", "no_memory", NULL, "out of memory");
        b->failed = false;
        kserve_refuse(http, &e);
        return;
    }
    httpd_reply_coded(http, 200, raw ? "application/octet-stream" : "application/json");
}

static void fail(struct kserve_call *c, const struct api_error *e)
{
    httpd_stream(c->http)->n = 0;
    kserve_refuse(c->http, e);
}

const struct kserve_transport kserve_http = {answer, fail};
