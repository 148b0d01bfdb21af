/* Operators, subscripts, slices and attributes with Python's meaning. */
#include "tokenizer/template_internal.h"

#include <math.h>

static const char *operator_text(enum token_type op)
{
    switch (op) {
    case T_ADD: return "+";
    case T_SUB: return "-";
    case T_MUL: return "*";
    case T_DIV: return "/";
    case T_FLOORDIV: return "//";
    case T_MOD: return "%";
    default: return "**";
    }
}

static bool overflow(struct eval *e)
{
    return template_fail(e, "an integer result does not fit 64 bits; use floats for such numbers");
}

static bool zero_division(struct eval *e)
{
    return template_fail(e, "division by zero");
}

static bool int_power(struct eval *e, int64_t base, int64_t exponent, struct value *out)
{
    if (exponent < 0) {
        if (!base) return template_fail(e, "0 cannot be raised to a negative power");
        *out = value_float(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    if (base == 0 || base == 1) return *out = value_int(exponent ? base : 1), true;
    if (base == -1) return *out = value_int(exponent % 2 ? -1 : 1), true;
    for (; exponent; exponent--)
        if (__builtin_mul_overflow(result, base, &result)) return overflow(e);
    *out = value_int(result);
    return true;
}

static int64_t floor_mod(int64_t a, int64_t b)
{
    if (b == -1) return 0;
    int64_t r = a % b;
    return r && (r < 0) != (b < 0) ? r + b : r;
}

static bool int_op(struct eval *e, enum token_type op, int64_t a, int64_t b, struct value *out)
{
    int64_t r = 0;
    switch (op) {
    case T_ADD:
        if (__builtin_add_overflow(a, b, &r)) return overflow(e);
        break;
    case T_SUB:
        if (__builtin_sub_overflow(a, b, &r)) return overflow(e);
        break;
    case T_MUL:
        if (__builtin_mul_overflow(a, b, &r)) return overflow(e);
        break;
    case T_DIV:
        if (!b) return zero_division(e);
        *out = value_float((double)((long double)a / (long double)b));
        return true;
    case T_FLOORDIV:
        if (!b) return zero_division(e);
        if (b == -1) {
            if (a == INT64_MIN) return overflow(e);
            r = -a;
        } else {
            r = (a - floor_mod(a, b)) / b;
        }
        break;
    case T_MOD:
        if (!b) return zero_division(e);
        r = floor_mod(a, b);
        break;
    default: return int_power(e, a, b, out);
    }
    *out = value_int(r);
    return true;
}

static double float_mod(double a, double b)
{
    double r = fmod(a, b);
    if (r != 0) return (r < 0) != (b < 0) ? r + b : r;
    return copysign(0, b);
}

static bool float_op(struct eval *e, enum token_type op, double a, double b, struct value *out)
{
    double r;
    if ((op == T_DIV || op == T_FLOORDIV || op == T_MOD) && b == 0) return zero_division(e);
    switch (op) {
    case T_ADD: r = a + b; break;
    case T_SUB: r = a - b; break;
    case T_MUL: r = a * b; break;
    case T_DIV: r = a / b; break;
    case T_FLOORDIV: {
        double div = (a - float_mod(a, b)) / b;
        r = div == 0 ? copysign(0, a / b) : floor(div);
        if (div - r > 0.5) r += 1;
        break;
    }
    case T_MOD: r = float_mod(a, b); break;
    default:
        if (a == 0 && b < 0) return template_fail(e, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b)
            return template_fail(e, "complex numbers are not supported");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b)) return template_fail(e, "the result of ** is too large");
        break;
    }
    *out = value_float(r);
    return true;
}

static bool repeat(struct eval *e, struct value v, int64_t times, struct value *out)
{
    if (times < 0) times = 0;
    if (v.kind == V_STRING) {
        struct tbuild b = {0};
        if (v.string->n && (uint64_t)times > SIZE_MAX / v.string->n) return template_fail_memory(e);
        if (!v.string->n) times = 0;
        for (int64_t i = 0; i < times; i++)
            if (!tbuild_string(e, &b, v.string)) return false;
        if (!tbuild_end(e, &b, out)) return false;
        out->string->markup = v.string->markup;
        return true;
    }
    size_t n;
    if (!size_mul(v.list->n, (size_t)times, &n)) return template_fail_memory(e);
    struct tlist *list = template_list_new(e, n);
    if (!list) return false;
    for (size_t i = 0; i < n; i++) list->items[i] = v.list->items[i % v.list->n];
    *out = (struct value){.kind = v.kind, .list = list};
    return true;
}

static bool is_sequence(struct value v)
{
    return v.kind == V_STRING || v.kind == V_LIST || v.kind == V_TUPLE;
}

static bool add_lists(struct eval *e, struct value a, struct value b, struct value *out)
{
    struct tlist *list = template_list_new(e, a.list->n + b.list->n);
    if (!list) return false;
    for (size_t i = 0; i < list->n; i++)
        list->items[i] = i < a.list->n ? a.list->items[i] : b.list->items[i - a.list->n];
    *out = (struct value){.kind = a.kind, .list = list};
    return true;
}

