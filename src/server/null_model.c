#define _GNU_SOURCE
#include "server/null_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"

struct null_request {
    uint64_t id, user;
    int choices, tokens, done, prompt; /* done: tokens of every choice so far */
    int next;                          /* choice whose turn it is */
    bool cancelled, prompt_told;
};

struct null_model {
    struct rose_engine *engine;
    struct null_request *requests;
    size_t count, cap, turn;
    uint64_t next_id;
    int fd;
    struct rose_stats stats;
};

struct null_model *null_model_open(struct rose_engine *engine)
{
    struct null_model *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    n->engine = engine;
    n->next_id = 1;
    n->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->fd >= 0) return n;
    free(n);
    return NULL;
}

void null_model_close(struct null_model *n)
{
    if (!n) return;
    close(n->fd);
    free(n->requests);
    free(n);
}

static enum rose_status prompt_tokens(struct null_model *n, const struct rose_request *r, size_t *count, struct rose_error *err)
{
    if (r->kind == ROSE_REQUEST_TOKENS) return *count = r->tokens_count, ROSE_OK;
    if (r->kind == ROSE_REQUEST_TEXT) return rose_tokenize(n->engine, r->prompt, r->prompt_bytes, r->tokenize_flags, NULL, 0, count, err);
    return rose_tokenize_chat(n->engine, r->prompt, r->prompt_bytes, NULL, 0, count, err);
}

enum rose_status null_model_submit(struct null_model *n, const struct rose_request *r, uint64_t *id, struct rose_error *err)
{
    size_t prompt;
    ROSE_TRY(prompt_tokens(n, r, &prompt, err));
    if (n->count == n->cap) {
        size_t cap = n->cap ? n->cap * 2 : 64;
        struct null_request *more = realloc(n->requests, cap * sizeof *more);
        if (!more) return status_set(err, ROSE_NO_MEMORY, "out of memory");
        n->requests = more;
        n->cap = cap;
    }
    *id = n->next_id++;
    n->requests[n->count++] = (struct null_request){.id = *id, .user = r->user, .choices = r->choices ? r->choices : 1, .tokens = r->max_tokens < 0 ? 1024 : r->max_tokens,
                                                    .prompt = (int)prompt};
    n->stats.requests++;
    n->stats.tokens_in += prompt;
    uint64_t one = 1;
    if (n->count == 1 && write(n->fd, &one, sizeof one) < 0) n->turn = 0; /* a full counter is readable too */
    return ROSE_OK;
}

void null_model_cancel(struct null_model *n, uint64_t id)
{
    for (size_t i = 0; i < n->count; i++)
        if (n->requests[i].id == id) n->requests[i].cancelled = true;
}

/* One event of a request; false when it has ended, with its final event. */
static bool advance(struct null_model *n, struct null_request *r, struct rose_event *e)
{
    *e = (struct rose_event){.id = r->id, .user = r->user, .token = -1, .stop_index = -1, .stop_token = -1, .prompt_tokens_count = r->prompt};
    if (!r->prompt_told && !r->cancelled) {
        r->prompt_told = true;
        e->kind = ROSE_EVENT_PROMPT;
        return true;
    }
    bool all = r->done >= r->tokens || r->cancelled;
    if (!all) {
        e->kind = ROSE_EVENT_TOKEN;
        e->choice = r->next;
        e->token = 0;
        e->text = " rose";
        e->text_bytes = 5;
        n->stats.tokens_out++;
        if (++r->next == r->choices) r->next = 0, r->done++;
        return true;
    }
    e->finish = r->cancelled ? ROSE_FINISH_CANCELLED : ROSE_FINISH_LENGTH;
    if (r->choices > 1 && r->next < r->choices) {
        e->kind = ROSE_EVENT_CHOICE;
        e->choice = r->next++;
        e->completion_tokens = r->done;
        return true;
    }
    e->kind = ROSE_EVENT_FINAL;
    e->completion_tokens = r->done * r->choices;
    n->stats.finished++;
    return false;
}

size_t null_model_events(struct null_model *n, struct rose_event *events, size_t room, bool (*full)(void *, uint64_t), void *user)
{
    size_t made = 0;
    for (size_t looked = 0; n->count && looked < n->count && made < room; looked++) {
        size_t i = n->turn++ % n->count;
        if (!n->requests[i].cancelled && full(user, n->requests[i].user)) continue;
        if (!advance(n, &n->requests[i], &events[made++])) n->requests[i] = n->requests[--n->count];
    }
    n->stats.steps++;
    uint64_t drained;
    if (!n->count && read(n->fd, &drained, sizeof drained) < 0) n->turn = 0;
    return made;
}

int null_model_fd(const struct null_model *n) { return n->fd; }

void null_model_stats(const struct null_model *n, struct rose_stats *out)
{
    *out = n->stats;
    out->running = (int)n->count;
}
