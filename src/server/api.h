/* A generation request of any surface, read from its JSON and ready to be submitted. */
#ifndef ROSE_SERVER_API_H
#define ROSE_SERVER_API_H

#include "server/fields.h"

enum api_kind { API_CHAT, API_COMPLETION, API_MESSAGES };
enum { API_MAX_CHOICES = 128 };

struct api_prompt {
    enum rose_request_kind kind;
    struct str text; /* TEXT, CHAT (the JSON for the template) */
    const int32_t *tokens;
    size_t count;
};

/* All memory is the request's arena or the body's text. */
struct api_request {
    enum api_kind kind;
    struct rose_request rose; /* what all prompts share */
    struct str model;
    bool stream, include_usage, echo, wants_logprobs, wants_prompt_logprobs;
    int n, top_logprobs;
    struct api_prompt *prompts;
    int prompts_count;
    /* Read by the tables, used by the parsers. */
    const struct json *messages, *prompt, *system, *kwargs, *documents, *stream_options;
    struct str reasoning_effort, cache_salt, user;
    int max_completion_tokens, add_generation_prompt; /* -1: not given */
    int thinking_budget;                              /* Anthropic; 0: none */
    bool continue_final_message, add_special_tokens, skip_special_tokens;
};

bool openai_chat_read(const struct json *body, struct arena *arena, struct api_request *out, struct api_error *e);
bool openai_completion_read(const struct json *body, struct arena *arena, struct api_request *out, struct api_error *e);
/* count_only: /v1/messages/count_tokens, which wants no max_tokens. */
bool anthropic_read(const struct json *body, bool count_only, struct arena *arena, struct api_request *out, struct api_error *e);

/* Every message's role is one that all templates know of, or one that this template names (NULL: none). */
bool openai_roles(const struct json *messages, const char *chat_template, struct api_error *e);
/* The chat object of rose_render from OpenAI messages; in the arena. */
bool openai_chat_object(const struct api_request *r, struct arena *arena, struct str *out, struct api_error *e);

/* /tokenize and /detokenize */
struct api_tokens {
    struct str model, text;
    const struct json *messages, *tokens, *kwargs;
    bool has_text, add_special_tokens, return_token_strs;
    int add_generation_prompt;
    bool continue_final_message;
    int32_t *ids;
    size_t ids_count;
};
bool openai_tokenize_read(const struct json *body, struct arena *arena, struct api_tokens *out, struct api_error *e);
bool openai_detokenize_read(const struct json *body, struct arena *arena, struct api_tokens *out, struct api_error *e);

/* Helpers of the readers. */
bool api_stops(const struct json *v, const char *field, struct arena *arena, struct rose_request *out, struct api_error *e);
bool api_token_list(const struct json *v, const char *field, struct arena *arena, int32_t **ids, size_t *count, struct api_error *e);

#endif
