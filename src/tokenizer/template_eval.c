/* Evaluates expressions; limits, errors and memory of a rendering. */
#include "tokenizer/template_internal.h"

#include <stdio.h>

static bool fail_va(struct eval *e, enum rose_status status, const char *fmt, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, fmt, args);
    if (e->status != ROSE_OK) return false;
    e->status = status_at_line(e->err, status, e->t->file, e->at ? e->at->line : 0, e->at ? e->at->column : 0,
                               "chat template: %s", text);
    return false;
}

bool template_fail(struct eval *e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_va(e, ROSE_INVALID, fmt, args);
    va_end(args);
    return false;
}

bool template_fail_status(struct eval *e, enum rose_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fail_va(e, status, fmt, args);
    va_end(args);
    return false;
}

bool template_fail_memory(struct eval *e)
{
    return template_fail_status(e, ROSE_LIMIT,
                                "rendering needs more memory than its limit of %zu MiB or than there is",
                                e->arena.limit >> 20);
}

bool template_charge(struct eval *e, size_t bytes)
{
    uint64_t cost = 1 + bytes / 32;
    if (cost <= e->steps) return e->steps -= cost, true;
    e->steps = 0;
    return template_fail_status(e, ROSE_LIMIT, "rendering takes more steps than its limit");
}

bool template_enter(struct eval *e)
{
    if (e->depth < e->max_depth) return e->depth++, true;
    return template_fail_status(e, ROSE_LIMIT,
                                "expressions, blocks, macro calls or values are nested deeper than %u levels",
                                e->max_depth);
}

void *template_alloc(struct eval *e, size_t bytes)
{
    void *p = arena_alloc(&e->arena, bytes ? bytes : 1);
    if (!p) template_fail_memory(e);
    return p;
}

void *template_array(struct eval *e, size_t count, size_t size)
{
    void *p = arena_zalloc(&e->arena, count ? count : 1, size);
    if (!p) template_fail_memory(e);
    return p;
}

/* --- names --- */

static bool find_variable(struct eval *e, const struct name *name, struct value *out)
{
    *out = value_of(V_MISSING);
    for (const struct scope *scope = e->scope; scope; scope = scope->parent) {
        if (!template_charge(e, 0)) return false;
        for (const struct binding *b = scope->first; b; b = b->next) {
            if (b->name != name) continue;
            *out = b->value; /* V_MISSING: a parameter not bound yet, which hides what is outside */
            return true;
        }
    }
    *out = e->globals[name->id];
    return true;
}

bool template_eval_lookup(struct eval *e, const struct name *name, struct value *out)
{
    if (!find_variable(e, name, out)) return false;
    if (out->kind != V_MISSING) return true;
    struct value text;
    return template_string_new(e, name->text, true, &text) &&
           template_value_undefined(e, value_of(V_MISSING), text, out);
}

/* --- expressions --- */

static size_t list_length(const struct node *list)
{
    size_t n = 0;
    for (; list; list = list->next) n++;
    return n;
}

static bool eval_list(struct eval *e, const struct node *node, struct value *out)
{
    struct tlist *list = template_list_new(e, list_length(node->args));
    size_t n = 0;
    if (!list) return false;
    for (const struct node *item = node->args; item; item = item->next)
        if (!template_eval(e, item, &list->items[n++])) return false;
    *out = (struct value){.kind = node->kind == N_LIST ? V_LIST : V_TUPLE, .list = list};
    return true;
}

static bool eval_dict(struct eval *e, const struct node *node, struct value *out)
{
    struct tdict *dict = template_dict_new(e, list_length(node->args) / 2);
    if (!dict) return false;
    for (const struct node *item = node->args; item; item = item->next->next) {
        struct value key, value;
        if (!template_eval(e, item, &key) || !template_eval(e, item->next, &value)) return false;
        e->at = node;
        if (!template_dict_set(e, dict, key, value)) return false;
    }
    *out = (struct value){.kind = V_DICT, .dict = dict};
    return true;
}

static bool eval_sign(struct eval *e, const struct node *node, struct value *out)
{
    struct value v;
    if (!template_eval(e, node->a, &v)) return false;
    e->at = node;
    if (v.kind == V_UNDEFINED) return template_value_undefined_fail(e, v);
    if (!value_is_number(v))
        return template_fail(e, "a sign before a value of type '%s'", template_value_type(v));
    if (v.kind == V_FLOAT) return *out = value_float(node->kind == N_NEG ? -v.number : v.number), true;
    int64_t i = value_integer(v);
    if (node->kind == N_NEG && i == INT64_MIN)
        return template_fail(e, "an integer result does not fit 64 bits");
    *out = value_int(node->kind == N_NEG ? -i : i);
    return true;
}

static bool eval_concat(struct eval *e, const struct node *node, struct value *out)
{
    struct value sum, part;
    if (!template_eval(e, node->args, &part) || !template_str(e, part, &sum)) return false;
    for (const struct node *item = node->args->next; item; item = item->next) {
        if (!template_eval(e, item, &part) || !template_str(e, part, &part)) return false;
        if (!template_string_concat(e, sum.string, part.string, &sum)) return false;
    }
    *out = sum;
    if (!sum.string->markup) return true;
    if (!template_string_slice(e, sum.string, 0, sum.string->n, out)) return false;
    out->string->markup = false;
    return true;
}

