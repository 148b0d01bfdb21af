/* rose run: one answer, streamed or as one JSON object. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/stream.h"

static struct {
    bool raw, json, special;
    const char *system;
    int64_t logprobs, prompt_logprobs;
} o;

static const struct option options[] = {
    {"raw", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "no chat template: the model continues the text", &o.raw},
    {"system", 0, OPTION_TEXT, NULL, "TEXT", NULL, NULL, 0, 0, "a system message before the prompt", &o.system},
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object instead of streaming text", &o.json},
    {"logprobs", 0, OPTION_INT, NULL, "K", NULL, "-1", -1, 20, "with --json: log-probabilities with K alternatives, at most 20; -1: none", &o.logprobs},
    {"prompt-logprobs", 0, OPTION_INT, NULL, "K", NULL, "-1", -1, 20, "with --json: the same for the prompt's tokens", &o.prompt_logprobs},
    {"special", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "show special tokens; with --raw: recognise them in the prompt", &o.special},
    CLI_SAMPLING_OPTIONS,
    CLI_COMMON_OPTIONS,
};

size_t cli_run_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

/* What the events bring together for --json. */
struct answer {
    const struct rose_engine *engine;
    struct strbuf text, ids, logprobs, prompt_logprobs;
    enum rose_finish finish;
    int prompt_tokens, completion_tokens, cached_tokens;
    double queued_s, prefill_s, decode_s;
};

static void add_token(struct strbuf *b, const struct rose_engine *e, int32_t id, float logprob)
{
    size_t n;
    const char *text = rose_token_text(e, id, &n);
    strbuf_printf(b, "{\"id\":%d,\"token\":", id);
    json_add_str(b, (struct str){text ? text : "", n});
    strbuf_adds(b, ",\"logprob\":");
    json_add_num(b, (double)logprob);
}

static void add_logprob(struct strbuf *b, const struct rose_engine *e, int32_t id, float logprob, const struct rose_logprob *top, int top_count)
{
    if (b->n) strbuf_addc(b, ',');
    add_token(b, e, id, logprob);
    strbuf_adds(b, ",\"top\":[");
    for (int i = 0; i < top_count; i++) {
        if (i) strbuf_addc(b, ',');
        add_token(b, e, top[i].id, top[i].logprob);
        strbuf_addc(b, '}');
    }
    strbuf_adds(b, "]}");
}

static bool take_event(void *user, const struct rose_event *event)
{
    struct answer *a = user;
    const struct rose_engine *e = a->engine;
    switch (event->kind) {
    case ROSE_EVENT_PROMPT:
        for (int i = 0; i < event->prompt_count; i++)
            add_logprob(&a->prompt_logprobs, e, event->prompt_tokens[i], event->prompt_logprobs[i], event->top + (ptrdiff_t)i * event->top_per_token,
                        i ? event->top_per_token : 0);
        break;
    case ROSE_EVENT_TOKEN:
        if (o.json) strbuf_add(&a->text, event->text, event->text_bytes);
        else if (!cli_put(event->text, event->text_bytes)) return false; /* nobody reads: stop computing */
        if (event->token < 0) break;
        strbuf_printf(&a->ids, "%s%d", a->ids.n ? "," : "", event->token);
        if (o.logprobs >= 0) add_logprob(&a->logprobs, e, event->token, event->logprob, event->top, event->top_count);
        break;
    case ROSE_EVENT_CHOICE: break;
    case ROSE_EVENT_FINAL:
        a->finish = event->finish;
        a->prompt_tokens = event->prompt_tokens_count;
        a->cached_tokens = event->cached_tokens;
        a->completion_tokens = event->completion_tokens;
        a->queued_s = event->queued_s;
        a->prefill_s = event->prefill_s;
        a->decode_s = event->decode_s;
        break;
    }
    return true;
}

