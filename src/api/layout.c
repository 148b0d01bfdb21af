/* rose_layout: the layout algebra for people. */
#include "tensor/layout.h"

#include "api/internal.h"

enum rose_status rose_layout(const char *text, bool draw, bool color, char **out, struct rose_error *err)
{
    struct strbuf b = {.limit = 16 << 20};
    *out = NULL;
    enum rose_status s = layout_draw_command(str_of(text), draw, color, &b, err);
    if (s == ROSE_OK && b.failed) s = status_set(err, ROSE_LIMIT, "the drawing is too large");
    if (s == ROSE_OK && !strbuf_add(&b, "", 0)) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK) *out = b.p;
    else strbuf_free(&b);
    return s;
}
