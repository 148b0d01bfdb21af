/* Stop strings: hold back text that may become one, cut at the first that does. */
#ifndef ROSE_ENGINE_STOPS_H
#define ROSE_ENGINE_STOPS_H

#include "base/str.h"

struct stops {
    const struct str *strings; /* none empty; owned by the request */
    size_t count, longest;
    bool include; /* the stop string itself is shown */
    char *held;   /* [held_bytes]: text not shown yet, shorter than the longest stop; room for longest + what one token adds */
    size_t held_at, held_bytes, held_room; /* the held-back text is held[held_at, held_at + held_bytes) */
};

enum { STOPS_MAX_BYTES = 4096, STOPS_MAX_TOKEN = 4096 };

bool stops_open(struct stops *s, const struct str *strings, size_t count, bool include);
void stops_close(struct stops *s);
/* Add text. *show (valid until the next call) is what may be shown now. Returns the index of the stop string that ended the text
 * (the earliest in the text, of those the first in the list), or -1. */
int stops_add(struct stops *s, struct str text, struct str *show);
/* No more text: what was held back. */
struct str stops_end(struct stops *s);

#endif
