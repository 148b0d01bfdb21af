/* A call of several texts to embed, classify or score: each is an engine request of its own, the answer comes when all have theirs.
 *
 * Not all are submitted at once: what has been is bounded, so that a call of thousands neither fills the engine's queue nor keeps the loop from
 * other clients. Long texts are tokenised beside the loop, one of a call at a time. One text that fails fails the call, by its index.
 */
#ifndef ROSE_SERVER_TEXTS_H
#define ROSE_SERVER_TEXTS_H

#include "server/fields.h"
#include "server/httpd.h"
#include "server/models.h"

struct text_input {
    struct str text, pair; /* pair.p NULL: none */
    const int32_t *tokens; /* instead of text; NULL */
    size_t tokens_count;
    const int32_t *types;  /* of tokens, their segments; NULL: all 0 */
};

struct text_result {
    const float *values; /* [rows, cols] */
    const int32_t *ids;  /* rose_event.value_ids */
    int rows, cols, tokens;
};

struct texts;
struct texts_handler {
    void (*done)(struct texts *t);                            /* all results are there; free after it returns */
    void (*failed)(struct texts *t, const struct api_error *e); /* e->param names the input, e->message begins with it where one failed */
};

struct texts {
    struct event_sink sink;
    struct httpd_request *http; /* NULL once it has ended */
    struct models *models;
    struct model *model;
    struct rose_request rose;   /* what all share; texts, pairs, user and group are filled in */
    const struct text_input *inputs;
    int count;
    const char *field;          /* what the texts are called in errors: "input" */
    const struct texts_handler *handler;
    void *user;
    /* kept by texts.c */
    struct text_result *results; /* [count] */
    struct texts_request { uint64_t handle, id; } *requests; /* [count] */
    int next, open, ended, tokens;
    double began_s, queued_s;    /* when it was submitted; until the first text was computed */
    double taken_s;              /* that submitting took: texts are tokenised there */
    float *block;                /* [count, cols] when every result is one row of the same width */
    size_t open_bytes;           /* of the texts that are under way */
    size_t held;                 /* bytes of results */
    struct beside_job *beside;   /* text next - 1, on its way to the engine; NULL */
    double beside_s;             /* since when */
};

enum { TEXTS_MAX = 65536 }; /* in one call */

/* Allocates *t in the request's arena with rose_request_init done; NULL: out of memory. */
struct texts *texts_new(struct httpd_request *http, struct models *models, struct model *model, enum rose_task task, const struct text_input *inputs, int count);
/* Submit; from here on the handler answers (perhaps before this returns). Sets http->owner and on_gone. */
void texts_start(struct texts *t);

#endif
