/* The expression parser. Children of the nodes:
 *     LIST TUPLE        args                      COND      a if b else c (c may be NULL)
 *     DICT              args: key, value, key...  ATTR      a . name          ITEM  a [ b ]
 *     NEG POS NOT       a                         SLICE     a : b : c, each may be NULL; stands as b of an
 * ITEM BINARY AND OR     a, b                      CALL      a ( args, keywords, *star, **starstar ) CONCAT
 * args                      FILTER    a | name ( as CALL ); a NULL: the text of a block COMPARE           a,
 * args: OPERANDs (op, a) TEST      a is name ( as CALL ); flag: is not KEYWORD           name = a, after the
 * positional args NSREF             name . attr, a target of set */
#include "tokenizer/template_internal.h"

#include <stdio.h>

enum { MAX_KEYWORDS = 255 };

static bool is(const struct parser *p, enum token_type type)
{
    return template_token(p)->type == type;
}

static struct node *unary(struct parser *p, bool with_filter);

struct name *template_expr_name(struct parser *p, const char *what)
{
    const struct token *token = template_token(p);
    if (!template_parse_expect(p, T_NAME, what)) return NULL;
    struct name *name = template_name(p->t, token->text);
    if (!name) template_parse_fail(p, token, ROSE_NO_MEMORY, "out of memory");
    return name;
}

/* Appends to a list by next; tail points to the last link. */
static void append(struct node ***tail, struct node *node)
{
    **tail = node;
    *tail = &node->next;
}

static struct node *invalid_call(struct parser *p, const struct token *at)
{
    return template_parse_fail(p, at, ROSE_FORMAT,
                               "arguments of a call stand in the order positional, keywords, *list, **dict");
}

/* "(" was not taken yet. Fills args, star, starstar of node. */
static struct node *call_args(struct parser *p, struct node *node)
{
    const struct token *open = template_token(p);
    if (!template_parse_expect(p, T_LPAREN, "'('")) return NULL;
    struct node **tail = &node->args;
    int keywords = 0;
    for (bool first = true; !is(p, T_RPAREN); first = false) {
        if (!first) {
            if (!template_parse_expect(p, T_COMMA, "',' or ')'")) return NULL;
            if (is(p, T_RPAREN)) break;
        }
        const struct token *at = template_token(p);
        if (template_parse_skip(p, T_MUL)) {
            if (node->star || node->starstar) return invalid_call(p, open);
            if (!(node->star = template_expr(p))) return NULL;
        } else if (template_parse_skip(p, T_POW)) {
            if (node->starstar) return invalid_call(p, open);
            if (!(node->starstar = template_expr(p))) return NULL;
        } else if (at->type == T_NAME && at[1].type == T_ASSIGN) {
            if (node->starstar) return invalid_call(p, open);
            struct node *keyword = template_parse_node(p, N_KEYWORD, at);
            if (!keyword || !(keyword->name = template_expr_name(p, "a name"))) return NULL;
            if (++keywords > MAX_KEYWORDS)
                return template_parse_fail(p, at, ROSE_LIMIT, "a call has more than %d keyword arguments",
                                           MAX_KEYWORDS);
            for (struct node *k = node->args; k; k = k->next)
                if (k->kind == N_KEYWORD && k->name == keyword->name)
                    return template_parse_fail(p, at, ROSE_FORMAT, "the keyword argument is given twice");
            p->at++;
            if (!(keyword->a = template_expr(p))) return NULL;
            append(&tail, keyword);
        } else {
            if (node->star || node->starstar || keywords) return invalid_call(p, open);
            struct node *arg = template_expr(p);
            if (!arg) return NULL;
            append(&tail, arg);
        }
    }
    return template_parse_expect(p, T_RPAREN, "')'") ? node : NULL;
}

static void remember_unknown(struct parser *p, struct node *node)
{
    if (!node->callable && !p->unknown) p->unknown = node;
}

