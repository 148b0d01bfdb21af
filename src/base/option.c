#include "base/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *option_env(const char *name)
{
    static const char *const known[] = {"ROSE_CUDA_DRIVER", "ROSE_NVRTC", "HOME",        "XDG_CACHE_HOME", "HF_HOME",       "HF_HUB_CACHE", "HF_TOKEN",  "HF_ENDPOINT",     "NO_COLOR",
                                        "NOTIFY_SOCKET", "TERM",         "CUDA_HOME",     "CUDA_PATH",    "LD_LIBRARY_PATH", "COLUMNS",     "VIRTUAL_ENV", "CONDA_PREFIX", "ROSE_KERNELS",
                                        "ROSE_KERNEL_SOURCES"};
    for (size_t i = 0; i < ROSE_COUNT(known); i++)
        if (!strcmp(name, known[i])) {
            const char *value = getenv(name);
            if (value && *value != '/' && !strcmp(name, "XDG_CACHE_HOME")) return NULL; /* the XDG base directory specification: relative ones are ignored */
            return value && *value ? value : NULL;
        }
    return NULL;
}

bool option_size(struct str text, int64_t *out)
{
    int shift = 0;
    if (text.n && (text.p[text.n - 1] | 32) == 'b') text.n--;
    if (text.n) {
        switch (text.p[text.n - 1] | 32) {
        case 'k': shift = 10; break;
        case 'm': shift = 20; break;
        case 'g': shift = 30; break;
        case 't': shift = 40; break;
        default: break;
        }
        text.n -= shift != 0;
    }
    double v;
    if (!str_to_f64(text, &v) || !(v >= 0) || v * ldexp(1, shift) > 9e18) return false;
    *out = (int64_t)(v * ldexp(1, shift));
    return true;
}

static bool in_choices(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = choices; *p;) {
        const char *end = strchr(p, '|');
        size_t len = end ? (size_t)(end - p) : strlen(p);
        if (len == n && !memcmp(p, value, n)) return true;
        p += len + (end != NULL);
    }
    return false;
}

static enum rose_status out_of_range(const struct option *o, const char *from, const char *value, struct rose_error *err)
{
    return status_set(err, ROSE_INVALID, "%s: %s must lie between %.10g and %.10g", from, value, o->low, o->high);
}

static enum rose_status set(const struct option *o, const char *from, const char *value, struct rose_error *err)
{
    bool limited = o->low != 0 || o->high != 0;
    int64_t i;
    double d;
    switch (o->type) {
    case OPTION_FLAG:
        if (in_choices("1|true|yes|on", value)) *(bool *)o->target = true;
        else if (in_choices("0|false|no|off", value)) *(bool *)o->target = false;
        else return status_set(err, ROSE_INVALID, "%s: \"%s\" is neither yes nor no", from, value);
        return ROSE_OK;
    case OPTION_INT:
        if (!str_to_i64(str_of(value), &i)) return status_set(err, ROSE_INVALID, "%s: \"%s\" is not a whole number", from, value);
        if (limited && ((double)i < o->low || (double)i > o->high)) return out_of_range(o, from, value, err);
        *(int64_t *)o->target = i;
        return ROSE_OK;
    case OPTION_NUMBER:
        if (!str_to_f64(str_of(value), &d) || isnan(d)) return status_set(err, ROSE_INVALID, "%s: \"%s\" is not a number", from, value);
        if (limited && (d < o->low || d > o->high)) return out_of_range(o, from, value, err);
        *(double *)o->target = d;
        return ROSE_OK;
    case OPTION_SIZE:
        if (!option_size(str_of(value), &i)) return status_set(err, ROSE_INVALID, "%s: \"%s\" is not a size such as 512M or 2G", from, value);
        *(int64_t *)o->target = i;
        return ROSE_OK;
    case OPTION_CHOICE:
        if (!in_choices(o->choices, value)) return status_set(err, ROSE_INVALID, "%s: \"%s\" is none of %s", from, value, o->choices);
        *(const char **)o->target = value;
        return ROSE_OK;
    case OPTION_TEXT: *(const char **)o->target = value; return ROSE_OK;
    case OPTION_LIST: {
        struct option_list *list = o->target;
        if (list->count == OPTION_LIST_MAX) return status_set(err, ROSE_INVALID, "%s is given more than %d times", from, OPTION_LIST_MAX);
        list->items[list->count++] = value;
        return ROSE_OK;
    }
    case OPTION_GROUP: break;
    }
    return ROSE_OK;
}

static const struct option *find(const struct option *options, size_t count, struct str name, bool *negated)
{
    for (int no = 0; no < 2; no++) {
        struct str n = name;
        if (no) {
            if (!str_starts(n, STR("no-"))) return NULL;
            n = (struct str){n.p + 3, n.n - 3};
        }
        for (size_t i = 0; i < count; i++)
            if (options[i].type != OPTION_GROUP && str_is(n, options[i].name) && (!no || options[i].type == OPTION_FLAG)) {
                *negated = no;
                return &options[i];
            }
    }
    return NULL;
}

static const struct option *find_letter(const struct option *options, size_t count, char letter)
{
    for (size_t i = 0; i < count; i++)
        if (options[i].letter == letter && letter) return &options[i];
    return NULL;
}