/* A marked string escapes what is added to it. */
static bool add_strings(struct eval *e, struct value a, struct value b, struct value *out)
{
    if (a.string->markup != b.string->markup) {
        struct tbuild escaped = {0};
        struct value *plain = a.string->markup ? &b : &a;
        if (!template_escape_add(e, &escaped, *plain) || !tbuild_end(e, &escaped, plain)) return false;
        if (!template_string_concat(e, a.string, b.string, out)) return false;
        out->string->markup = true;
        return true;
    }
    return template_string_concat(e, a.string, b.string, out);
}

bool template_ops_binary(struct eval *e, enum token_type op, struct value a, struct value b,
                         struct value *out)
{
    if (value_is_integral(a) && value_is_integral(b))
        return int_op(e, op, value_integer(a), value_integer(b), out);
    if (value_is_number(a) && value_is_number(b))
        return float_op(e, op, value_number(a), value_number(b), out);
    if (op == T_MOD && a.kind == V_STRING) return template_format_percent(e, a.string, b, out);
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED)
        return template_value_undefined_fail(e, a.kind == V_UNDEFINED ? a : b);
    if (op == T_ADD && a.kind == b.kind && a.kind == V_STRING) return add_strings(e, a, b, out);
    if (op == T_ADD && a.kind == b.kind && is_sequence(a)) return add_lists(e, a, b, out);
    if (op == T_MUL && is_sequence(a) && value_is_integral(b)) return repeat(e, a, value_integer(b), out);
    if (op == T_MUL && is_sequence(b) && value_is_integral(a)) return repeat(e, b, value_integer(a), out);
    return template_fail(e, "'%s' is not supported between '%s' and '%s'", operator_text(op),
                         template_value_type(a), template_value_type(b));
}

bool template_ops_index(struct eval *e, struct value v, const char *what, int64_t *out)
{
    if (v.kind == V_UNDEFINED) return template_value_undefined_fail(e, v);
    if (!value_is_integral(v))
        return template_fail(e, "%s must be an integer, not '%s'", what, template_value_type(v));
    *out = value_integer(v);
    return true;
}

/* --- slices: Python's rules for bounds --- */

static int64_t clamp_bound(int64_t i, int64_t n, int64_t step)
{
    if (i < 0) i = i < -n ? -1 : i + n;
    if (i < 0) return step < 0 ? -1 : 0;
    if (i >= n) return step < 0 ? n - 1 : n;
    return i;
}

static bool bound(struct eval *e, struct value v, int64_t none, int64_t n, int64_t step, int64_t *out)
{
    if (v.kind == V_NONE || v.kind == V_MISSING) return *out = none, true;
    if (!template_ops_index(e, v, "a slice's bound", out)) return false;
    *out = clamp_bound(*out, n, step);
    return true;
}

static bool slice_string(struct eval *e, const struct tstring *s, int64_t start, int64_t n, int64_t step,
                         struct value *out)
{
    if (step == 1) {
        size_t begin = template_string_offset(s, (size_t)start);
        size_t end = template_string_offset(s, (size_t)(start + n));
        return template_charge(e, s->chars == s->n ? 0 : s->n) &&
               template_string_slice(e, s, begin, end, out);
    }
    struct tlist *all;
    struct tbuild b = {0};
    if (!template_value_elements(e, value_string((struct tstring *)s), &all)) return false;
    for (int64_t i = 0; i < n; i++)
        if (!tbuild_string(e, &b, all->items[start + i * step].string)) return false;
    if (!tbuild_end(e, &b, out)) return false;
    out->string->markup = s->markup;
    return true;
}

bool template_ops_slice(struct eval *e, struct value v, struct value start, struct value stop,
                        struct value step, struct value *out)
{
    int64_t n, by = 1, from, to;
    if (v.kind == V_UNDEFINED) return template_value_undefined_fail(e, v);
    if (!is_sequence(v) && v.kind != V_RANGE)
        return template_fail(e, "a value of type '%s' cannot be sliced", template_value_type(v));
    if (!template_value_length(e, v, &n)) return false;
    if (step.kind != V_NONE && step.kind != V_MISSING && !template_ops_index(e, step, "a slice's step", &by))
        return false;
    if (!by) return template_fail(e, "a slice's step cannot be 0");
    if (by < -INT32_MAX) by = -INT32_MAX;
    if (by > INT32_MAX) by = INT32_MAX;
    if (!bound(e, start, by < 0 ? n - 1 : 0, n, by, &from) || !bound(e, stop, by < 0 ? -1 : n, n, by, &to))
        return false;
    int64_t count =
        by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (to < from ? (from - to - 1) / -by + 1 : 0);
    if (v.kind == V_STRING) return slice_string(e, v.string, from, count, by, out);
    if (v.kind == V_RANGE) {
        struct trange *r = TEMPLATE_NEW(e, struct trange);
        if (!r) return false;
        *r = (struct trange){v.range->start + from * v.range->step, v.range->start + to * v.range->step,
                             by * v.range->step, count};
        *out = (struct value){.kind = V_RANGE, .range = r};
        return true;
    }
    struct tlist *list = template_list_new(e, (size_t)count);
    if (!list) return false;
    for (int64_t i = 0; i < count; i++) list->items[i] = v.list->items[from + i * by];
    *out = (struct value){.kind = v.kind, .list = list};
    return true;
}

