/* The statement parser. Children of the nodes:
 *     TEXT     value                                SET          a = b
 *     OUTPUT   a                                    SET_BLOCK    a = body through the filters b (may be NULL)
 *     FOR      for a in b if c: body; orelse        MACRO        name ( args: KEYWORD name = a or nothing )
 * body IF       if a: body; args: the elif IFs;      CALL_BLOCK   ( args ) a: the CALL; body orelse
 * FILTER_BLOCK body through the filters b WITH     args: SET nodes; body                GENERATION, BLOCK
 * body */
#include "tokenizer/template_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/utf8.h"

struct node *template_parse_fail(struct parser *p, const struct token *at, enum rose_status status,
                                 const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (p->status == ROSE_OK)
        p->status =
            status_at_line(p->err, status, p->t->file, at->line, at->column, "chat template: %s", text);
    return NULL;
}

struct node *template_parse_node(struct parser *p, enum node_kind kind, const struct token *at)
{
    struct node *node = ARENA_NEW(&p->t->arena, struct node);
    if (!node) return template_parse_fail(p, at, ROSE_NO_MEMORY, "out of memory");
    node->kind = (uint8_t)kind;
    node->line = at->line;
    node->column = at->column;
    return node;
}

bool template_parse_enter(struct parser *p)
{
    if (p->nesting < TEMPLATE_MAX_NESTING) return p->nesting++, true;
    template_parse_fail(p, template_token(p), ROSE_LIMIT,
                        "expressions and blocks are nested deeper than %d levels", TEMPLATE_MAX_NESTING);
    return false;
}

bool template_parse_skip(struct parser *p, enum token_type type)
{
    if (template_token(p)->type != type) return false;
    p->at++;
    return true;
}

bool template_parse_word(const struct parser *p, const char *word)
{
    const struct token *token = template_token(p);
    return token->type == T_NAME && str_is(token->text, word);
}

bool template_parse_skip_word(struct parser *p, const char *word)
{
    if (!template_parse_word(p, word)) return false;
    p->at++;
    return true;
}

static bool expected(struct parser *p, const char *what)
{
    char buf[64];
    template_parse_fail(p, template_token(p), ROSE_FORMAT, "expected %s, found %s", what,
                        template_token_describe(template_token(p), buf));
    return false;
}

bool template_parse_expect(struct parser *p, enum token_type type, const char *what)
{
    return template_parse_skip(p, type) || expected(p, what);
}

static bool expect_word(struct parser *p, const char *word)
{
    char what[32];
    snprintf(what, sizeof what, "'%s'", word);
    return template_parse_skip_word(p, word) || expected(p, what);
}

struct name *template_name_find(const struct template *t, struct str text)
{
    if (!t->name_cap) return NULL;
    struct name *name = t->name_slots[hash_bytes(text.p, text.n, 0) & (t->name_cap - 1)];
    while (name && !str_eq(name->text, text)) name = name->next;
    return name;
}

struct name *template_name(struct template *t, struct str text)
{
    struct name *name = template_name_find(t, text);
    if (name) return name;
    if (t->name_count >= t->name_cap) {
        size_t cap = t->name_cap ? t->name_cap * 2 : 64;
        struct name **slots = ARENA_ARRAY(&t->arena, struct name *, cap);
        if (!slots) return NULL;
        for (size_t i = 0; i < t->name_cap; i++) {
            for (struct name *n = t->name_slots[i], *next; n; n = next) {
                struct name **slot = &slots[hash_bytes(n->text.p, n->text.n, 0) & (cap - 1)];
                next = n->next;
                n->next = *slot;
                *slot = n;
            }
        }
        t->name_slots = slots;
        t->name_cap = cap;
    }
    if (!(name = ARENA_NEW(&t->arena, struct name))) return NULL;
    struct name **slot = &t->name_slots[hash_bytes(text.p, text.n, 0) & (t->name_cap - 1)];
    *name = (struct name){.text = text, .id = t->name_count++, .next = *slot};
    return *slot = name;
}

static bool unknown_callable(struct parser *p)
{
    struct node *node = p->unknown;
    p->unknown = NULL;
    if (!node || p->soft) return true;
    struct token at = {.line = node->line, .column = node->column};
    template_parse_fail(p, &at, ROSE_FORMAT, "there is no %s named '" STR_FMT "'",
                        node->kind == N_FILTER ? "filter" : "test", STR_ARG(node->name->text));
    return false;
}

static bool statements(struct parser *p, const struct token *opened, const char *const *ends,
                       struct node **out);