/* a | name(...) | ...; at_name: the first name stands without its bar. */
struct node *template_expr_filters(struct parser *p, struct node *operand, bool at_name)
{
    while (at_name || is(p, T_PIPE)) {
        if (!at_name) p->at++;
        at_name = false;
        struct node *node = template_parse_node(p, N_FILTER, template_token(p));
        if (!node || !(node->name = template_expr_name(p, "the name of a filter"))) return NULL;
        node->a = operand;
        node->callable = template_filter(node->name->text);
        remember_unknown(p, node);
        if (is(p, T_LPAREN) && !call_args(p, node)) return NULL;
        operand = node;
    }
    return operand;
}

/* The part of [ ] between commas: an expression or a slice. */
static struct node *subscribed(struct parser *p)
{
    const struct token *at = template_token(p);
    struct node *first = NULL;
    if (!is(p, T_COLON)) {
        first = template_expr(p);
        if (!first || !is(p, T_COLON)) return first;
    }
    p->at++;
    struct node *slice = template_parse_node(p, N_SLICE, at);
    if (!slice) return NULL;
    slice->a = first;
    if (!is(p, T_COLON) && !is(p, T_RBRACKET) && !is(p, T_COMMA) && !(slice->b = template_expr(p)))
        return NULL;
    if (template_parse_skip(p, T_COLON) && !is(p, T_RBRACKET) && !is(p, T_COMMA) &&
        !(slice->c = template_expr(p)))
        return NULL;
    return slice;
}

static struct node *integer_node(struct parser *p)
{
    const struct token *token = template_token(p);
    struct node *node = template_parse_node(p, N_CONST, token);
    if (node) node->value = value_int(token->integer);
    p->at++;
    return node;
}

/* .name, .0 or [...] after operand. */
static struct node *subscript(struct parser *p, struct node *operand)
{
    const struct token *at = template_token(p);
    struct node *node = template_parse_node(p, N_ITEM, at);
    if (!node) return NULL;
    node->a = operand;
    if (template_parse_skip(p, T_DOT)) {
        if (is(p, T_INTEGER)) return (node->b = integer_node(p)) ? node : NULL;
        node->kind = N_ATTR;
        return (node->name = template_expr_name(p, "a name or number after '.'")) ? node : NULL;
    }
    p->at++;
    struct node *list = NULL, **tail = &list;
    while (!is(p, T_RBRACKET)) {
        if (list && !template_parse_expect(p, T_COMMA, "',' or ']'")) return NULL;
        struct node *part = subscribed(p);
        if (!part) return NULL;
        append(&tail, part);
    }
    p->at++;
    node->b = list;
    if (!list || list->next) {
        if (!(node->b = template_parse_node(p, N_TUPLE, at))) return NULL;
        node->b->args = list;
        for (struct node *part = list; part; part = part->next)
            if (part->kind == N_SLICE)
                return template_parse_fail(p, at, ROSE_FORMAT, "a slice cannot stand in a tuple");
    }
    return node;
}

static struct node *call(struct parser *p, struct node *operand)
{
    struct node *node = template_parse_node(p, N_CALL, template_token(p));
    if (!node) return NULL;
    node->a = operand;
    return call_args(p, node);
}

static struct node *postfix(struct parser *p, struct node *node)
{
    while (node) {
        if (is(p, T_DOT) || is(p, T_LBRACKET))
            node = subscript(p, node);
        else if (is(p, T_LPAREN))
            node = call(p, node);
        else
            break;
    }
    return node;
}

static bool starts_operand(const struct parser *p)
{
    const struct token *token = template_token(p);
    switch (token->type) {
    case T_NAME:
        return !str_is(token->text, "else") && !str_is(token->text, "or") && !str_is(token->text, "and");
    case T_STRING:
    case T_INTEGER:
    case T_FLOAT:
    case T_LBRACKET:
    case T_LBRACE: return true;
    default: return false;
    }
}

static struct node *primary(struct parser *p, bool namespaces);

