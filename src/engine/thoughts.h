/* A bound on the thoughts of a reasoning model: once so many tokens lie behind the opening tag, the closing one's tokens are forced.
 *
 *     generated:  <think> t t t t t t </think> answer ...
 *                         |--budget--|^ forced, unless the model closed them itself
 *
 * Which token is forced depends on the tokens before it alone, not on the load.
 */
#ifndef ROSE_ENGINE_THOUGHTS_H
#define ROSE_ENGINE_THOUGHTS_H

#include "base/str.h"

enum { THOUGHTS_TAG_BYTES = 64 };

/* Of a request. */
struct thoughts {
    int32_t budget;        /* 0: no bound */
    struct str open, close; /* open: empty when the prompt has it already */
    int32_t *close_ids;
    int32_t close_count;
};
/* Of a sequence; zero to begin with. */
struct thoughts_state {
    enum { THOUGHTS_BEFORE, THOUGHTS_IN, THOUGHTS_DONE } phase;
    int32_t begun;   /* generated tokens before the first thought */
    int32_t matched; /* bytes of the awaited tag */
};

/* The tag is awaited in the answer, or has been in the prompt. */
void thoughts_begin(const struct thoughts *thoughts, struct thoughts_state *state);
/* Text of token number `generated` (from 1). */
void thoughts_add(const struct thoughts *thoughts, struct thoughts_state *state, struct str text, int32_t generated);
/* The token that number `index` (from 0) must become; -1: any. */
int32_t thoughts_force(const struct thoughts *thoughts, const struct thoughts_state *state, int32_t index);
/* May token number `index` depend on tokens that are not known yet? */
static inline bool thoughts_wait(const struct thoughts *thoughts, const struct thoughts_state *state, int32_t index)
{
    return thoughts->budget && state->phase != THOUGHTS_DONE && index >= thoughts->budget;
}

#endif