/* "%}", statements and the tag that ends them; on return the next token is the word of that tag. */
static bool body(struct parser *p, const struct token *opened, const char *const *ends, struct node **out)
{
    template_parse_skip(p, T_COLON);
    if (!unknown_callable(p) || !template_parse_expect(p, T_BLOCK_END, "'%}'") || !template_parse_enter(p))
        return false;
    bool ok = statements(p, opened, ends, out);
    p->nesting--;
    return ok;
}

/* body with one end, which is taken. */
static bool whole_body(struct parser *p, const struct token *opened, const char *end, struct node **out)
{
    const char *const ends[] = {end, NULL};
    if (!body(p, opened, ends, out)) return false;
    p->at++;
    return true;
}

/* A body that is a frame of its own: unknown filters in it fail at once. */
static bool framed_body(struct parser *p, const struct token *opened, const char *end, struct node **out)
{
    int soft = p->soft;
    if (!unknown_callable(p)) return false;
    p->soft = 0;
    bool ok = whole_body(p, opened, end, out);
    p->soft = soft;
    return ok;
}

static bool parse_for(struct parser *p, const struct token *at, struct node *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    node->kind = N_FOR;
    if (!(node->a = template_expr_target(p, false, "in")) || !expect_word(p, "in")) return false;
    if (!(node->b = template_expr_tuple(p, TUPLE_NO_COND, "recursive"))) return false;
    if (template_parse_skip_word(p, "if") && !(node->c = template_expr(p))) return false;
    node->flag = template_parse_skip_word(p, "recursive");
    int soft = p->soft;
    if (!unknown_callable(p)) return false;
    p->soft = 0;
    p->loops++;
    if (!body(p, at, ends, &node->body)) return false;
    p->loops--;
    if (template_parse_skip_word(p, "else")) {
        if (!whole_body(p, at, "endfor", &node->orelse)) return false;
    } else {
        p->at++;
    }
    p->soft = soft;
    return true;
}

static bool parse_if(struct parser *p, const struct token *at, struct node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *branch = node, **tail = &node->args;
    node->kind = N_IF;
    p->soft++;
    for (;;) {
        if (!(branch->a = template_expr_tuple(p, TUPLE_NO_COND, NULL)) || !body(p, at, ends, &branch->body))
            return false;
        const struct token *word = template_token(p);
        p->at++;
        if (str_is(word->text, "elif")) {
            if (!(branch = template_parse_node(p, N_IF, word))) return false;
            *tail = branch;
            tail = &branch->next;
            continue;
        }
        if (str_is(word->text, "else") && !whole_body(p, at, "endif", &node->orelse)) return false;
        p->soft--;
        return true;
    }
}

static bool parse_set(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = N_SET;
    if (!(node->a = template_expr_target(p, true, NULL))) return false;
    if (template_parse_skip(p, T_ASSIGN))
        return (node->b = template_expr_tuple(p, TUPLE_EXPRESSION, NULL)) != NULL;
    node->kind = N_SET_BLOCK;
    node->b = template_expr_filters(p, NULL, false);
    return p->status == ROSE_OK && framed_body(p, at, "endset", &node->body);
}

/* ( a, b = 1 ) */
static bool signature(struct parser *p, struct node *node)
{
    struct node **tail = &node->args;
    bool defaults = false;
    int count = 0;
    if (!template_parse_expect(p, T_LPAREN, "'('")) return false;
    while (template_token(p)->type != T_RPAREN) {
        if (node->args && !template_parse_expect(p, T_COMMA, "',' or ')'")) return false;
        const struct token *at = template_token(p);
        struct node *param = template_parse_node(p, N_KEYWORD, at);
        if (!param || !(param->name = template_expr_name(p, "the name of a parameter"))) return false;
        for (struct node *other = node->args; other; other = other->next)
            if (other->name == param->name)
                return template_parse_fail(p, at, ROSE_FORMAT, "two parameters have the same name") != NULL;
        if (++count > 255) return template_parse_fail(p, at, ROSE_LIMIT, "more than 255 parameters") != NULL;
        if (template_parse_skip(p, T_ASSIGN)) {
            if (!(param->a = template_expr(p))) return false;
            defaults = true;
        } else if (defaults) {
            return template_parse_fail(p, at, ROSE_FORMAT, "a parameter without default follows one with") !=
                   NULL;
        }
        *tail = param;
        tail = &param->next;
    }
    p->at++;
    return true;
}

/* The body of a macro, call or generation block: a function of its own. */
static bool function_body(struct parser *p, const struct token *at, const char *end, struct node *node)
{
    struct macro_uses uses = {.outer = p->macro};
    int loops = p->loops;
    p->loops = 0;
    p->macro = &uses;
    bool ok = framed_body(p, at, end, &node->body);
    p->macro = uses.outer;
    p->loops = loops;
    node->flag = uses.caller;
    node->uses_varargs = uses.varargs;
    node->uses_kwargs = uses.kwargs;
    for (struct node *param = node->args; param; param = param->next) {
        if (str_is(param->name->text, "caller") && uses.caller && !param->a)
            return template_parse_fail(p, at, ROSE_FORMAT, "a parameter named caller needs a default") !=
                   NULL;
        if (str_is(param->name->text, "varargs")) node->uses_varargs = false;
        if (str_is(param->name->text, "kwargs")) node->uses_kwargs = false;
    }
    return ok;
}

