#include "engine/thoughts.h"

void thoughts_begin(const struct thoughts *t, struct thoughts_state *s)
{
    *s = (struct thoughts_state){.phase = !t->budget ? THOUGHTS_DONE : t->open.n ? THOUGHTS_BEFORE : THOUGHTS_IN};
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Tags have their first character nowhere else, so that a match that breaks begins again at most with the character that broke it. */
void thoughts_add(const struct thoughts *t, struct thoughts_state *s, struct str text, int32_t generated)
{
    for (size_t i = 0; i < text.n && s->phase != THOUGHTS_DONE; i++) {
        char c = text.p[i];
        struct str tag = s->phase == THOUGHTS_BEFORE ? t->open : t->close;
        if (s->phase == THOUGHTS_BEFORE && !s->matched && is_space(c)) continue;
        if (c != tag.p[s->matched]) {
            if (s->phase == THOUGHTS_BEFORE) { /* the answer begins without thoughts */
                s->phase = THOUGHTS_DONE;
                return;
            }
            s->matched = 0;
            if (c != tag.p[0]) continue;
        }
        if ((size_t)++s->matched < tag.n) continue;
        s->matched = 0;
        if (s->phase == THOUGHTS_IN) s->phase = THOUGHTS_DONE;
        else s->phase = THOUGHTS_IN, s->begun = generated;
    }
}

int32_t thoughts_force(const struct thoughts *t, const struct thoughts_state *s, int32_t index)
{
    if (s->phase != THOUGHTS_IN || index - s->begun < t->budget) return -1;
    int32_t k = index - s->begun - t->budget;
    return k < t->close_count ? t->close_ids[k] : -1;
}