static struct node *test(struct parser *p, struct node *operand)
{
    struct node *node = template_parse_node(p, N_TEST, template_token(p));
    if (!node) return NULL;
    p->at++;
    node->a = operand;
    node->flag = template_parse_skip_word(p, "not");
    if (!(node->name = template_expr_name(p, "the name of a test"))) return NULL;
    node->callable = template_test(node->name->text);
    remember_unknown(p, node);
    if (is(p, T_LPAREN)) return call_args(p, node);
    if (starts_operand(p)) {
        if (template_parse_word(p, "is"))
            return template_parse_fail(p, template_token(p), ROSE_FORMAT,
                                       "tests cannot be chained with 'is'");
        node->args = primary(p, false);
        node->args = postfix(p, node->args);
        if (!node->args) return NULL;
    }
    return node;
}

static struct node *constant(struct parser *p, const struct token *token, struct value value)
{
    struct node *node = template_parse_node(p, N_CONST, token);
    if (node) node->value = value;
    return node;
}

/* Adjacent strings are one. */
static struct node *string_constant(struct parser *p)
{
    const struct token *first = template_token(p);
    size_t n = 0, from = p->at;
    while (is(p, T_STRING)) n += p->t->tokens[p->at++].text.n;
    char *text = arena_alloc(&p->t->arena, n + 1);
    struct tstring *s = ARENA_NEW(&p->t->arena, struct tstring);
    if (!text || !s) return template_parse_fail(p, first, ROSE_NO_MEMORY, "out of memory");
    n = 0;
    for (size_t i = from; i < p->at; i++) {
        struct str part = p->t->tokens[i].text;
        if (part.n) memcpy(text + n, part.p, part.n);
        n += part.n;
    }
    *s = (struct tstring){
        .p = text, .n = n, .chars = template_string_chars((struct str){text, n}), .trusted = true};
    return constant(p, first, value_string(s));
}

static struct node *list_or_dict(struct parser *p)
{
    const struct token *open = template_token(p);
    bool dict = open->type == T_LBRACE;
    enum token_type close = dict ? T_RBRACE : T_RBRACKET;
    struct node *node = template_parse_node(p, dict ? N_DICT : N_LIST, open), **tail;
    if (!node) return NULL;
    p->at++;
    tail = &node->args;
    while (!is(p, close)) {
        if (node->args) {
            if (!template_parse_expect(p, T_COMMA, dict ? "',' or '}'" : "',' or ']'")) return NULL;
            if (is(p, close)) break;
        }
        struct node *item = template_expr(p);
        if (!item) return NULL;
        append(&tail, item);
        if (!dict) continue;
        if (!template_parse_expect(p, T_COLON, "':'")) return NULL;
        if (!(item = template_expr(p))) return NULL;
        append(&tail, item);
    }
    p->at++;
    return node;
}

static void note_special(struct parser *p, const struct name *name)
{
    for (struct macro_uses *m = p->macro; m; m = m->outer) {
        m->caller |= str_is(name->text, "caller");
        m->varargs |= str_is(name->text, "varargs");
        m->kwargs |= str_is(name->text, "kwargs");
    }
}

static struct node *name_primary(struct parser *p, bool namespaces)
{
    const struct token *token = template_token(p);
    p->at++;
    if (str_is(token->text, "true") || str_is(token->text, "True"))
        return constant(p, token, value_bool(true));
    if (str_is(token->text, "false") || str_is(token->text, "False"))
        return constant(p, token, value_bool(false));
    if (str_is(token->text, "none") || str_is(token->text, "None"))
        return constant(p, token, value_of(V_NONE));
    struct node *node = template_parse_node(p, N_NAME, token);
    if (!node) return NULL;
    if (!(node->name = template_name(p->t, token->text)))
        return template_parse_fail(p, token, ROSE_NO_MEMORY, "out of memory");
    if (namespaces && template_parse_skip(p, T_DOT)) {
        node->kind = N_NSREF;
        if (!(node->attr = template_expr_name(p, "a name after '.'"))) return NULL;
        return node;
    }
    note_special(p, node->name);
    return node;
}