static bool parse_macro(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = N_MACRO;
    return (node->name = template_expr_name(p, "the name of a macro")) && signature(p, node) &&
           function_body(p, at, "endmacro", node);
}

static bool parse_call(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = N_CALL_BLOCK;
    if (template_token(p)->type == T_LPAREN && !signature(p, node)) return false;
    const struct token *call = template_token(p);
    if (!(node->a = template_expr(p))) return false;
    if (node->a->kind != N_CALL) return template_parse_fail(p, call, ROSE_FORMAT, "expected a call") != NULL;
    return function_body(p, at, "endcall", node);
}

static bool parse_filter(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = N_FILTER_BLOCK;
    return (node->b = template_expr_filters(p, NULL, true)) && framed_body(p, at, "endfilter", &node->body);
}

static bool parse_with(struct parser *p, const struct token *at, struct node *node)
{
    struct node **tail = &node->args;
    node->kind = N_WITH;
    while (template_token(p)->type != T_BLOCK_END) {
        if (node->args && !template_parse_expect(p, T_COMMA, "',' or '%}'")) return false;
        struct node *set = template_parse_node(p, N_SET, template_token(p));
        if (!set || !(set->a = template_expr_target(p, false, NULL))) return false;
        if (!template_parse_expect(p, T_ASSIGN, "'='") || !(set->b = template_expr(p))) return false;
        *tail = set;
        tail = &set->next;
    }
    return framed_body(p, at, "endwith", &node->body);
}

static bool parse_print(struct parser *p, const struct token *at, struct node *node)
{
    (void)at;
    node->kind = N_OUTPUT;
    for (struct node *output = node;;) {
        if (!(output->a = template_expr(p))) return false;
        if (!template_parse_skip(p, T_COMMA)) return true;
        struct node *next = template_parse_node(p, N_OUTPUT, template_token(p));
        if (!next) return false;
        output = output->next = next;
    }
}

static bool parse_generation(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = N_GENERATION;
    return function_body(p, at, "endgeneration", node);
}

static bool parse_block(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = N_BLOCK;
    if (!(node->name = template_expr_name(p, "the name of a block"))) return false;
    node->flag = template_parse_skip_word(p, "scoped");
    int loops = p->loops;
    p->loops = 0;
    if (!framed_body(p, at, "endblock", &node->body)) return false;
    p->loops = loops;
    if (template_token(p)->type == T_NAME && str_eq(template_token(p)->text, node->name->text)) p->at++;
    return true;
}

static bool parse_jump(struct parser *p, const struct token *at, struct node *node)
{
    node->kind = str_is(at->text, "break") ? N_BREAK : N_CONTINUE;
    if (!p->loops)
        return template_parse_fail(p, at, ROSE_FORMAT, "'" STR_FMT "' stands outside a loop",
                                   STR_ARG(at->text)) != NULL;
    return true;
}

static const struct {
    const char *word;
    bool (*parse)(struct parser *p, const struct token *at, struct node *node);
} tags[] = {
    {"for", parse_for},       {"if", parse_if},
    {"set", parse_set},       {"macro", parse_macro},
    {"call", parse_call},     {"filter", parse_filter},
    {"with", parse_with},     {"generation", parse_generation},
    {"block", parse_block},   {"break", parse_jump},
    {"continue", parse_jump}, {"print", parse_print},
};

static struct node *statement(struct parser *p, const struct token *opened, const char *const *ends)
{
    static const char *const missing[] = {"extends", "include", "import", "from", "autoescape"};
    const struct token *at = template_token(p);
    if (at->type != T_NAME) return expected(p, "the name of a tag"), NULL;
    for (size_t i = 0; i < ROSE_COUNT(tags); i++) {
        if (!str_is(at->text, tags[i].word)) continue;
        struct node *node = template_parse_node(p, N_TEXT, at);
        p->at++;
        return node && tags[i].parse(p, at, node) ? node : NULL;
    }
    for (size_t i = 0; i < ROSE_COUNT(missing); i++)
        if (str_is(at->text, missing[i]))
            return template_parse_fail(p, at, ROSE_UNSUPPORTED,
                                       "the tag '" STR_FMT "' is not supported; a chat template "
                                       "stands in one file",
                                       STR_ARG(at->text));
    if (!opened)
        return template_parse_fail(p, at, ROSE_FORMAT, "unknown tag '" STR_FMT "'", STR_ARG(at->text));
    return template_parse_fail(p, at, ROSE_FORMAT,
                               "unknown tag '" STR_FMT "'; '" STR_FMT "' of line %d ends with '%s'",
                               STR_ARG(at->text), STR_ARG(opened->text), opened->line, ends[0]);
}

