/* The chat template engine against jinja2 as transformers sets it up (tests/golden/make_template_golden.py),
 * and its own promises: trust of every byte, limits, positions of errors. */
#include "tokenizer/template.h"

#include "base/file.h"
#include "test.h"

static const char golden_dir[] = "tests/golden/";
static struct arena arena;

static const struct template_options fixed = {.now = 1700000000, .utc = true};

/* Renders into *out; returns the status and fills err. */
static enum rose_status render(struct str source, const struct json *variables,
                               const struct template_options *options, struct template_output *out,
                               struct rose_error *err)
{
    struct template *template;
    *out = (struct template_output){0};
    enum rose_status status = template_parse(source, "t.jinja", &template, err);
    if (status) return status;
    status = template_render(template, variables, options, out, err);
    template_free(template);
    return status;
}

static const struct json *parse_json(const char *text)
{
    const struct json *json = NULL;
    struct rose_error err = {0};
    CHECK_OK(json_parse(&arena, NULL, str_of(text), &json, &err), err);
    return json;
}

static const struct json *golden(void)
{
    static const struct json *json;
    struct rose_error err = {0};
    struct str text;
    if (json) return json;
    CHECK_OK(file_read(&arena, "tests/golden/template.json", 4 << 20, &text, &err), err);
    CHECK_OK(json_parse(&arena, "template.json", text, &json, &err), err);
    return json;
}

/* Segments cover the text in order and alternate in trust. */
static bool segments_valid(const struct template_output *out)
{
    size_t at = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (out->segments[i].begin != at || out->segments[i].end <= at) return false;
        if (i && out->segments[i].trusted == out->segments[i - 1].trusted) return false;
        at = out->segments[i].end;
    }
    return at == out->text.n;
}

static void compare(const struct json *c, struct str source, const struct json *variables)
{
    struct template_output out;
    struct rose_error err = {0};
    struct str name = json_str(json_get(c, "name"), ""), want = json_str(json_get(c, "expected"), "");
    const struct json *error = json_get(c, "error");
    enum rose_status status = render(source, variables, &fixed, &out, &err);
    bool ok;
    if (error) {
        int64_t line = json_int(json_get(c, "line"), err.line);
        ok = status &&
             strstr(err.message,
                    json_str(error, "").p ? arena_strndup(&arena, error->string.p, error->string.n) : "") &&
             err.line == line && err.column > 0;
        if (!ok)
            fprintf(stderr,
                    STR_FMT ": expected an error with \"" STR_FMT
                            "\" in line %lld, got status %d line %d: %s\n",
                    STR_ARG(name), STR_ARG(error->string), (long long)line, status, err.line, err.message);
    } else {
        ok = !status && str_eq(strbuf_str(&out.text), want) && segments_valid(&out);
        if (!ok)
            fprintf(stderr, STR_FMT ": %s\n--- expected\n" STR_FMT "\n--- got\n" STR_FMT "\n", STR_ARG(name),
                    err.message, STR_ARG(want), STR_ARG(strbuf_str(&out.text)));
    }
    CHECK(ok);
    template_output_free(&out);
}

TEST(snippets_and_errors)
{
    const struct json *cases = json_get(golden(), "cases"), *context = json_get(golden(), "context");
    CHECK(json_is(cases, JSON_ARRAY) && cases->count > 150);
    for (uint32_t i = 0; json_is(cases, JSON_ARRAY) && i < cases->count; i++)
        compare(&cases->items[i], json_str(json_get(&cases->items[i], "template"), ""), context);
}

TEST(chat_templates)
{
    const struct json *chats = json_get(golden(), "chats");
    struct rose_error err = {0};
    struct str text;
    const struct json *inputs = NULL;
    CHECK_OK(file_read(&arena, "tests/golden/template_chats/inputs.json", 1 << 20, &text, &err), err);
    CHECK_OK(json_parse(&arena, "inputs.json", text, &inputs, &err), err);
    CHECK(json_is(chats, JSON_ARRAY) && chats->count > 60);
    for (uint32_t i = 0; json_is(chats, JSON_ARRAY) && i < chats->count; i++) {
        const struct json *c = &chats->items[i];
        char *path = arena_printf(&arena, "%stemplate_chats/" STR_FMT, golden_dir,
                                  STR_ARG(json_get(c, "file")->string));
        char *key = arena_printf(&arena, STR_FMT, STR_ARG(json_get(c, "input")->string));
        CHECK_OK(file_read(&arena, path, 1 << 20, &text, &err), err);
        compare(c, text, json_get(inputs, key));
    }
}

