#include "server/reasoning.h"

#define OPEN_TAG STR(REASONING_OPEN)
#define CLOSE_TAG STR(REASONING_CLOSE)

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* Characters are taken one at a time; `held` is always a proper prefix of the awaited tag. When the next one breaks it, the held text goes
 * out up to where a new prefix could begin: no tag has "<" inside, so that is the new character alone. */
static void take(struct reasoning *r, char c, struct str tag, enum reasoning_state next, struct strbuf *out)
{
    if (c != tag.p[r->held_bytes]) {
        strbuf_add(out, r->held, r->held_bytes);
        r->held_bytes = 0;
        if (c != tag.p[0]) {
            strbuf_addc(out, c);
            return;
        }
    }
    r->held[r->held_bytes++] = c;
    if (r->held_bytes < tag.n) return;
    r->held_bytes = 0;
    r->state = next;
}

/* Before the first visible character: white space and "<think>" are swallowed; anything else was the answer already. */
static void begin(struct reasoning *r, char c, struct strbuf *content)
{
    if (!r->held_bytes && is_space(c)) return;
    if (c == OPEN_TAG.p[r->held_bytes]) {
        r->held[r->held_bytes++] = c;
        if (r->held_bytes < OPEN_TAG.n) return;
        r->held_bytes = 0;
        r->state = REASONING_THINK;
        return;
    }
    strbuf_add(content, r->held, r->held_bytes);
    strbuf_addc(content, c);
    r->held_bytes = 0;
    r->state = REASONING_CONTENT;
}

void reasoning_add(struct reasoning *r, struct str text, struct strbuf *thoughts, struct strbuf *content)
{
    for (size_t i = 0; i < text.n; i++) {
        if (r->state == REASONING_OFF || r->state == REASONING_CONTENT) {
            strbuf_add(content, text.p + i, text.n - i);
            return;
        }
        char c = text.p[i];
        if (r->state == REASONING_BEGIN) begin(r, c, content);
        else if (r->state == REASONING_THINK) take(r, c, CLOSE_TAG, REASONING_AFTER, thoughts);
        else if (!is_space(c)) r->state = REASONING_CONTENT, strbuf_addc(content, c);
    }
}

void reasoning_end(struct reasoning *r, struct strbuf *thoughts, struct strbuf *content)
{
    strbuf_add(r->state == REASONING_THINK ? thoughts : content, r->held, r->held_bytes);
    r->held_bytes = 0;
}
