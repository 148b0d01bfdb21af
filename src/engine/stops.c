#include "engine/stops.h"

#include <stdlib.h>

bool stops_open(struct stops *s, const struct str *strings, size_t count, bool include)
{
    *s = (struct stops){.strings = strings, .count = count, .include = include};
    for (size_t i = 0; i < count; i++)
        if (strings[i].n > s->longest) s->longest = strings[i].n;
    s->held_room = 2 * s->longest + STOPS_MAX_TOKEN;
    s->held = count ? malloc(s->held_room) : NULL;
    return !count || s->held;
}

void stops_close(struct stops *s)
{
    free(s->held);
    *s = (struct stops){0};
}

static int find(const struct stops *s, struct str text, size_t *begin, size_t *end)
{
    int hit = -1;
    for (size_t i = 0; i < s->count; i++) {
        ptrdiff_t at = str_find(text, s->strings[i], 0);
        if (at < 0 || (hit >= 0 && (size_t)at >= *begin)) continue;
        hit = (int)i;
        *begin = (size_t)at;
        *end = (size_t)at + s->strings[i].n;
    }
    return hit;
}

/* Bytes at the end of the text that begin some stop string. */
static size_t open_tail(const struct stops *s, struct str text)
{
    size_t most = text.n < s->longest - 1 ? text.n : s->longest - 1;
    for (size_t n = most; n > 0; n--)
        for (size_t i = 0; i < s->count; i++)
            if (n < s->strings[i].n && !memcmp(text.p + text.n - n, s->strings[i].p, n)) return n;
    return 0;
}

int stops_add(struct stops *s, struct str text, struct str *show)
{
    *show = text;
    if (!s->count) return -1;
    if (s->held_bytes) memmove(s->held, s->held + s->held_at, s->held_bytes);
    s->held_at = 0;
    /* Text longer than one token's room comes in pieces; shown pieces are adjacent in `held`, so one view covers them. */
    if (s->held_bytes + text.n > s->held_room) {
        size_t room = s->held_bytes + text.n + s->longest;
        char *more = realloc(s->held, room);
        if (!more) return *show = (struct str){"", 0}, -1;
        s->held = more;
        s->held_room = room;
    }
    if (text.n) memcpy(s->held + s->held_bytes, text.p, text.n);
    struct str all = {s->held, s->held_bytes + text.n};
    size_t begin = 0, end = 0;
    int hit = find(s, all, &begin, &end);
    if (hit >= 0) {
        *show = (struct str){s->held, s->include ? end : begin};
        s->held_bytes = 0;
        return hit;
    }
    /* The shown part stays readable at the front until the next call: the tail is moved to the front only then. */
    size_t keep = open_tail(s, all);
    *show = (struct str){all.p, all.n - keep};
    s->held_at = all.n - keep;
    s->held_bytes = keep;
    return -1;
}

struct str stops_end(struct stops *s)
{
    struct str rest = {s->count ? s->held + s->held_at : "", s->held_bytes};
    s->held_bytes = 0;
    return rest;
}