static struct node *primary(struct parser *p, bool namespaces)
{
    const struct token *token = template_token(p);
    struct node *node;
    switch (token->type) {
    case T_NAME: return name_primary(p, namespaces);
    case T_STRING: return string_constant(p);
    case T_INTEGER: return integer_node(p);
    case T_FLOAT: p->at++; return constant(p, token, value_float(token->number));
    case T_LPAREN:
        p->at++;
        node = template_expr_tuple(p, TUPLE_PARENTHESES, NULL);
        return node && template_parse_expect(p, T_RPAREN, "')'") ? node : NULL;
    case T_LBRACKET:
    case T_LBRACE: return list_or_dict(p);
    default: {
        char buf[64];
        return template_parse_fail(p, token, ROSE_FORMAT, "expected an expression, found %s",
                                   template_token_describe(token, buf));
    }
    }
}

static struct node *unary_inner(struct parser *p, bool with_filter)
{
    const struct token *token = template_token(p);
    struct node *node;
    if (token->type == T_SUB || token->type == T_ADD) {
        p->at++;
        node = template_parse_node(p, token->type == T_SUB ? N_NEG : N_POS, token);
        if (node && !(node->a = unary(p, false))) return NULL;
    } else {
        node = primary(p, false);
    }
    node = postfix(p, node);
    while (with_filter && node) {
        if (is(p, T_PIPE))
            node = template_expr_filters(p, node, false);
        else if (template_parse_word(p, "is"))
            node = test(p, node);
        else if (is(p, T_LPAREN))
            node = call(p, node);
        else
            break;
    }
    return node;
}

static struct node *unary(struct parser *p, bool with_filter)
{
    if (!template_parse_enter(p)) return NULL;
    struct node *node = unary_inner(p, with_filter);
    p->nesting--;
    return node;
}

/* Levels of binary operators, loosest first; every level binds to the left. */
enum {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_ADD,
    LEVEL_CONCAT,
    LEVEL_MUL,
    LEVEL_POW,
    LEVEL_UNARY
};

static bool binary_operator(const struct parser *p, int level, enum node_kind *kind)
{
    enum token_type type = template_token(p)->type;
    *kind = N_BINARY;
    switch (level) {
    case LEVEL_OR: *kind = N_OR; return template_parse_word(p, "or");
    case LEVEL_AND: *kind = N_AND; return template_parse_word(p, "and");
    case LEVEL_ADD: return type == T_ADD || type == T_SUB;
    case LEVEL_MUL: return type == T_MUL || type == T_DIV || type == T_FLOORDIV || type == T_MOD;
    case LEVEL_POW: return type == T_POW;
    default: return false;
    }
}

static struct node *binary(struct parser *p, int level);

static bool comparison(struct parser *p, enum token_type *op)
{
    const struct token *token = template_token(p);
    *op = token->type;
    if (token->type >= T_EQ && token->type <= T_GE) return p->at++, true;
    if (template_parse_skip_word(p, "in")) return *op = T_IN, true;
    if (template_parse_word(p, "not") && token[1].type == T_NAME && str_is(token[1].text, "in")) {
        p->at += 2;
        return *op = T_NOTIN, true;
    }
    return false;
}

static struct node *compare(struct parser *p)
{
    const struct token *at = template_token(p);
    struct node *left = binary(p, LEVEL_ADD), *node = NULL, **tail = NULL;
    enum token_type op;
    while (left && comparison(p, &op)) {
        if (!node) {
            if (!(node = template_parse_node(p, N_COMPARE, at))) return NULL;
            node->a = left;
            tail = &node->args;
        }
        struct node *operand = template_parse_node(p, N_OPERAND, template_token(p));
        if (!operand || !(operand->a = binary(p, LEVEL_ADD))) return NULL;
        operand->op = (uint8_t)op;
        append(&tail, operand);
    }
    return node ? node : left;
}

static struct node *concat(struct parser *p)
{
    const struct token *at = template_token(p);
    struct node *first = binary(p, LEVEL_MUL);
    if (!first || !is(p, T_TILDE)) return first;
    struct node *node = template_parse_node(p, N_CONCAT, at), **tail;
    if (!node) return NULL;
    tail = &node->args;
    append(&tail, first);
    while (template_parse_skip(p, T_TILDE)) {
        struct node *next = binary(p, LEVEL_MUL);
        if (!next) return NULL;
        append(&tail, next);
    }
    return node;
}

