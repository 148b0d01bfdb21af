#include "kernels/cpu/tokens.h"

#include "kernels/params/tokens.h"

void cpu_tokens(const void *params, const struct extents *extents, struct worker *w)
{
    const struct tokens_params *p = params;
    const int32_t *history = p->history, *positions = p->positions;
    const int64_t *row_history = p->row_history;
    int32_t *tokens = p->tokens;
    size_t begin, end;
    worker_range(w, (size_t)extents->n[EXTENT_ROWS], 64, &begin, &end);
    for (size_t t = begin; t < end; t++) tokens[t] = history[row_history[t] + positions[t]];
}