static void print_json(const struct answer *a, const struct rose_model_info *info)
{
    struct strbuf b = {0};
    strbuf_adds(&b, "{\"text\":");
    json_add_str(&b, strbuf_str(&a->text));
    strbuf_printf(&b, ",\"token_ids\":[%s],\"finish_reason\":\"%s\"", a->ids.p ? a->ids.p : "", rose_finish_name(a->finish));
    strbuf_printf(&b, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}", a->prompt_tokens,
                  a->completion_tokens, a->prompt_tokens + a->completion_tokens, a->cached_tokens);
    double decode_rate = a->completion_tokens > 1 && a->decode_s > 0 ? (a->completion_tokens - 1) / a->decode_s : 0;
    strbuf_printf(&b, ",\"timings\":{\"load_s\":%.6f,\"prefill_s\":%.6f,\"decode_s\":%.6f,\"ttft_s\":%.6f,\"prefill_tok_s\":%.2f,\"decode_tok_s\":%.2f}", info->load_seconds,
                  a->prefill_s, a->decode_s, a->queued_s + a->prefill_s, a->prefill_s > 0 ? a->prompt_tokens / a->prefill_s : 0, decode_rate);
    if (o.logprobs >= 0) strbuf_printf(&b, ",\"logprobs\":[%s]", a->logprobs.p ? a->logprobs.p : "");
    if (o.prompt_logprobs >= 0) strbuf_printf(&b, ",\"prompt_logprobs\":[%s]", a->prompt_logprobs.p ? a->prompt_logprobs.p : "");
    strbuf_adds(&b, "}\n");
    fwrite(b.p, 1, b.n, stdout);
    strbuf_free(&b);
}

/* The request's prompt: the text itself, or a chat object around it. */
static void make_prompt(struct rose_request *r, const struct rose_model_info *info, struct str text, struct strbuf *chat)
{
    if (o.raw || !info->chat_template) {
        r->kind = ROSE_REQUEST_TEXT;
        r->tokenize_flags = o.special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0;
        r->prompt = text.p;
        r->prompt_bytes = text.n;
        return;
    }
    strbuf_adds(chat, "{\"messages\":[");
    if (o.system) {
        strbuf_adds(chat, "{\"role\":\"system\",\"content\":");
        json_add_str(chat, str_of(o.system));
        strbuf_adds(chat, "},");
    }
    strbuf_adds(chat, "{\"role\":\"user\",\"content\":");
    json_add_str(chat, text);
    strbuf_adds(chat, "}],\"add_generation_prompt\":true}");
    r->kind = ROSE_REQUEST_CHAT;
    r->prompt = chat->p;
    r->prompt_bytes = chat->n;
}

static int answer_one(struct cli_engine *e, struct str prompt)
{
    struct rose_request r;
    struct rose_logit_bias biases[OPTION_LIST_MAX];
    struct rose_error err = {0};
    struct rose_model_info info;
    struct answer a = {.engine = e->engine};
    struct strbuf chat = {0};
    bool interrupted = false;
    rose_engine_info(e->engine, &info);
    enum rose_status s = cli_request(&r, biases, &err) ? ROSE_OK : ROSE_INVALID;
    if (s == ROSE_OK) {
        r.logprobs = (int)o.logprobs;
        r.prompt_logprobs = (int)o.prompt_logprobs;
        r.keep_special = o.special;
        make_prompt(&r, &info, prompt, &chat);
        s = cli_stream(e->engine, &r, take_event, &a, &interrupted, &err);
    }
    if (s == ROSE_OK && o.json) print_json(&a, &info);
    else if (s == ROSE_OK) putchar('\n');
    strbuf_free(&a.text);
    strbuf_free(&a.ids);
    strbuf_free(&a.logprobs);
    strbuf_free(&a.prompt_logprobs);
    strbuf_free(&chat);
    if (s != ROSE_OK) return cli_error(s, &err);
    return interrupted ? CLI_SIGNAL + SIGINT : CLI_OK;
}

int cli_run(const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    struct rose_error err = {0};
    struct strbuf input = {0};
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    if ((o.logprobs >= 0 || o.prompt_logprobs >= 0) && !o.json) return cli_usage(self, "--logprobs and --prompt-logprobs go with --json");
    struct str prompt = count > 1 ? str_of(words[1]) : STR("-");
    if (str_is(prompt, "-")) {
        enum rose_status s = cli_read("-", 256 << 20, &input, &err);
        if (s != ROSE_OK) return cli_error(s, &err);
        prompt = strbuf_str(&input);
    }
    struct cli_engine e;
    enum rose_status s = cli_open(words[0], false, &e, &err);
    status = s == ROSE_OK ? answer_one(&e, prompt) : cli_error(s, &err);
    cli_close(&e);
    strbuf_free(&input);
    return status;
}