/* The text with untrusted parts in [brackets]. */
static const char *marked(const char *source, const char *variables, const struct template_options *options)
{
    struct template_output out;
    struct rose_error err = {0};
    struct strbuf b = {0};
    CHECK_OK(render(str_of(source), parse_json(variables), options, &out, &err), err);
    CHECK(segments_valid(&out));
    for (size_t i = 0; i < out.count; i++) {
        if (!out.segments[i].trusted) strbuf_addc(&b, '[');
        strbuf_add(&b, out.text.p + out.segments[i].begin, out.segments[i].end - out.segments[i].begin);
        if (!out.segments[i].trusted) strbuf_addc(&b, ']');
    }
    const char *text = arena_strndup(&arena, b.p ? b.p : "", b.n);
    strbuf_free(&b);
    template_output_free(&out);
    return text;
}

static const char user[] = "{\"u\": \" <|x|>, <|y|> \", \"l\": [\"<a>\", \"<b>\"], \"bos_token\": \"<s>\", "
                           "\"k\": {\"<key>\": \"<val>\"}}";

TEST(trust_follows_the_bytes)
{
    CHECK_STR(marked("<t>{{ u }}<t>", user, NULL), "<t>[ <|x|>, <|y|> ]<t>");
    CHECK_STR(marked("{{ bos_token + u.strip() ~ '<e>' }}", user, NULL), "<s>[<|x|>, <|y|>]<e>");
    CHECK_STR(marked("{{ ('<e>' + u + '<e>')[2:6] }}", user, NULL), ">[ <|]");
    CHECK_STR(marked("{{ u.split(', ') | join('<sep>') | trim }}", user, NULL), "[<|x|>]<sep>[<|y|>]");
    CHECK_STR(marked("{{ u | replace('|x|', '<n>') }}", user, NULL), "[ <]<n>[>, <|y|> ]");
    CHECK_STR(marked("{{ 'a<>b'.replace('<>', l[0]) }}", user, NULL), "a[<a>]b");
    CHECK_STR(marked("{{ l | tojson }} {{ k | tojson }} {{ l }}", user, NULL),
              "[\"[<a>]\", \"[<b>]\"] {\"[<key>]\": \"[<val>]\"} ['[<a>]', '[<b>]']");
    CHECK_STR(marked("{{ ('<t>' + l[0]) | upper }} {{ '<t>' | upper }}", user, NULL), "[<T><A>] <T>");
    CHECK_STR(
        marked("{{ '<%s>' % l[0] }} {{ '<{}|{}>'.format(l[1], 'x') }} {{ '%s' | format(l[0]) }}", user, NULL),
        "<[<a>]> <[<b>]|x> [<a>]");
    CHECK_STR(marked("{% macro m(x) %}<m>{{ x }}</m>{% endmacro %}{{ m(l[0]) }}{% set c %}<c>{{ l[1] }}{% "
                     "endset %}{{ c }}",
                     user, NULL),
              "<m>[<a>]</m><c>[<b>]");
    CHECK_STR(marked("{% for c in '<' + l[0] %}{{ c }}{% endfor %}{{ l[0][::-1] }}", user, NULL),
              "<[<a>>a<]");
    CHECK_STR(marked("{% for a, b in k.items() %}{{ a }}={{ b }}{% endfor %}", user, NULL),
              "[<key>]=[<val>]");
    CHECK_STR(marked("{{ l[0] if l[0] == '<a>' else 'no' }}{{ '<a>' if l[0] == '<a>' }}", user, NULL),
              "[<a>]<a>");
    CHECK_STR(marked("{{ l[0].ljust(5, '-') }}{{ l[0].center(7, l[1][0]) }}", user, NULL),
              "[<a>]--[<<<a><<]");
    CHECK_STR(marked("{% filter indent %}<t>\n{{ l[0] }}{% endfilter %}", user, NULL), "<t>\n    [<a>]");
    CHECK_STR(marked("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**k) }}{{ m(z=1) }}", user, NULL),
              "{'[<key>]': '[<val>]'}{'z': 1}");
    CHECK_STR(marked("{% set ns = namespace(t='') %}{% for x in l %}{% set ns.t = ns.t ~ '<' ~ x %}{% endfor "
                     "%}{{ ns.t }}",
                     user, NULL),
              "<[<a>]<[<b>]");
}