static struct node *text_node(struct parser *p, const struct token *token)
{
    struct node *node = template_parse_node(p, N_TEXT, token);
    struct tstring *s = ARENA_NEW(&p->t->arena, struct tstring);
    if (!node || !s) return template_parse_fail(p, token, ROSE_NO_MEMORY, "out of memory");
    *s = (struct tstring){
        .p = token->text.p, .n = token->text.n, .chars = template_string_chars(token->text), .trusted = true};
    node->value = value_string(s);
    return node;
}

static bool word_in(const struct parser *p, const char *const *words)
{
    for (; *words; words++)
        if (template_parse_word(p, *words)) return true;
    return false;
}

/* Statements until a tag of ends (opened is the tag they belong to), or to the end of the template. */
static bool statements(struct parser *p, const struct token *opened, const char *const *ends,
                       struct node **out)
{
    struct node **tail = out;
    for (;;) {
        const struct token *token = template_token(p);
        struct node *node = NULL;
        p->unknown = NULL;
        switch (token->type) {
        case T_DATA:
            node = text_node(p, token);
            p->at++;
            break;
        case T_VARIABLE_BEGIN:
            p->at++;
            if (!(node = template_parse_node(p, N_OUTPUT, token))) return false;
            if (!(node->a = template_expr_tuple(p, TUPLE_EXPRESSION, NULL)) ||
                !template_parse_expect(p, T_VARIABLE_END, "'}}'") || !unknown_callable(p))
                return false;
            break;
        case T_BLOCK_BEGIN:
            p->at++;
            if (opened && word_in(p, ends)) return true;
            node = statement(p, opened, ends);
            if (!node || !unknown_callable(p) || !template_parse_expect(p, T_BLOCK_END, "'%}'")) return false;
            break;
        default:
            if (!opened) return true;
            return template_parse_fail(p, opened, ROSE_FORMAT,
                                       "the tag '" STR_FMT "' is never closed by '%s'", STR_ARG(opened->text),
                                       ends[0]) != NULL;
        }
        if (!node) return false;
        *tail = node;
        while (node->kind == N_OUTPUT && node->next) node = node->next; /* print a, b */
        tail = &node->next;
    }
}

/* Newlines become \n and the last one goes. */
static bool normalize(struct template *t, struct str source)
{
    char *text = arena_alloc(&t->arena, source.n + 1);
    if (!text) return false;
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        if (source.p[i] != '\r')
            text[n++] = source.p[i];
        else if (i + 1 == source.n || source.p[i + 1] != '\n')
            text[n++] = '\n';
    }
    if (n && text[n - 1] == '\n') n--;
    text[n] = '\0';
    t->source = (struct str){text, n};
    return true;
}

enum rose_status template_parse(struct str source, const char *file, struct template **out,
                                struct rose_error *err)
{
    *out = NULL;
    if (source.n > TEMPLATE_MAX_SOURCE)
        return status_at(err, ROSE_LIMIT, file, -1,
                         "a chat template of %zu bytes is larger than the limit of %d bytes", source.n,
                         TEMPLATE_MAX_SOURCE);
    if (!utf8_valid(source))
        return status_at(err, ROSE_FORMAT, file, -1, "a chat template is not valid UTF-8");
    struct template *t = calloc(1, sizeof *t);
    if (!t) return status_set(err, ROSE_NO_MEMORY, "out of memory while reading a chat template");
    arena_init(&t->arena, 0);
    struct parser p = {.t = t, .err = err};
    if ((file && !(t->file = arena_strndup(&t->arena, file, strlen(file)))) || !normalize(t, source))
        p.status = status_set(err, ROSE_NO_MEMORY, "out of memory while reading a chat template");
    if (!p.status) p.status = template_lex(t, err);
    if (!p.status) statements(&p, NULL, NULL, &t->body);
    if (!p.status && !template_scopes(t))
        p.status = status_set(err, ROSE_NO_MEMORY, "out of memory while reading a chat template");
    if (p.status) {
        template_free(t);
        return p.status;
    }
    *out = t;
    return ROSE_OK;
}

void template_free(struct template *template)
{
    if (!template) return;
    arena_free(&template->arena);
    free(template);
}

bool template_uses(const struct template *template, const char *variable)
{
    return template_name_find(template, str_of(variable)) != NULL;
}
