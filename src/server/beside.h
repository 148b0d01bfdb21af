/* Work of a moment too long for the loop that serves everybody, on two threads beside it: tokenising long texts, the longest on one of their own. The
 * threads see the job's own memory and the engine's library, nothing else of the server. What nobody waits for any more is stopped under way.
 */
#ifndef ROSE_SERVER_BESIDE_H
#define ROSE_SERVER_BESIDE_H

#include <stdatomic.h>

#include "base/arena.h"
#include "server/models.h"

struct beside;
enum rose_status beside_open(struct beside **out, struct rose_error *err);
/* Jobs are given up, those under way too. None may have an owner any more. */
void beside_close(struct beside *b);
/* The model is being unloaded: its jobs end with ROSE_CANCELLED, soon. */
void beside_leave(struct beside *b, const struct model *model);
/* Readable when beside_run has something to do. */
int beside_fd(const struct beside *b);
/* For the loop: hand out what has been done. */
void beside_run(struct beside *b);

/* From so many bytes of text on a request is worth the way to the thread and back: about 3 ms of tokenising, of one endless word 5. */
enum { BESIDE_BYTES = 16 << 10 };

/* One call of rose_submit or rose_tokenize under way there. */
struct beside_job;
/* What came of it, on the loop. */
struct beside_result {
    enum rose_status status;
    const struct rose_error *err;
    uint64_t id;              /* of the engine's request */
    const int32_t *tokens;    /* [count], until the call returns; NULL when nothing but their number was asked for */
    size_t count;
};
typedef void beside_done(void *user, int part, const struct beside_result *result);

/* rose_submit there, with copies of all that it reads. The request's handle (r->user) becomes the job's until `done` is called: events that come before
 * go to its sink as ever. NULL: out of memory, or there is no thread. */
struct beside_job *beside_submit(struct models *m, struct model *model, const struct rose_request *r, beside_done *done, void *user, int part);
/* rose_tokenize, or with chat rose_tokenize_chat; ids: the tokens and not only their number. */
struct beside_job *beside_tokenize(struct models *m, struct model *model, struct str text, bool chat, int flags, bool ids, beside_done *done, void *user);
/* Any other work on that engine, of about so many bytes of text; it may ask stop_asked() of base/stop.h. `state` is the thread's until `done`, and
 * is released after that, or instead. NULL: nothing was begun, and the state is still the caller's. */
typedef enum rose_status beside_work(void *state, const struct rose_engine *engine, struct rose_error *err);
struct beside_job *beside_do(struct models *m, struct model *model, size_t bytes, beside_work *work, void *state, void (*release)(void *state), beside_done *done, void *user);
/* Nobody waits for it any more: `done` is not called, and a request that comes of it is cancelled. */
void beside_drop(struct beside_job *job);

#endif
