/* rose tokenize: text to ids and back. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "cli/commands.h"

static struct {
    bool json, no_special, parse_special, decode, pieces;
} o;

static const struct option options[] = {
    {"json", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "{\"ids\":[...]}, with --decode {\"text\":\"...\"}", &o.json},
    {"no-special", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "add no BOS, EOS or the like; with --decode: leave special tokens out", &o.no_special},
    {"parse-special", 0, OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "control tokens spelt out in the text become those tokens", &o.parse_special},
    {"decode", 'd', OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "the input is ids, the output text", &o.decode},
    {"pieces", 'p', OPTION_FLAG, NULL, NULL, NULL, NULL, 0, 0, "a line a token: id and what it stands for", &o.pieces},
    CLI_TEXT_OPTIONS,
};

size_t cli_tokenize_options(const struct option **out)
{
    *out = options;
    return ROSE_COUNT(options);
}

/* "1 2 3", "[1, 2]" or {"ids":[1,2]}: numbers between spaces, JSON's punctuation and keys. */
static enum rose_status parse_ids(struct str text, int32_t **ids, size_t *count, struct rose_error *err)
{
    *ids = malloc((text.n / 2 + 1) * sizeof **ids);
    *count = 0;
    if (!*ids) return status_set(err, ROSE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < text.n;) {
        if (text.p[i] < '0' || text.p[i] > '9') {
            size_t quote = i;
            if (text.p[i] == '"')
                for (i++; i < text.n && text.p[i] != '"'; i++) {}
            else if (!strchr(" \t\r\n,:[]{}", text.p[i]) || !text.p[i])
                return status_set(err, ROSE_INVALID, "byte %zu: token ids are whole numbers from 0", i);
            if (i == text.n) return status_set(err, ROSE_INVALID, "byte %zu: a '\"' without its end", quote);
            i++;
            continue;
        }
        size_t begin = i;
        while (i < text.n && text.p[i] >= '0' && text.p[i] <= '9') i++;
        int64_t id;
        if (!str_to_i64((struct str){text.p + begin, i - begin}, &id) || id > INT32_MAX) return status_set(err, ROSE_INVALID, "byte %zu: that is no token id", begin);
        (*ids)[(*count)++] = (int32_t)id;
    }
    return ROSE_OK;
}

static enum rose_status decode(const struct rose_engine *e, struct str input, struct strbuf *out, struct rose_error *err)
{
    int32_t *ids;
    size_t count;
    struct strbuf text = {0};
    enum rose_status s = parse_ids(input, &ids, &count, err);
    if (s == ROSE_OK) s = cli_detokenize(e, ids, count, o.no_special ? ROSE_DETOKENIZE_SKIP_SPECIAL : 0, &text, err);
    if (s == ROSE_OK && o.json) {
        strbuf_adds(out, "{\"text\":");
        json_add_str(out, strbuf_str(&text));
        strbuf_adds(out, "}\n");
    } else if (s == ROSE_OK) {
        strbuf_add(out, text.p, text.n);
        if (cli_is_terminal(1)) strbuf_addc(out, '\n');
    }
    strbuf_free(&text);
    free(ids);
    return s;
}

static void print_ids(const struct rose_engine *e, const int32_t *ids, size_t count, struct strbuf *out)
{
    if (o.json) strbuf_adds(out, "{\"ids\":[");
    for (size_t i = 0; i < count; i++) {
        if (o.pieces && !o.json) {
            size_t n;
            const char *text = rose_token_text(e, ids[i], &n);
            strbuf_printf(out, "%7d  ", ids[i]);
            json_add_str(out, (struct str){text ? text : "", n});
            strbuf_addc(out, '\n');
        } else {
            strbuf_printf(out, "%s%d", i ? o.json ? "," : " " : "", ids[i]);
        }
    }
    if (o.json) strbuf_adds(out, "]}");
    if (!o.pieces || o.json) strbuf_addc(out, '\n');
}

static enum rose_status encode(const struct rose_engine *e, struct str input, struct strbuf *out, struct rose_error *err)
{
    int flags = (o.no_special ? ROSE_TOKENIZE_NO_SPECIAL : 0) | (o.parse_special ? ROSE_TOKENIZE_PARSE_SPECIAL : 0);
    size_t room = input.n + 16, count = 0; /* a token has at least a byte, but for a few special ones */
    int32_t *ids = malloc(room * sizeof *ids);
    enum rose_status s = ids ? rose_tokenize(e, input.p, input.n, flags, ids, room, &count, err) : status_set(err, ROSE_NO_MEMORY, "out of memory");
    if (s == ROSE_OK && count > room) {
        int32_t *more = realloc(ids, count * sizeof *ids);
        if (!more) s = status_set(err, ROSE_NO_MEMORY, "out of memory");
        else ids = more;
        if (s == ROSE_OK) s = rose_tokenize(e, input.p, input.n, flags, ids, count, &count, err);
    }
    if (s == ROSE_OK) print_ids(e, ids, count, out);
    free(ids);
    return s;
}

int cli_tokenize(const struct cli_command *self, int argc, char **argv)
{
    const char *words[2];
    int count, status;
    struct rose_error err = {0};
    struct strbuf input = {0}, out = {0};
    if (!cli_parse(self, argc, argv, words, 2, &count, &status)) return status;
    if (!count) return cli_usage(self, "no MODEL is named");
    struct str text = count > 1 ? str_of(words[1]) : STR("-");
    if (count < 2 || str_is(text, "-")) {
        enum rose_status s = cli_read("-", 1 << 30, &input, &err);
        if (s != ROSE_OK) return cli_error(s, &err);
        text = strbuf_str(&input);
    }
    struct cli_engine e;
    enum rose_status s = cli_open(words[0], true, &e, &err);
    if (s == ROSE_OK) s = o.decode ? decode(e.engine, text, &out, &err) : encode(e.engine, text, &out, &err);
    if (s == ROSE_OK) fwrite(out.p ? out.p : "", 1, out.n, stdout);
    status = s == ROSE_OK ? CLI_OK : cli_error(s, &err);
    cli_close(&e);
    strbuf_free(&input);
    strbuf_free(&out);
    return status;
}
