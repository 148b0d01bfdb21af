/* rose inspect: what is in a checkpoint, and what it will need in memory. Prints what rose_inspect says. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/commands.h"

static struct {
    int64_t context, sequences;
    const char *kv;
    bool json, tensors, chat_template;
} o;

static const struct option options[] = {
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "one JSON object, everything in it", &o.json},
    {"tensors", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "list every tensor", &o.tensors},
    {"template", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "print the chat template", &o.chat_template},
    {.type = OPTION_GROUP, .help = "Memory plan for:"},
    {"ctx", 'c', OPTION_INT, NULL, "N", NULL, "0", 0, 1 << 30, "context in tokens; 0: the model's, or what fits", &o.context},
    {"batch", 'b', OPTION_INT, NULL, "B", NULL, "1", 1, 4096, "sequences at once", &o.sequences},
    {"kv", 0, OPTION_CHOICE, NULL, NULL, "f16|f32|bf16|q8_0", "f16", 0, 0, "type of the key-value cache", &o.kv},
};

size_t cli_inspect_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

static void add_bytes(struct strbuf *b, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t u = 0;
    while (bytes >= 1000 && u + 1 < ROSE_COUNT(units)) bytes /= 1000, u++;
    strbuf_printf(b, u ? "%.2f %s" : "%.0f %s", bytes, units[u]);
}

static void add_count(struct strbuf *b, double n)
{
    static const char *const units[] = {"", "k", "M", "B", "T"};
    size_t u = 0;
    while (n >= 1000 && u + 1 < ROSE_COUNT(units)) n /= 1000, u++;
    strbuf_printf(b, u ? "%.2f%s" : "%.0f%s", n, units[u]);
}

static long long number(const struct json *j, const char *key) { return json_int(json_get(j, key), 0); }

static void print_types(const struct json *j, struct strbuf *b)
{
    const struct json *types = json_get(j, "types");
    for (uint32_t i = 0; types && i < types->count; i++) {
        const struct json *t = json_at(types, i);
        struct str name = json_str(json_get(t, "type"), "");
        strbuf_printf(b, "  %-8.*s %6lld tensors  ", STR_ARG(name), number(t, "tensors"));
        size_t at = b->n;
        add_count(b, (double)number(t, "parameters"));
        strbuf_printf(b, "%*s parameters  ", (int)(at + 8 > b->n ? at + 8 - b->n : 0), "");
        add_bytes(b, (double)number(t, "bytes"));
        strbuf_addc(b, '\n');
    }
}

static void print_tensors(const struct json *j, struct strbuf *b)
{
    const struct json *tensors = json_get(j, "tensors");
    for (uint32_t i = 0; tensors && i < tensors->count; i++) {
        const struct json *t = json_at(tensors, i), *shape = json_get(t, "shape");
        struct str type = json_str(json_get(t, "type"), "");
        strbuf_printf(b, "  %-8.*s ", STR_ARG(type));
        size_t at = b->n;
        strbuf_addc(b, '[');
        for (uint32_t d = 0; shape && d < shape->count; d++) strbuf_printf(b, "%s%lld", d ? ", " : "", (long long)json_int(json_at(shape, d), 0));
        strbuf_printf(b, "]%*s ", (int)(at + 20 > b->n ? at + 20 - b->n : 0), "");
        strbuf_add_printable(b, json_str(json_get(t, "name"), ""));
        strbuf_addc(b, '\n');
    }
}

static void print_config(const struct json *c, struct strbuf *b)
{
    if (!json_is(c, JSON_OBJECT)) return;
    strbuf_printf(b, "layers %lld, hidden %lld, feed-forward %lld, heads %lld of %lld (%lld for keys and values), vocabulary %lld, context %lld\n", number(c, "layers"),
                  number(c, "hidden"), number(c, "intermediate"), number(c, "heads"), number(c, "head_dim"), number(c, "kv_heads"), number(c, "vocabulary"),
                  number(c, "context"));
    if (number(c, "experts")) strbuf_printf(b, "experts %lld, %lld used, in %lld layers\n", number(c, "experts"), number(c, "experts_used"), number(c, "moe_layers"));
    if (number(c, "sliding_layers")) strbuf_printf(b, "%lld layers have a sliding window\n", number(c, "sliding_layers"));
}

static void print_memory(const struct json *m, struct strbuf *b)
{
    if (!json_is(m, JSON_OBJECT)) return;
    strbuf_adds(b, "memory: weights ");
    add_bytes(b, (double)number(m, "weights_bytes"));
    if (json_get(m, "kv_bytes")) {
        strbuf_adds(b, " + cache ");
        add_bytes(b, (double)number(m, "kv_bytes"));
        struct str kv = json_str(json_get(m, "kv"), "");
        strbuf_printf(b, " (%lld x %lld tokens of " STR_FMT ", ", number(m, "sequences"), number(m, "context"), STR_ARG(kv));
        add_bytes(b, (double)number(m, "kv_bytes_per_token"));
        strbuf_adds(b, " a token) = ");
        add_bytes(b, (double)number(m, "needed_bytes"));
    }
    strbuf_adds(b, "; free ");
    add_bytes(b, (double)number(m, "free_bytes"));
    bool fits = json_bool(json_get(m, "fits"), false);
    strbuf_adds(b, fits ? ": it fits\n" : ": it does not fit");
    if (!fits && number(m, "fits_sequences")) strbuf_printf(b, "; %lld such sequence%s at once", number(m, "fits_sequences"), number(m, "fits_sequences") == 1 ? " does" : "s do");
    if (!fits) strbuf_addc(b, '\n');
}

static void print_summary(const struct json *j, struct strbuf *b)
{
    const struct json *problems = json_get(j, "problems"), *tokenizer = json_get(j, "tokenizer");
    struct str name = json_str(json_get(j, "name"), ""), architecture = json_str(json_get(j, "architecture"), "unknown"), format = json_str(json_get(j, "format"), "");
    if (!name.n) name = json_str(json_get(j, "path"), "");
    strbuf_add_printable(b, name);
    strbuf_adds(b, ": ");
    strbuf_add_printable(b, architecture);
    strbuf_printf(b, ", " STR_FMT ", %lld file%s, ", STR_ARG(format), number(j, "files"), number(j, "files") == 1 ? "" : "s");
    add_count(b, (double)number(j, "parameters"));
    strbuf_adds(b, " parameters, ");
    add_bytes(b, (double)number(j, "bytes"));
    strbuf_addc(b, '\n');
    print_config(json_get(j, "config"), b);
    print_types(j, b);
    if (o.tensors) print_tensors(j, b);
    struct str kind = json_str(json_get(tokenizer, "kind"), "none"), text = json_str(json_get(j, "chat_template"), "");
    strbuf_printf(b, "tokenizer: " STR_FMT, STR_ARG(kind));
    if (json_is(tokenizer, JSON_OBJECT)) strbuf_printf(b, ", %lld tokens", number(tokenizer, "vocabulary"));
    strbuf_printf(b, "; chat template: %s\n", text.n ? "yes" : "none");
    print_memory(json_get(j, "memory"), b);
    for (uint32_t i = 0; problems && i < problems->count; i++) {
        strbuf_adds(b, "problem: ");
        strbuf_add_printable(b, json_str(json_at(problems, i), ""));
        strbuf_addc(b, '\n');
    }
}

int cli_inspect(const struct cli_command *self, int argc, char **argv)
{
    const char *words[1];
    int count, status;
    struct rose_error err = {0};
    struct strbuf out = {0};
    struct arena arena;
    const struct json *j;
    char *text = NULL;
    if (!cli_parse(self, argc, argv, words, 1, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    enum rose_status s = rose_inspect(words[0], (int)o.context, (int)o.sequences, o.kv, &text, &err);
    if (s != ROSE_OK) return cli_error(s, &err);
    if (o.json) {
        puts(text);
        rose_free(text);
        return CLI_OK;
    }
    arena_init(&arena, 0);
    s = json_parse(&arena, NULL, str_of(text), &j, &err);
    if (s == ROSE_OK && o.chat_template) {
        struct str t = json_str(json_get(j, "chat_template"), "");
        strbuf_add(&out, t.p, t.n);
    } else if (s == ROSE_OK) {
        print_summary(j, &out);
    }
    fwrite(out.p ? out.p : "", 1, out.n, stdout);
    strbuf_free(&out);
    arena_free(&arena);
    rose_free(text);
    return s == ROSE_OK ? CLI_OK : cli_error(s, &err);
}
