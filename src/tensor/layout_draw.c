/* Layouts on the terminal. */
#include "tensor/layout.h"

enum { MAX_CELLS = 64, MAX_TABLES = 16 };

static void line(struct strbuf *out, const char *name, const struct layout *a)
{
    strbuf_printf(out, "%-14s ", name);
    layout_print(a, out);
    strbuf_addc(out, '\n');
}

void layout_draw_facts(const struct layout *a, struct strbuf *out)
{
    struct layout t;
    struct rose_error err;
    line(out, "layout", a);
    strbuf_printf(out, "%-14s %lld\n%-14s %lld\n", "size", (long long)layout_size(a), "cosize",
                  (long long)layout_cosize(a));
    layout_coalesce(a, &t);
    line(out, "coalesced", &t);
    if (layout_complement(a, layout_cosize(a), &t, &err) == ROSE_OK)
        line(out, "complement", &t);
    else
        strbuf_printf(out, "%-14s none: %s\n", "complement", err.message);
    layout_right_inverse(a, &t);
    line(out, "right inverse", &t);
    if (layout_left_inverse(a, &t, &err) == ROSE_OK)
        line(out, "left inverse", &t);
    else
        strbuf_printf(out, "%-14s none: %s\n", "left inverse", err.message);
    strbuf_printf(out, "%-14s %lld\n", "contiguous", (long long)layout_contiguous(a));
}

/* After how many elements a mode wraps in its first nested leaf; 0: it does not nest. */
static int64_t wrap_of(const struct layout *mode)
{
    int64_t s[LAYOUT_MAX_NODES], d[LAYOUT_MAX_NODES];
    return layout_leaves(mode, s, d) > 1 ? s[0] : 0;
}

static int digits(int64_t v)
{
    int n = 1;
    while (v >= 10) v /= 10, n++;
    return n;
}

struct table {
    const struct layout *layout;
    struct layout_draw options;
    int64_t rows, columns;          /* drawn */
    int64_t row_wrap, column_wrap;  /* 0: none */
    int width;                      /* of a number */
    int64_t rest[LAYOUT_MAX_NODES]; /* coordinates of modes 2… */
    int rank;
};

static int64_t offset_at(const struct table *t, int64_t row, int64_t column)
{
    int64_t at[LAYOUT_MAX_NODES] = {row, column};
    for (int i = 2; i < t->rank; i++) at[i] = t->rest[i];
    return layout_swizzle_apply(t->options.swizzle, layout_index_at(t->layout, at, t->rank));
}

static void rule(const struct table *t, struct strbuf *out)
{
    strbuf_printf(out, "%*s +", digits(t->rows - 1), "");
    for (int64_t c = 0; c < t->columns; c++) {
        for (int k = 0; k < t->width + 1; k++) strbuf_addc(out, '-');
        bool wrap = t->column_wrap && (c + 1) % t->column_wrap == 0 && c + 1 < t->columns;
        if (wrap) strbuf_adds(out, "-+");
    }
    strbuf_adds(out, "-+\n");
}

static void one_table(const struct table *t, struct strbuf *out)
{
    static const int palette[8] = {31, 32, 33, 34, 35, 36, 91, 94};
    int margin = digits(t->rows - 1), vector = t->options.vector > 0 ? t->options.vector : 8;
    strbuf_printf(out, "%*s  ", margin, "");
    for (int64_t c = 0; c < t->columns; c++) {
        strbuf_printf(out, " %*lld", t->width, (long long)c);
        if (t->column_wrap && (c + 1) % t->column_wrap == 0 && c + 1 < t->columns) strbuf_adds(out, "  ");
    }
    strbuf_addc(out, '\n');
    rule(t, out);
    for (int64_t r = 0; r < t->rows; r++) {
        strbuf_printf(out, "%*lld |", margin, (long long)r);
        for (int64_t c = 0; c < t->columns; c++) {
            int64_t v = offset_at(t, r, c);
            if (t->options.color)
                strbuf_printf(out, " \x1b[%dm%*lld\x1b[0m", palette[(uint64_t)(v / vector) % 8], t->width,
                              (long long)v);
            else
                strbuf_printf(out, " %*lld", t->width, (long long)v);
            if (t->column_wrap && (c + 1) % t->column_wrap == 0 && c + 1 < t->columns) strbuf_adds(out, " |");
        }
        strbuf_adds(out, " |\n");
        if (t->row_wrap && (r + 1) % t->row_wrap == 0 && r + 1 < t->rows) rule(t, out);
    }
    rule(t, out);
}

