/* Tests: what may follow `is`, and what select and reject take by name. */
#include "tokenizer/template_internal.h"
#include "tokenizer/template_strings.h"

#define TEST_FN(name) static bool name(struct eval *e, struct call *c, struct value *out)

static bool yes(struct value *out, bool b)
{
    return *out = value_bool(b), true;
}

TEST_FN(test_defined)
{
    (void)e;
    return yes(out, c->self.kind != V_UNDEFINED);
}
TEST_FN(test_undefined)
{
    (void)e;
    return yes(out, c->self.kind == V_UNDEFINED);
}
TEST_FN(test_none)
{
    (void)e;
    return yes(out, c->self.kind == V_NONE);
}
TEST_FN(test_boolean)
{
    (void)e;
    return yes(out, c->self.kind == V_BOOL);
}
TEST_FN(test_true)
{
    (void)e;
    return yes(out, c->self.kind == V_BOOL && c->self.boolean);
}
TEST_FN(test_false)
{
    (void)e;
    return yes(out, c->self.kind == V_BOOL && !c->self.boolean);
}
TEST_FN(test_integer)
{
    (void)e;
    return yes(out, c->self.kind == V_INT);
}
TEST_FN(test_float)
{
    (void)e;
    return yes(out, c->self.kind == V_FLOAT);
}
TEST_FN(test_number)
{
    (void)e;
    return yes(out, value_is_number(c->self));
}
TEST_FN(test_string)
{
    (void)e;
    return yes(out, c->self.kind == V_STRING);
}
TEST_FN(test_mapping)
{
    (void)e;
    return yes(out, c->self.kind == V_DICT);
}
TEST_FN(test_iterable)
{
    (void)e;
    return yes(out, template_value_is_iterable(c->self));
}
TEST_FN(test_escaped)
{
    (void)e;
    return yes(out, c->self.kind == V_STRING && c->self.string->markup);
}

TEST_FN(test_sequence)
{
    (void)e;
    enum value_kind k = c->self.kind;
    return yes(out, k == V_STRING || k == V_LIST || k == V_TUPLE || k == V_DICT || k == V_RANGE ||
                        k == V_UNDEFINED);
}

TEST_FN(test_callable)
{
    (void)e;
    enum value_kind k = c->self.kind;
    return yes(out, k == V_MACRO || k == V_BUILTIN || k == V_METHOD || k == V_JOINER || k == V_LOOP ||
                        k == V_UNDEFINED);
}

static bool cased(struct eval *e, struct call *c, bool upper, struct value *out)
{
    struct value text;
    if (!template_str(e, c->self, &text) || !template_charge(e, text.string->n)) return false;
    return yes(out, template_strings_is_case(value_str(text), upper));
}
TEST_FN(test_lower)
{
    return cased(e, c, false, out);
}
TEST_FN(test_upper)
{
    return cased(e, c, true, out);
}

static bool remainder_is(struct eval *e, struct value a, struct value b, double want, struct value *out)
{
    struct value r;
    if (!template_ops_binary(e, T_MOD, a, b, &r)) return false;
    return yes(out, value_is_number(r) && value_number(r) == want);
}
TEST_FN(test_odd)
{
    return remainder_is(e, c->self, value_int(2), 1, out);
}
TEST_FN(test_even)
{
    return remainder_is(e, c->self, value_int(2), 0, out);
}
TEST_FN(test_divisibleby)
{
    return remainder_is(e, c->self, c->p[0], 0, out);
}

TEST_FN(test_in)
{
    bool in;
    return template_value_contains(e, c->p[0], c->self, &in) && yes(out, in);
}

TEST_FN(test_eq)
{
    bool equal;
    return template_value_equal(e, c->self, c->p[0], &equal) && yes(out, equal);
}

TEST_FN(test_ne)
{
    bool equal;
    return template_value_equal(e, c->self, c->p[0], &equal) && yes(out, !equal);
}

static bool order(struct eval *e, struct call *c, enum token_type op, struct value *out)
{
    bool result;
    return template_value_compare(e, op, c->self, c->p[0], &result) && yes(out, result);
}
TEST_FN(test_lt)
{
    return order(e, c, T_LT, out);
}
TEST_FN(test_le)
{
    return order(e, c, T_LE, out);
}
TEST_FN(test_gt)
{
    return order(e, c, T_GT, out);
}
TEST_FN(test_ge)
{
    return order(e, c, T_GE, out);
}

/* Identity: of constants by value, of containers by place. */
TEST_FN(test_sameas)
{
    struct value a = c->self, b = c->p[0];
    bool same = a.kind == b.kind;
    switch (same ? a.kind : V_NONE) {
    case V_NONE: break;
    case V_STRING:
    case V_INT:
    case V_FLOAT:
    case V_BOOL: return template_value_equal(e, a, b, &same) && yes(out, same);
    default: same = a.list == b.list; break;
    }
    return yes(out, same);
}

TEST_FN(test_filter)
{
    (void)e;
    return yes(out, c->self.kind == V_STRING && template_filter(value_str(c->self)));
}
TEST_FN(test_test)
{
    (void)e;
    return yes(out, c->self.kind == V_STRING && template_test(value_str(c->self)));
}

const struct callable *template_test(struct str name)
{
    static const struct callable table[] = {
        {"defined", test_defined, "", 0},
        {"undefined", test_undefined, "", 0},
        {"none", test_none, "", 0},
        {"string", test_string, "", 0},
        {"mapping", test_mapping, "", 0},
        {"iterable", test_iterable, "", 0},
        {"sequence", test_sequence, "", 0},
        {"number", test_number, "", 0},
        {"integer", test_integer, "", 0},
        {"float", test_float, "", 0},
        {"boolean", test_boolean, "", 0},
        {"true", test_true, "", 0},
        {"false", test_false, "", 0},
        {"callable", test_callable, "", 0},
        {"escaped", test_escaped, "", 0},
        {"lower", test_lower, "", 0},
        {"upper", test_upper, "", 0},
        {"odd", test_odd, "", 0},
        {"even", test_even, "", 0},
        {"divisibleby", test_divisibleby, "num", 1},
        {"in", test_in, "seq", 1},
        {"sameas", test_sameas, "other", 1},
        {"==", test_eq, "other", 1},
        {"eq", test_eq, "other", 1},
        {"equalto", test_eq, "other", 1},
        {"!=", test_ne, "other", 1},
        {"ne", test_ne, "other", 1},
        {"<", test_lt, "other", 1},
        {"lt", test_lt, "other", 1},
        {"lessthan", test_lt, "other", 1},
        {"<=", test_le, "other", 1},
        {"le", test_le, "other", 1},
        {">", test_gt, "other", 1},
        {"gt", test_gt, "other", 1},
        {"greaterthan", test_gt, "other", 1},
        {">=", test_ge, "other", 1},
        {"ge", test_ge, "other", 1},
        {"filter", test_filter, "", 0},
        {"test", test_test, "", 0},
    };
    return template_callable_find(table, ROSE_COUNT(table), name);
}