/* --- attributes and items --- */

static bool item_at(struct eval *e, struct value v, int64_t i, struct value *out)
{
    int64_t n;
    if (!template_value_length(e, v, &n)) return false;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return false;
    if (v.kind == V_RANGE) return *out = value_int(v.range->start + i * v.range->step), true;
    if (v.kind != V_STRING) return *out = v.list->items[i], true;
    size_t begin = template_string_offset(v.string, (size_t)i);
    return template_charge(e, v.string->chars == v.string->n ? 0 : v.string->n) &&
           template_string_slice(e, v.string, begin, template_string_offset(v.string, (size_t)i + 1), out);
}

/* v[key]; a missing item leaves *out V_MISSING. */
static bool find_item(struct eval *e, struct value v, struct value key, struct value *out)
{
    *out = value_of(V_MISSING);
    if (v.kind == V_UNDEFINED) return template_value_undefined_fail(e, v);
    if (v.kind == V_DICT) {
        struct value *found;
        if (key.kind == V_LIST || key.kind == V_DICT || key.kind == V_VIEW) return true;
        if (!template_dict_get(e, v.dict, key, &found)) return false;
        if (found) *out = *found;
    } else if ((is_sequence(v) || v.kind == V_RANGE) && value_is_integral(key)) {
        item_at(e, v, value_integer(key), out);
    }
    return e->status == ROSE_OK;
}

static bool bound_method(struct eval *e, struct value self, const struct callable *callable,
                         struct value *out)
{
    struct tmethod *method = TEMPLATE_NEW(e, struct tmethod);
    if (!method) return false;
    *method = (struct tmethod){callable, self};
    *out = (struct value){.kind = V_METHOD, .method = method};
    return true;
}

static bool macro_attr(struct eval *e, const struct tmacro *macro, struct str name, struct value *out)
{
    if (str_is(name, "name")) return template_string_new(e, macro->name, true, out);
    if (str_is(name, "catch_kwargs")) return *out = value_bool(macro->node->uses_kwargs), true;
    if (str_is(name, "catch_varargs")) return *out = value_bool(macro->node->uses_varargs), true;
    if (str_is(name, "caller")) return *out = value_bool(macro->node->flag), true;
    if (!str_is(name, "arguments")) return true;
    size_t n = 0;
    for (const struct node *param = macro->node->args; param; param = param->next) n++;
    struct tlist *list = template_list_new(e, n);
    if (!list) return false;
    n = 0;
    for (const struct node *param = macro->node->args; param; param = param->next)
        if (!template_string_new(e, param->name->text, true, &list->items[n++])) return false;
    *out = (struct value){.kind = V_TUPLE, .list = list};
    return true;
}

/* v.name as Python has it, before items are looked at; V_MISSING when there is none. */
static bool find_attr(struct eval *e, struct value v, struct value key, struct value *out)
{
    struct str name = value_str(key);
    *out = value_of(V_MISSING);
    if (v.kind == V_UNDEFINED) {
        if (str_starts(name, STR("__"))) return true;
        return template_value_undefined_fail(e, v);
    }
    if (v.kind == V_NAMESPACE) {
        struct value *found = template_dict_get_str(v.dict, name);
        if (found) *out = *found;
        return true;
    }
    if (v.kind == V_LOOP) return template_loop_attr(e, v.loop, name, out);
    if (v.kind == V_MACRO) return macro_attr(e, v.macro, name, out);
    if (v.kind == V_CYCLER && str_is(name, "current")) return *out = v.cycler->items[v.cycler->at], true;
    if (v.kind == V_TUPLE && v.list->grouped && str_is(name, "grouper")) return *out = v.list->items[0], true;
    if (v.kind == V_TUPLE && v.list->grouped && str_is(name, "list")) return *out = v.list->items[1], true;
    const struct callable *method = template_method(v, name);
    if (method) return bound_method(e, v, method, out);
    if (template_method_mutates(v, name))
        return template_value_undefined_hint(
            e,
            "methods that change a list or a dict are not allowed in chat templates; "
            "build a new one with + or keep it in a namespace",
            out);
    return true;
}

static bool missing(struct eval *e, struct value v, struct value key, struct value *out)
{
    return template_value_undefined(e, v, key, out);
}

bool template_ops_getattr(struct eval *e, struct value v, struct value name, struct value *out)
{
    if (!find_attr(e, v, name, out)) return false;
    if (out->kind == V_MISSING && !find_item(e, v, name, out)) return false;
    return out->kind != V_MISSING || missing(e, v, name, out);
}

bool template_ops_getitem(struct eval *e, struct value v, struct value key, struct value *out)
{
    if (!find_item(e, v, key, out)) return false;
    if (out->kind == V_MISSING && key.kind == V_STRING && !find_attr(e, v, key, out)) return false;
    return out->kind != V_MISSING || missing(e, v, key, out);
}
