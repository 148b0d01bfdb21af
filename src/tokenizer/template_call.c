/* Calls: evaluating and binding arguments, macros, and the global functions. */
#include "tokenizer/template_internal.h"

#include <stdio.h>

static bool push_keyword(struct eval *e, struct args *args, size_t *cap, struct str name, bool trusted,
                         struct value value)
{
    for (size_t i = 0; i < args->nkw; i++)
        if (str_eq(args->kw[i].name, name))
            return template_fail(e, "the keyword argument '" STR_FMT "' is given twice", STR_ARG(name));
    if (args->nkw == *cap) {
        size_t more = *cap ? *cap * 2 : 4;
        struct keyword *kw = template_array(e, more, sizeof *kw);
        if (!kw || !template_charge(e, more * 16)) return false;
        if (args->nkw) memcpy(kw, args->kw, args->nkw * sizeof *kw);
        args->kw = kw;
        *cap = more;
    }
    args->kw[args->nkw++] = (struct keyword){name, value, trusted};
    return template_charge(e, args->nkw);
}

static bool push_dict(struct eval *e, struct args *args, size_t *cap, struct value v)
{
    if (v.kind != V_DICT)
        return template_fail(e, "** needs a dict, not a value of type '%s'", template_value_type(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        if (v.dict->entries[i].key.kind != V_STRING)
            return template_fail(e, "** needs a dict with string keys");
        if (!push_keyword(e, args, cap, value_str(v.dict->entries[i].key),
                          template_string_all_trusted(v.dict->entries[i].key.string),
                          v.dict->entries[i].value))
            return false;
    }
    return true;
}

bool template_eval_args(struct eval *e, const struct node *call, struct args *args)
{
    static struct value empty[1]; /* a place to point to; never written */
    size_t npos = 0, nkw = 0;
    *args = (struct args){.pos = empty};
    if (!call->args && !call->star && !call->starstar) return true;
    for (const struct node *arg = call->args; arg; arg = arg->next) arg->kind == N_KEYWORD ? nkw++ : npos++;
    if (!(args->pos = template_array(e, npos, sizeof *args->pos))) return false;
    if (nkw && !(args->kw = template_array(e, nkw, sizeof *args->kw))) return false;
    for (const struct node *arg = call->args; arg; arg = arg->next) {
        struct value v;
        if (!template_eval(e, arg->kind == N_KEYWORD ? arg->a : arg, &v)) return false;
        if (arg->kind != N_KEYWORD)
            args->pos[args->npos++] = v;
        else if (!push_keyword(e, args, &nkw, arg->name->text, true, v))
            return false;
    }
    if (call->star) {
        struct value v;
        struct tlist *more;
        if (!template_eval(e, call->star, &v) || !template_value_elements(e, v, &more)) return false;
        struct value *pos = template_array(e, args->npos + more->n, sizeof *pos);
        if (!pos || !template_charge(e, more->n * 16)) return false;
        if (args->npos) memcpy(pos, args->pos, args->npos * sizeof *pos);
        if (more->n) memcpy(pos + args->npos, more->items, more->n * sizeof *pos);
        args->pos = pos;
        args->npos += more->n;
    }
    if (call->starstar) {
        struct value v;
        if (!template_eval(e, call->starstar, &v) || !push_dict(e, args, &nkw, v)) return false;
    }
    return true;
}

const struct callable *template_callable_find(const struct callable *table, size_t n, struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name)) return &table[i];
    return NULL;
}

/* The next word of a list separated by blanks. */
static struct str next_word(const char **at)
{
    while (**at == ' ') ++*at;
    const char *begin = *at;
    while (**at && **at != ' ') ++*at;
    return (struct str){begin, (size_t)(*at - begin)};
}