static struct node *negation(struct parser *p)
{
    if (!template_parse_word(p, "not")) return compare(p);
    struct node *node = template_parse_node(p, N_NOT, template_token(p));
    if (!node || !template_parse_enter(p)) return NULL;
    p->at++;
    node->a = negation(p);
    p->nesting--;
    return node->a ? node : NULL;
}

static struct node *binary(struct parser *p, int level)
{
    switch (level) {
    case LEVEL_NOT: return negation(p);
    case LEVEL_CONCAT: return concat(p);
    case LEVEL_UNARY: return unary(p, true);
    default: break;
    }
    const struct token *at = template_token(p);
    struct node *left = binary(p, level + 1);
    enum node_kind kind;
    while (left && binary_operator(p, level, &kind)) {
        struct node *node = template_parse_node(p, kind, at);
        if (!node) return NULL;
        at = template_token(p);
        node->op = (uint8_t)at->type;
        node->line = at->line, node->column = at->column;
        p->at++;
        node->a = left;
        if (!(node->b = binary(p, level + 1))) return NULL;
        left = node;
    }
    return left;
}

static struct node *conditional(struct parser *p, bool with_cond)
{
    struct node *unknown = p->unknown;
    struct node *value = binary(p, LEVEL_OR);
    const struct token *at = template_token(p);
    while (with_cond && value && template_parse_skip_word(p, "if")) {
        struct node *node = template_parse_node(p, N_COND, at);
        if (!node || !(node->b = binary(p, LEVEL_OR))) return NULL;
        node->a = value;
        if (template_parse_skip_word(p, "else") && !(node->c = template_expr(p))) return NULL;
        value = node;
        at = template_token(p);
        p->unknown = unknown; /* a filter that may never be reached fails only when it is */
    }
    return value;
}

static struct node *expression(struct parser *p, bool with_cond)
{
    if (!template_parse_enter(p)) return NULL;
    struct node *node = conditional(p, with_cond);
    p->nesting--;
    return node;
}

struct node *template_expr(struct parser *p)
{
    return expression(p, true);
}

static bool tuple_ends(const struct parser *p, const char *end_word)
{
    enum token_type type = template_token(p)->type;
    return type == T_VARIABLE_END || type == T_BLOCK_END || type == T_RPAREN ||
           (end_word && template_parse_word(p, end_word));
}

/* An expression, or several with commas: a tuple. */
static struct node *tuple(struct parser *p, enum tuple_mode mode, bool namespaces, const char *end_word)
{
    const struct token *at = template_token(p);
    struct node *list = NULL, **tail = &list;
    bool comma = false;
    while (!tuple_ends(p, end_word)) {
        struct node *item =
            mode == TUPLE_TARGET ? primary(p, namespaces) : expression(p, mode != TUPLE_NO_COND);
        if (!item) return NULL;
        append(&tail, item);
        if (!template_parse_skip(p, T_COMMA)) break;
        comma = true;
    }
    if (!comma && list) return list;
    if (!comma && mode != TUPLE_PARENTHESES) {
        char buf[64];
        return template_parse_fail(p, template_token(p), ROSE_FORMAT, "expected an expression, found %s",
                                   template_token_describe(template_token(p), buf));
    }
    struct node *node = template_parse_node(p, N_TUPLE, at);
    if (node) node->args = list;
    return node;
}

struct node *template_expr_tuple(struct parser *p, enum tuple_mode mode, const char *end_word)
{
    return tuple(p, mode, false, end_word);
}

static bool assignable(const struct node *node)
{
    if (node->kind == N_NAME || node->kind == N_NSREF) return true;
    if (node->kind != N_TUPLE) return false;
    for (const struct node *item = node->args; item; item = item->next)
        if (!assignable(item)) return false;
    return true;
}

struct node *template_expr_target(struct parser *p, bool namespaces, const char *end_word)
{
    const struct token *at = template_token(p);
    struct node *node = tuple(p, TUPLE_TARGET, namespaces, end_word);
    if (node && !assignable(node))
        return template_parse_fail(p, at, ROSE_FORMAT,
                                   "this cannot be assigned to; a target is a name, a namespace's "
                                   "attribute or a tuple of them");
    return node;
}
