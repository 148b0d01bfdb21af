/* One answer in the making: a client's request, the engine requests it became, and what has come of them so far. */
#ifndef ROSE_SERVER_GENERATION_H
#define ROSE_SERVER_GENERATION_H

#include "server/api.h"
#include "server/httpd.h"
#include "server/models.h"
#include "server/reasoning.h"

/* A drawn token with its log-probabilities, kept until the text it stands for goes out. */
struct token_entry {
    int32_t id;
    float logprob;
    int top_count;
    struct rose_logprob top[20];
};
struct token_entries {
    struct token_entry *p;
    size_t n, cap;
};

struct choice {
    struct reasoning split;
    struct strbuf text, thoughts; /* whole answers: all of it; streams: what the next piece carries */
    struct token_entries entries; /* likewise */
    struct strbuf prompt_logprobs;
    size_t offset;                /* characters of text before the next token's (completions' text_offset) */
    bool began, ended, has_text, has_thoughts;
    enum rose_finish finish;
    int stop_index, completion_tokens, thought_tokens;
};

struct part {
    uint64_t id;
    uint64_t handle; /* events' `user`; 0: none */
    bool ended;
    int prompt_tokens, cached_tokens, completion_tokens;
};

struct generation;
/* How a surface writes. All append to httpd_stream(g->http) or, for whole answers, to `out`. */
struct writer {
    void (*begin)(struct generation *g);                              /* streams: before anything else; NULL: nothing */
    void (*piece)(struct generation *g, int choice);                  /* streams: text, thoughts and entries of the choice */
    void (*finish_choice)(struct generation *g, int choice);          /* streams */
    void (*finish)(struct generation *g);                             /* streams */
    void (*error)(struct generation *g, const struct api_error *e);   /* streams: it has begun and fails */
    void (*ping)(struct generation *g);
    void (*whole)(struct generation *g, struct strbuf *out);
    void (*reply)(struct generation *g);                              /* instead of `whole`: answers itself; NULL: `whole` */
    void (*fail)(struct generation *g, const struct api_error *e);    /* instead of `refusal`: nothing has been sent yet; NULL: `refusal` */
    void (*refusal)(const struct api_error *e, const char *request_id, struct strbuf *out); /* the body of an error's answer */
};
extern const struct writer openai_chat_writer, openai_completion_writer, anthropic_writer;

struct generation {
    struct event_sink sink;
    struct httpd_request *http;
    struct model *model;
    struct api_request *request;
    const struct writer *writer;
    int64_t created;
    struct part *parts;     /* [parts_count], one a prompt */
    struct choice *choices; /* [choices_count], choice i of part p is p * n + i */
    int parts_count, parts_open, choices_count;
    int submitted;              /* parts that the engine has, or has refused */
    struct beside_job *beside;  /* part `submitted`, on its way to the engine; NULL */
    bool began;
    void *user;
    struct str head; /* what every chunk begins with; in the request's arena */
};

/* Read, submit, and answer when it is done (or begin to, for streams). */
void generation_start(struct models *models, struct httpd_request *http, enum api_kind kind);
/* The same for a request that has been read already; `user` is the writer's. model: where it runs, NULL: find it by name. */
void generation_submit(struct models *models, struct httpd_request *http, struct model *model, struct api_request *request, const struct writer *writer, void *user);
void generation_refuse(struct httpd_request *http, const struct writer *writer, const struct api_error *e);

/* Totals over parts. */
struct usage {
    int prompt, cached, completion, thoughts;
};
struct usage generation_usage(const struct generation *g);
/* The text of a prompt part, for echo; *free_me is set when it was made. */
bool generation_prompt_text(struct generation *g, int part, struct strbuf *out);

#endif