static bool bind(struct eval *e, const struct callable *c, struct args *args, struct call *call)
{
    const char *at = c->params;
    size_t n = 0;
    struct str names[CALL_MAX_PARAMS];
    for (struct str word; (word = next_word(&at)).n; n++) names[n] = word;
    if (args->npos > n)
        return template_fail(e, "%s takes at most %zu arguments, but %zu were given", c->name, n, args->npos);
    for (size_t i = 0; i < args->npos; i++) call->p[i] = args->pos[i];
    for (size_t k = 0; k < args->nkw; k++) {
        size_t i = 0;
        while (i < n && !str_eq(names[i], args->kw[k].name)) i++;
        if (i == n)
            return template_fail(e, "%s has no argument named '" STR_FMT "'", c->name,
                                 STR_ARG(args->kw[k].name));
        if (call->p[i].kind != V_MISSING)
            return template_fail(e, "the argument '" STR_FMT "' of %s is given twice", STR_ARG(names[i]),
                                 c->name);
        call->p[i] = args->kw[k].value;
    }
    for (int i = 0; i < c->required; i++)
        if (call->p[i].kind == V_MISSING)
            return template_fail(e, "%s needs the argument '" STR_FMT "'", c->name, STR_ARG(names[i]));
    return true;
}

bool template_call_bound(struct eval *e, const struct callable *callable, struct value self,
                         struct args *args, struct value *out)
{
    struct call call = {.callable = callable, .self = self, .args = *args};
    if (!template_charge(e, 0)) return false;
    if (callable->params && !bind(e, callable, args, &call)) return false;
    return callable->fn(e, &call, out);
}

bool template_call(struct eval *e, struct value fn, struct args *args, struct value *out)
{
    switch (fn.kind) {
    case V_MACRO: return template_call_macro(e, fn.macro, args, out);
    case V_BUILTIN: return template_call_bound(e, fn.builtin, value_of(V_MISSING), args, out);
    case V_METHOD: return template_call_bound(e, fn.method->callable, fn.method->self, args, out);
    case V_LOOP:
        if (args->npos != 1 || args->nkw) return template_fail(e, "a recursive loop takes one argument");
        return template_exec_recurse(e, fn.loop, args->pos[0], out);
    case V_JOINER:
        if (args->npos || args->nkw) return template_fail(e, "a joiner takes no arguments");
        if (fn.cycler->at++) return *out = fn.cycler->items[0], true;
        return template_string_literal(e, "", out);
    case V_UNDEFINED: return template_value_undefined_fail(e, fn);
    default: return template_fail(e, "a value of type '%s' cannot be called", template_value_type(fn));
    }
}

/* --- macros --- */

/* Takes a keyword out of args; V_MISSING when it is not there. */
static struct value take_keyword(struct args *args, struct str name)
{
    for (size_t i = 0; i < args->nkw; i++) {
        if (!str_eq(args->kw[i].name, name)) continue;
        struct value value = args->kw[i].value;
        memmove(&args->kw[i], &args->kw[i + 1], (args->nkw - i - 1) * sizeof *args->kw);
        args->nkw--;
        return value;
    }
    return value_of(V_MISSING);
}

static bool bind_special(struct eval *e, const char *name, struct scope *scope, struct value value)
{
    const struct name *interned = template_name_find(e->t, str_of(name));
    return !interned || template_scope_set(e, scope, interned, value);
}

static bool bind_rest(struct eval *e, const struct tmacro *macro, struct args *args, size_t taken,
                      bool has_caller, struct scope *scope)
{
    const struct node *node = macro->node;
    struct value v;
    if (node->flag && !has_caller) {
        v = take_keyword(args, STR("caller"));
        if ((v.kind == V_MISSING || v.kind == V_NONE) &&
            !template_value_undefined_hint(e, "the macro was called without a caller", &v))
            return false;
        if (!bind_special(e, "caller", scope, v)) return false;
    }
    if (node->uses_kwargs) {
        struct tdict *dict = template_dict_new(e, args->nkw);
        if (!dict) return false;
        for (size_t i = 0; i < args->nkw; i++)
            if (!template_string_new(e, args->kw[i].name, args->kw[i].trusted, &v) ||
                !template_dict_set(e, dict, v, args->kw[i].value))
                return false;
        if (!bind_special(e, "kwargs", scope, (struct value){.kind = V_DICT, .dict = dict})) return false;
    } else if (args->nkw) {
        return template_fail(e, "the macro '" STR_FMT "' has no argument named '" STR_FMT "'",
                             STR_ARG(macro->name), STR_ARG(args->kw[0].name));
    }
    size_t more = args->npos - taken;
    if (node->uses_varargs)
        return template_list_value(e, V_TUPLE, args->pos + taken, more, &v) &&
               bind_special(e, "varargs", scope, v);
    if (more)
        return template_fail(e, "the macro '" STR_FMT "' takes at most %zu arguments, but %zu were given",
                             STR_ARG(macro->name), taken, args->npos);
    return true;
}