static enum rose_status defaults(const struct option *options, size_t count, struct rose_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_GROUP) continue;
        if (o->fallback) ROSE_TRY(set(o, o->name, o->fallback, err));
        const char *value = o->env ? getenv(o->env) : NULL;
        if (value && *value) ROSE_TRY(set(o, o->env, value, err));
    }
    return ROSE_OK;
}

/* One word that begins with '-'. *i moves on when the next word is the value. */
static enum rose_status parse_one(const struct option *options, size_t count, int argc, char **argv, int *i, struct rose_error *err)
{
    const char *word = argv[*i], *value = NULL;
    const struct option *o;
    bool negated = false;
    char label[128];
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        struct str name = {word + 2, equals ? (size_t)(equals - word - 2) : strlen(word + 2)};
        o = find(options, count, name, &negated);
        value = equals ? equals + 1 : NULL;
        snprintf(label, sizeof label, "--" STR_FMT, STR_ARG(name));
    } else {
        o = find_letter(options, count, word[1]);
        if (o && word[2] && o->type == OPTION_FLAG) o = NULL;
        else if (word[2]) value = word + 2;
        snprintf(label, sizeof label, "-%c", word[1]);
    }
    if (!o) return status_set(err, ROSE_INVALID, "unknown option %s; --help lists them", word);
    if (o->type == OPTION_FLAG) {
        if (value && !negated) return set(o, label, value, err);
        if (value) return status_set(err, ROSE_INVALID, "%s takes no value", label);
        *(bool *)o->target = !negated;
        return ROSE_OK;
    }
    if (!value) {
        if (*i + 1 >= argc) return status_set(err, ROSE_INVALID, "%s wants a value: %s", label, o->value_name ? o->value_name : o->choices ? o->choices : "VALUE");
        value = argv[++*i];
    }
    return set(o, label, value, err);
}

enum rose_status option_parse(const struct option *options, size_t count, int argc, char **argv, const char **rest, int rest_room, int *rest_count,
                              bool *help, struct rose_error *err)
{
    *rest_count = 0;
    *help = false;
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return *help = true, ROSE_OK;
    ROSE_TRY(defaults(options, count, err));
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        if (!only_words && !strcmp(argv[i], "--")) {
            only_words = true;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            ROSE_TRY(parse_one(options, count, argc, argv, &i, err));
        } else {
            if (*rest_count == rest_room)
                return status_set(err, ROSE_INVALID, rest_room ? "unexpected argument \"%s\" (quote a text with spaces)" : "unexpected argument \"%s\"", argv[i]);
            rest[(*rest_count)++] = argv[i];
        }
    }
    return ROSE_OK;
}

/* Text in lines of at most width columns, each but the first indented. */
static void wrap(const char *text, int column, int indent, int width, struct strbuf *out)
{
    bool first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (!first && column + 1 + (int)n > width) {
            strbuf_printf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            strbuf_addc(out, ' ');
            column++;
        }
        strbuf_add(out, text, n);
        column += (int)n;
        text += n;
        while (*text == ' ') text++;
        first = false;
    }
    strbuf_addc(out, '\n');
}

static const char *value_of(const struct option *o)
{
    if (o->type == OPTION_FLAG) return "";
    return o->value_name ? o->value_name : o->choices ? o->choices : "VALUE";
}

static void full_help(const struct option *o, struct strbuf *out)
{
    strbuf_adds(out, o->help);
    if (o->fallback && o->type != OPTION_FLAG) strbuf_printf(out, " (default %s)", o->fallback);
    if (o->env) strbuf_printf(out, " [%s]", o->env);
}

void option_help(const struct option *options, size_t count, int width, struct strbuf *out)
{
    enum { INDENT = 26 };
    for (size_t i = 0; i < count; i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_GROUP) {
            strbuf_printf(out, "%s%s\n", i ? "\n" : "", o->help);
            continue;
        }
        struct strbuf left = {0}, help = {0};
        if (o->letter) strbuf_printf(&left, "  -%c, --%s %s", o->letter, o->name, value_of(o));
        else strbuf_printf(&left, "      --%s %s", o->name, value_of(o));
        full_help(o, &help);
        if (left.n + 1 > INDENT) strbuf_printf(out, "%s\n%*s", left.p, INDENT, "");
        else strbuf_printf(out, "%-*s", INDENT, left.p);
        wrap(help.p ? help.p : "", INDENT, INDENT, width, out);
        strbuf_free(&left);
        strbuf_free(&help);
    }
}

void option_man(const struct option *options, size_t count, struct strbuf *out)
{
    for (size_t i = 0; i < count; i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_GROUP) {
            strbuf_printf(out, ".SS %s\n", o->help);
            continue;
        }
        strbuf_adds(out, ".TP\n.B ");
        if (o->letter) strbuf_printf(out, "\\-%c, ", o->letter);
        strbuf_printf(out, "\\-\\-%s %s\n", o->name, value_of(o));
        struct strbuf help = {0};
        full_help(o, &help);
        for (const char *p = help.p ? help.p : ""; *p; p++) {
            if (*p == '-' || *p == '\\') strbuf_addc(out, '\\');
            strbuf_addc(out, *p);
        }
        strbuf_addc(out, '\n');
        strbuf_free(&help);
    }
}