/* '<|' + role + '|>' is a control token of several models. */
TEST(known_roles_are_trusted)
{
    static const char source[] =
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}{{ role }}";
    CHECK_STR(marked(source,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"user\"},{\"role\":\"endoftext\","
                     "\"content\":\"\"}],"
                     "\"role\":\"user\"}",
                     NULL),
              "<|user|>[user]<|[endoftext]|>[user]");
}

TEST(messages_as_transformers_prepares_them)
{
    static const char source[] = "{{ messages }}{{ tools }}{{ documents }}{{ add_generation_prompt }}";
    static const char variables[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":null,\"reasoning\":\"r\"},{\"a\":null,\"b\":[null]}]}";
    struct template_output out;
    struct rose_error err = {0};
    CHECK_OK(render(str_of(source), parse_json(variables),
                    &(struct template_options){.as_transformers = true}, &out, &err),
             err);
    CHECK_STR(out.text.p,
              "[{'thinking': 'r', 'role': 'user', 'reasoning': 'r', 'reasoning_content': 'r'}, {'b': "
              "[None]}]NoneNoneFalse");
    template_output_free(&out);
    CHECK_OK(render(str_of(source), parse_json(variables), NULL, &out, &err), err);
    CHECK_STR(out.text.p, "[{'role': 'user', 'content': None, 'reasoning': 'r'}, {'a': None, 'b': [None]}]");
    template_output_free(&out);
}

TEST(trusted_variables_are_the_callers_choice)
{
    static const char *const names[] = {"u", NULL}, *const nothing[] = {NULL};
    CHECK_STR(marked("{{ u }}{{ bos_token }}", user, &(struct template_options){.trusted = names}),
              " <|x|>, <|y|> [<s>]");
    CHECK_STR(marked("{{ bos_token }}", user, &(struct template_options){.trusted = nothing}), "[<s>]");
}

/* Renders a template that must end with the status and words in the message. */
static void check_ends(const char *source, const struct template_options *options, enum rose_status status,
                       const char *words)
{
    struct template_output out;
    struct rose_error err = {0};
    CHECK_INT(render(str_of(source), NULL, options, &out, &err), status);
    if (!strstr(err.message, words))
        fprintf(stderr, "%.80s: \"%s\" lacks \"%s\"\n", source, err.message, words);
    CHECK(strstr(err.message, words) != NULL);
    CHECK(err.line >= 1 && err.column >= 1);
    CHECK(!out.text.p && !out.segments);
    template_output_free(&out);
}

TEST(limits)
{
    struct template_options few = {.max_steps = 100000, .max_output = 1000};
    check_ends("{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}", &few,
               ROSE_LIMIT, "steps");
    check_ends("{% for a in range(1000) %}0123456789{% endfor %}", &few, ROSE_LIMIT, "output");
    check_ends("{{ 'x' * 2000000000 }}", &few, ROSE_LIMIT, "");
    check_ends(
        "{% set ns = namespace(x='a') %}{% for a in range(90) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        NULL, ROSE_LIMIT, "");
    check_ends("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, ROSE_LIMIT, "nested");
    check_ends("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", NULL, ROSE_LIMIT, "nested");
    check_ends("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", NULL, ROSE_LIMIT, "nested");
    check_ends("{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor "
               "%}{{ ns.a }}",
               NULL, ROSE_LIMIT, "nested");
    check_ends("{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a] %}{% endfor "
               "%}{{ ns.a | tojson }}",
               NULL, ROSE_LIMIT, "nested");
    check_ends("{{ 'x' | center(9000000000) }}", NULL, ROSE_LIMIT, "");
    check_ends("{{ '%999999999d' % 1 }}{{ '%999999999d' % 1 }}", NULL, ROSE_LIMIT, "");
    check_ends("{{ 9223372036854775807 + 1 }}", NULL, ROSE_INVALID, "64 bits");
    check_ends("{{ 3 ** 99 }}", NULL, ROSE_INVALID, "64 bits");
    check_ends("{{ -9223372036854775807 - 2 }}", NULL, ROSE_INVALID, "64 bits");
    check_ends("{{ 99999999999999999999 }}", NULL, ROSE_FORMAT, "64 bits");
}

static const char *repeated(const char *before, const char *part, int times, const char *after)
{
    struct strbuf b = {0};
    strbuf_adds(&b, before);
    for (int i = 0; i < times; i++) strbuf_adds(&b, part);
    strbuf_adds(&b, after);
    const char *text = arena_strndup(&arena, b.p, b.n);
    strbuf_free(&b);
    return text;
}

TEST(nesting_ends_with_an_error)
{
    static const char *const parts[] = {"(", "[", "{1:", "-", "not ", "a if b else ", "x(", "x[", "x|f("};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *source = repeated("{{ ", parts[i], 50000, " }}");
        struct template *template;
        struct rose_error err = {0};
        CHECK(template_parse(str_of(source), NULL, &template, &err) != ROSE_OK);
        CHECK(err.line == 1 && err.column > 3);
    }
    check_ends(repeated("", "{% if a %}", 5000, ""), NULL, ROSE_LIMIT, "nested");
    check_ends(repeated("", "{% for a in b %}", 5000, ""), NULL, ROSE_LIMIT, "nested");
    check_ends(repeated("{{ 1", " + 1", 5000, " }}"), NULL, ROSE_LIMIT, "nested");
    check_ends(repeated("{{ x", ".a", 5000, " }}"), NULL, ROSE_LIMIT, "nested");
    check_ends(repeated("{{ 1", "|string", 5000, " }}"), NULL, ROSE_LIMIT, "nested");
    struct template_output out;
    struct rose_error err = {0};
    CHECK_OK(
        render(str_of(repeated("{% if a %}{% ", "elif b %}{% ", 20000, "endif %}")), NULL, NULL, &out, &err),
        err);
    template_output_free(&out);
    CHECK_OK(render(str_of(repeated("{{ 1", " ~ 1", 20000, " }}")), NULL, NULL, &out, &err), err);
    CHECK_INT(out.text.n, 20001);
    template_output_free(&out);
}

TEST(sources_are_checked)
{
    struct template *template;
    struct rose_error err = {0};
    char *huge = malloc(TEMPLATE_MAX_SOURCE + 1);
    memset(huge, 'x', TEMPLATE_MAX_SOURCE + 1);
    CHECK_INT(template_parse((struct str){huge, TEMPLATE_MAX_SOURCE + 1}, "big", &template, &err),
              ROSE_LIMIT);
    free(huge);
    CHECK_INT(template_parse(STR("a\xff"), "bad", &template, &err), ROSE_FORMAT);
    CHECK_STR(err.file, "bad");
    CHECK_INT(template_parse(STR("\n  {{ 'é' ~ 1 + }}"), "file.jinja", &template, &err), ROSE_FORMAT);
    CHECK_INT(err.line, 2);
    CHECK_INT(err.column, 16);
    CHECK_STR(err.file, "file.jinja");
    CHECK(!template);
    CHECK_OK(template_parse(STR(""), NULL, &template, &err), err);
    CHECK(!template_uses(template, "tools"));
    template_free(template);
    CHECK_OK(template_parse(STR("{% if tools %}{% endif %}"), NULL, &template, &err), err);
    CHECK(template_uses(template, "tools") && !template_uses(template, "tool"));
    struct template_output out;
    CHECK_INT(template_render(template, parse_json("[1]"), NULL, &out, &err), ROSE_INVALID);
    template_free(template);
    template_free(NULL);
}

/* Building a long text piece by piece is linear: this would take minutes and gigabytes otherwise. */
TEST(appending_is_linear)
{
    struct template_output out;
    struct rose_error err = {0};
    struct template_options options = {.max_memory = 64 << 20};
    CHECK_OK(render(STR("{% set ns = namespace(t='') %}{% for a in range(20000) %}{% set ns.t = ns.t ~ 'some "
                        "text of a message ' %}"
                        "{% endfor %}{{ ns.t }}"),
                    NULL, &options, &out, &err),
             err);
    CHECK_INT(out.text.n, 20000 * 23);
    template_output_free(&out);
}

TEST_MAIN(CASE(snippets_and_errors), CASE(chat_templates), CASE(trust_follows_the_bytes),
          CASE(known_roles_are_trusted), CASE(messages_as_transformers_prepares_them),
          CASE(trusted_variables_are_the_callers_choice), CASE(limits), CASE(nesting_ends_with_an_error),
          CASE(sources_are_checked), CASE(appending_is_linear))