static bool run_macro(struct eval *e, const struct tmacro *macro, struct args *args, struct scope *scope,
                      struct value *out)
{
    size_t taken = 0;
    bool has_caller = false;
    for (const struct node *param = macro->node->args; param; param = param->next) {
        bool positional = taken < args->npos;
        struct value v = positional ? args->pos[taken++] : take_keyword(args, param->name->text);
        has_caller |= str_is(param->name->text, "caller");
        if (!template_charge(e, 0) || !template_scope_set(e, scope, param->name, v)) return false;
    }
    if (!bind_rest(e, macro, args, taken, has_caller, scope)) return false;
    struct scope *outer = e->scope;
    e->scope = scope;
    for (const struct node *param = macro->node->args; param; param = param->next) {
        struct binding *b = scope->first;
        while (b->name != param->name) b = b->next;
        if (b->value.kind != V_MISSING) continue;
        struct value v;
        if (param->a) {
            if (!template_eval(e, param->a, &v)) return false;
        } else {
            char *hint = arena_printf(&e->arena,
                                      "the parameter '" STR_FMT "' of the macro '" STR_FMT "' was not given",
                                      STR_ARG(param->name->text), STR_ARG(macro->name));
            if (!hint) return template_fail_memory(e);
            if (!template_value_undefined_hint(e, hint, &v)) return false;
        }
        b->value = v;
    }
    e->scope = outer;
    return template_exec_captured(e, macro->node->body, scope, out) != FLOW_ERROR;
}

bool template_call_macro(struct eval *e, const struct tmacro *macro, struct args *args, struct value *out)
{
    struct scope *scope = template_scope(e, macro->scope, macro->node->hidden);
    if (!scope || !template_enter(e)) return false;
    bool ok = run_macro(e, macro, args, scope, out);
    template_leave(e);
    return ok;
}

/* --- global functions --- */

enum { MAX_RANGE = 100000 }; /* jinja2's sandbox has the same */

static bool global_range(struct eval *e, struct call *call, struct value *out)
{
    int64_t a, b = 0, step = 1;
    if (!template_ops_index(e, call->p[0], "an argument of range", &a)) return false;
    if (call->p[1].kind == V_MISSING)
        b = a, a = 0;
    else if (!template_ops_index(e, call->p[1], "an argument of range", &b))
        return false;
    if (call->p[2].kind != V_MISSING && !template_ops_index(e, call->p[2], "an argument of range", &step))
        return false;
    if (!step) return template_fail(e, "the step of range cannot be 0");
    __int128 n =
        step > 0 ? ((__int128)b - a + step - 1) / step : ((__int128)a - b - step - 1) / -(__int128)step;
    if ((step > 0 && b <= a) || (step < 0 && b >= a)) n = 0;
    if (n > MAX_RANGE) return template_fail(e, "a range may have at most %d numbers", MAX_RANGE);
    struct trange *r = TEMPLATE_NEW(e, struct trange);
    if (!r) return false;
    *r = (struct trange){a, b, step, (int64_t)n};
    *out = (struct value){.kind = V_RANGE, .range = r};
    return true;
}

