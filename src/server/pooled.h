/* Embedding, ranking, scoring, classifying over HTTP, in the forms that people's code calls: OpenAI's /v1/embeddings; /embed and its kin of text-embeddings-
 * inference (TEI); /v1/rerank of Jina and Cohere; /score, /classify and /pooling of vLLM.
 *
 *     body -- pooled_read (a table a route) --> pooled_request -- texts.h --> results -- pooled_write --> body
 */
#ifndef ROSE_SERVER_POOLED_H
#define ROSE_SERVER_POOLED_H

#include "server/internal.h"
#include "server/texts.h"

enum pooled_route {
    POOLED_EMBEDDINGS, POOLED_RERANK, POOLED_SCORE, POOLED_CLASSIFY, POOLED_POOLING,
    POOLED_TEI_EMBED, POOLED_TEI_EMBED_ALL, POOLED_TEI_EMBED_SPARSE, POOLED_TEI_RERANK, POOLED_TEI_PREDICT, POOLED_TEI_SIMILARITY,
    POOLED_ROUTES,
};

struct pooled_request {
    enum pooled_route route;
    struct str model, prompt_name, instruction, task;
    /* What is embedded or classified; or pairs: first[i] with second[i], one of one side with each of the other. */
    struct text_input *first, *second;
    int first_count, second_count;
    bool single;      /* one text, not in a list; TEI's /predict answers it without a list too */
    bool base64, raw_scores, return_text, truncate, left;
    int normalize, activation, return_documents; /* -1: not said */
    int dimensions, truncate_tokens, top_n, priority; /* top_n 0: all; truncate_tokens -1: to the longest */
    /* Read by the tables, used by the reader. */
    const struct json *input, *other, *query, *parameters;
    struct str encoding_format, direction;
    char unknown[200]; /* TEI's routes: fields that were left out, as there */
};

/* The route's form of a request; all memory is the arena's or the body's. out->truncate: what counts where the request does not say. */
bool pooled_read(enum pooled_route route, const struct json *body, struct arena *arena, struct pooled_request *out, struct api_error *e);

/* A text, texts, or with `ids` token ids or lists of them; *single: not in a list. */
bool pooled_read_list(const struct json *v, const char *field, bool ids, struct arena *arena, struct text_input **out, int *count, bool *single, struct api_error *e);

/* Fields that a TEI route left out: a line, where the log has debug lines. */
void pooled_say_unknown(const struct server *s, const struct httpd_request *http, const char *unknown);

/* The request's JSON; NULL: *e says why. */
const struct json *pooled_body(struct httpd_request *http, struct api_error *e);

struct pooled_call {
    struct pooled_request request;
    struct server *s;
    struct httpd_request *http;
    struct model *model;
    bool by_embedding; /* pairs compared by the similarity of their embeddings */
};
/* The answer's body, from results. */
void pooled_write(const struct pooled_call *c, const struct texts *t, struct strbuf *b);
/* An error's answer in the route's form. */
void pooled_refuse(struct httpd_request *http, bool tei, const struct api_error *e);
static inline bool pooled_is_tei(enum pooled_route r) { return r >= POOLED_TEI_EMBED; }

void pooled_start(struct server *s, struct httpd_request *http, enum pooled_route route);
/* TEI's POST /: what the model does, embed, rank or classify. */
void pooled_root(struct server *s, struct httpd_request *http);
/* /rerank: documents make it Jina's, texts TEI's. */
void pooled_rerank_either(struct server *s, struct httpd_request *http);
/* /tokenize: inputs make it TEI's. */
void pooled_tokenize_either(struct server *s, struct httpd_request *http);
/* TEI's /decode: token ids to texts. */
void pooled_decode(struct server *s, struct httpd_request *http);
void pooled_info(struct server *s, struct httpd_request *http);

#endif