static bool compare_one(struct eval *e, enum token_type op, struct value a, struct value b, bool *out)
{
    switch (op) {
    case T_EQ: return template_value_equal(e, a, b, out);
    case T_NE:
    case T_NOTIN:
        if (op == T_NE ? !template_value_equal(e, a, b, out) : !template_value_contains(e, b, a, out))
            return false;
        *out = !*out;
        return true;
    case T_IN: return template_value_contains(e, b, a, out);
    default: return template_value_compare(e, op, a, b, out);
    }
}

static bool eval_compare(struct eval *e, const struct node *node, struct value *out)
{
    struct value a, b;
    bool result = true;
    if (!template_eval(e, node->a, &a)) return false;
    for (const struct node *operand = node->args; operand && result; operand = operand->next) {
        if (!template_eval(e, operand->a, &b)) return false;
        e->at = node;
        if (!compare_one(e, operand->op, a, b, &result)) return false;
        a = b;
    }
    *out = value_bool(result);
    return true;
}

static bool eval_cond(struct eval *e, const struct node *node, struct value *out)
{
    struct value test;
    if (!template_eval(e, node->b, &test)) return false;
    if (template_value_truth(test)) return template_eval(e, node->a, out);
    if (node->c) return template_eval(e, node->c, out);
    return template_value_undefined_hint(
        e, "an inline if was false and has no else, so the value is undefined", out);
}

static bool eval_optional(struct eval *e, const struct node *node, struct value *out)
{
    *out = value_of(V_NONE);
    return !node || template_eval(e, node, out);
}

static bool eval_item(struct eval *e, const struct node *node, struct value *out)
{
    struct value v, key;
    if (!template_eval(e, node->a, &v)) return false;
    if (node->b->kind == N_SLICE) {
        struct value start, stop, step;
        if (!eval_optional(e, node->b->a, &start) || !eval_optional(e, node->b->b, &stop) ||
            !eval_optional(e, node->b->c, &step))
            return false;
        e->at = node;
        return template_ops_slice(e, v, start, stop, step, out);
    }
    if (!template_eval(e, node->b, &key)) return false;
    e->at = node;
    return template_ops_getitem(e, v, key, out);
}

static bool eval_attr(struct eval *e, const struct node *node, struct value *out)
{
    struct value v, name;
    if (!template_eval(e, node->a, &v)) return false;
    e->at = node;
    struct str text = node->name->text;
    if (v.kind == V_DICT && !template_method(v, text)) { /* the usual case, without making a string */
        struct value *found = template_method_mutates(v, text) ? NULL : template_dict_get_str(v.dict, text);
        if (found) return *out = *found, true;
    }
    return template_string_new(e, text, true, &name) && template_ops_getattr(e, v, name, out);
}

static bool eval_call(struct eval *e, const struct node *node, struct value *out)
{
    struct value fn;
    struct args args;
    if (!template_eval(e, node->a, &fn) || !template_eval_args(e, node, &args)) return false;
    e->at = node;
    return template_call(e, fn, &args, out);
}

static bool eval_filter(struct eval *e, const struct node *node, struct value *out)
{
    struct value v;
    struct args args;
    if (!template_eval(e, node->a, &v)) return false;
    if (!template_eval_args(e, node, &args)) return false;
    e->at = node;
    if (!node->callable)
        return template_fail(e, "there is no %s named '" STR_FMT "'",
                             node->kind == N_FILTER ? "filter" : "test", STR_ARG(node->name->text));
    if (!template_call_bound(e, node->callable, v, &args, out)) return false;
    if (node->flag) *out = value_bool(!template_value_truth(*out));
    return true;
}

static bool eval_inner(struct eval *e, const struct node *node, struct value *out)
{
    struct value a, b;
    switch (node->kind) {
    case N_CONST: *out = node->value; return true;
    case N_NAME: e->at = node; return template_eval_lookup(e, node->name, out);
    case N_LIST:
    case N_TUPLE: return eval_list(e, node, out);
    case N_DICT: return eval_dict(e, node, out);
    case N_NEG:
    case N_POS: return eval_sign(e, node, out);
    case N_NOT:
        if (!template_eval(e, node->a, &a)) return false;
        *out = value_bool(!template_value_truth(a));
        return true;
    case N_AND:
    case N_OR:
        if (!template_eval(e, node->a, out)) return false;
        return template_value_truth(*out) == (node->kind == N_OR) || template_eval(e, node->b, out);
    case N_BINARY:
        if (!template_eval(e, node->a, &a) || !template_eval(e, node->b, &b)) return false;
        e->at = node;
        return template_ops_binary(e, node->op, a, b, out);
    case N_CONCAT: return eval_concat(e, node, out);
    case N_COMPARE: return eval_compare(e, node, out);
    case N_COND: return eval_cond(e, node, out);
    case N_ATTR: return eval_attr(e, node, out);
    case N_ITEM: return eval_item(e, node, out);
    case N_CALL: return eval_call(e, node, out);
    case N_FILTER:
    case N_TEST: return eval_filter(e, node, out);
    default: return template_fail_status(e, ROSE_INTERNAL, "a node of kind %d is no expression", node->kind);
    }
}

bool template_eval(struct eval *e, const struct node *node, struct value *out)
{
    if (!template_charge(e, 0) || !template_enter(e)) return false;
    bool ok = eval_inner(e, node, out);
    template_leave(e);
    return ok;
}