static bool add_pairs(struct eval *e, struct tdict *dict, struct value source)
{
    struct tlist *pairs, *pair;
    if (source.kind == V_DICT) {
        for (size_t i = 0; i < source.dict->n; i++)
            if (!template_dict_set(e, dict, source.dict->entries[i].key, source.dict->entries[i].value))
                return false;
        return true;
    }
    if (!template_value_elements(e, source, &pairs)) return false;
    for (size_t i = 0; i < pairs->n; i++) {
        if (!template_value_elements(e, pairs->items[i], &pair)) return false;
        if (pair->n != 2)
            return template_fail(e, "a dict is made from pairs, but an element has %zu values", pair->n);
        if (!template_dict_set(e, dict, pair->items[0], pair->items[1])) return false;
    }
    return true;
}

/* dict(mapping or pairs, name=value...) */
static struct tdict *make_dict(struct eval *e, struct call *call)
{
    struct args *args = &call->args;
    struct tdict *dict = template_dict_new(e, args->nkw);
    if (!dict) return NULL;
    if (args->npos > 1)
        return template_fail(e, "%s takes at most 1 positional argument", call->callable->name), NULL;
    if (args->npos && !add_pairs(e, dict, args->pos[0])) return NULL;
    for (size_t i = 0; i < args->nkw; i++) {
        struct value key;
        if (!template_string_new(e, args->kw[i].name, args->kw[i].trusted, &key) ||
            !template_dict_set(e, dict, key, args->kw[i].value))
            return NULL;
    }
    return dict;
}

static bool global_dict(struct eval *e, struct call *call, struct value *out)
{
    struct tdict *dict = make_dict(e, call);
    *out = (struct value){.kind = V_DICT, .dict = dict};
    return dict != NULL;
}

static bool global_namespace(struct eval *e, struct call *call, struct value *out)
{
    struct tdict *dict = make_dict(e, call);
    if (!dict) return false;
    for (size_t i = 0; i < dict->n; i++)
        if (dict->entries[i].key.kind == V_STRING && str_starts(value_str(dict->entries[i].key), STR("_")))
            return template_fail(e, "an attribute of a namespace cannot begin with '_'");
    *out = (struct value){.kind = V_NAMESPACE, .dict = dict};
    return true;
}

static bool global_cycler(struct eval *e, struct call *call, struct value *out)
{
    struct tcycler *cycler = TEMPLATE_NEW(e, struct tcycler);
    if (!cycler) return false;
    if (!call->args.npos || call->args.nkw)
        return template_fail(e, "cycler needs at least one value, and no keywords");
    *cycler = (struct tcycler){.items = call->args.pos, .n = call->args.npos};
    *out = (struct value){.kind = V_CYCLER, .cycler = cycler};
    return true;
}

static bool global_joiner(struct eval *e, struct call *call, struct value *out)
{
    struct tcycler *joiner = TEMPLATE_NEW(e, struct tcycler);
    if (!joiner || !(joiner->items = template_array(e, 1, sizeof *joiner->items))) return false;
    joiner->n = 1;
    joiner->items[0] = call->p[0];
    if (call->p[0].kind == V_MISSING && !template_string_literal(e, ", ", &joiner->items[0])) return false;
    *out = (struct value){.kind = V_JOINER, .cycler = joiner};
    return true;
}

static bool global_raise(struct eval *e, struct call *call, struct value *out)
{
    struct value text;
    (void)out;
    return template_str(e, call->p[0], &text) &&
           template_fail(e, STR_FMT, (int)ROSE_MIN(text.string->n, 400), text.string->p);
}

static bool global_strftime(struct eval *e, struct call *call, struct value *out)
{
    if (call->p[0].kind != V_STRING) return template_fail(e, "strftime_now needs a format string");
    return template_format_time(e, call->p[0].string, out);
}

const struct callable *template_global(struct str name)
{
    static const struct callable table[] = {
        {"range", global_range, "start stop step", 1},
        {"dict", global_dict, NULL, 0},
        {"namespace", global_namespace, NULL, 0},
        {"cycler", global_cycler, NULL, 0},
        {"joiner", global_joiner, "sep", 0},
        {"raise_exception", global_raise, "message", 1},
        {"strftime_now", global_strftime, "format", 1},
    };
    return template_callable_find(table, ROSE_COUNT(table), name);
}