void layout_draw_table(const struct layout *a, const struct layout_draw *options, struct strbuf *out)
{
    int64_t size[LAYOUT_MAX_NODES] = {0}, tables = 1, widest = 0;
    struct table t = {.layout = a, .rank = layout_rank(a)};
    if (options) t.options = *options;
    for (int i = 0; i < t.rank; i++) {
        struct layout m = layout_mode(a, i);
        size[i] = layout_size(&m);
        if (i == 0)
            t.row_wrap = wrap_of(&m);
        else if (i == 1)
            t.column_wrap = wrap_of(&m);
        else if (__builtin_mul_overflow(tables, size[i], &tables))
            tables = INT64_MAX;
    }
    if (t.rank == 1) {
        /* A vector reads along a line: show it as the one row of a table. */
        t.rank = 2;
        struct layout row[2] = {{.n = 1, .node[0] = {1, 0, 0, 1}},
                                t.layout->node[0].children ? layout_mode(a, 0) : *a},
                      both;
        if (layout_tuple(row, 2, &both, NULL) != ROSE_OK) return;
        layout_draw_table(&both, options, out);
        return;
    }
    t.rows = ROSE_MIN(size[0], MAX_CELLS), t.columns = ROSE_MIN(size[1], MAX_CELLS);
    int64_t drawn = ROSE_MIN(tables, MAX_TABLES);
    for (int64_t k = 0; k < drawn; k++) {
        int64_t rest = k;
        for (int i = 2; i < t.rank; i++) t.rest[i] = rest % size[i], rest /= size[i];
        for (int64_t r = 0; r < t.rows; r++)
            for (int64_t c = 0; c < t.columns; c++) widest = ROSE_MAX(widest, offset_at(&t, r, c));
    }
    t.width = ROSE_MAX(digits(widest), digits(t.columns - 1));
    for (int64_t k = 0; k < drawn; k++) {
        int64_t rest = k;
        for (int i = 2; i < t.rank; i++) t.rest[i] = rest % size[i], rest /= size[i];
        if (t.rank > 2) {
            strbuf_adds(out, k ? "\n(:,:" : "(:,:");
            for (int i = 2; i < t.rank; i++) strbuf_printf(out, ",%lld", (long long)t.rest[i]);
            strbuf_adds(out, ")\n");
        }
        one_table(&t, out);
    }
    if (t.rows < size[0] || t.columns < size[1] || drawn < tables)
        strbuf_printf(out, "drawn: %lld x %lld of %lld x %lld cells, %lld of %lld tables\n",
                      (long long)t.rows, (long long)t.columns, (long long)size[0], (long long)size[1],
                      (long long)drawn, (long long)tables);
}

enum rose_status layout_draw_command(struct str text, bool draw, bool color, struct strbuf *out,
                                     struct rose_error *err)
{
    struct layout_draw options = {.color = color};
    struct layout a;
    while (text.n && text.p[0] == ' ') text.p++, text.n--;
    if (text.n && text.p[0] == '<') {
        ptrdiff_t end = str_find(text, STR(">"), 0);
        struct str swizzle = {text.p, end < 0 ? text.n : (size_t)end + 1};
        ROSE_TRY(layout_swizzle_parse(swizzle, &options.swizzle, err));
        text.p += swizzle.n, text.n -= swizzle.n;
    }
    ROSE_TRY(layout_parse(text, &a, err));
    if (options.swizzle.bits)
        strbuf_printf(out, "%-14s <%d,%d,%d>\n", "swizzle", options.swizzle.bits, options.swizzle.base,
                      options.swizzle.shift);
    layout_draw_facts(&a, out);
    if (draw) {
        strbuf_addc(out, '\n');
        layout_draw_table(&a, &options, out);
    }
    return out->failed ? status_set(err, ROSE_NO_MEMORY, "no memory to draw the layout") : ROSE_OK;
}
