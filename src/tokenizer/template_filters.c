/* Filters on sequences, dicts and numbers; the ones on text are in template_text.c. */
#include "tokenizer/template_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/template_strings.h"

#define FILTER(name) static bool name(struct eval *e, struct call *c, struct value *out)

static bool given(struct value v)
{
    return v.kind != V_MISSING && v.kind != V_NONE;
}
static bool flag(struct value v)
{
    return v.kind != V_MISSING && template_value_truth(v);
}

/* --- attribute paths: "a.b.0" or 3 --- */

/* One step of the path; digits are an index. */
static bool path_step(struct eval *e, struct value item, const struct tstring *path, size_t begin, size_t end,
                      struct value *out)
{
    struct value key;
    bool digits = end > begin, overflow = false;
    for (size_t at = begin; digits && at < end;)
        digits = template_unicode_digit(template_unicode_next((struct str){path->p, end}, &at));
    int64_t index;
    if (digits && template_read_int((struct str){path->p + begin, end - begin}, 10, &index, &overflow))
        return template_ops_getitem(e, item, value_int(index), out);
    return template_string_slice(e, path, begin, end, &key) && template_ops_getitem(e, item, key, out);
}

static bool path_range(struct eval *e, struct value item, const struct tstring *path, size_t begin,
                       size_t end, struct value fallback, struct value *out)
{
    for (size_t at = begin;; at++) {
        size_t dot = at;
        while (dot < end && path->p[dot] != '.') dot++;
        if (!template_charge(e, dot - at) || !path_step(e, item, path, at, dot, &item)) return false;
        if (item.kind == V_UNDEFINED && given(fallback)) item = fallback;
        if ((at = dot) == end) break;
    }
    *out = item;
    return true;
}

/* item after the path; undefined becomes fallback if that is given. */
static bool attribute(struct eval *e, struct value item, struct value path, struct value fallback,
                      struct value *out)
{
    if (!given(path)) return *out = item, true;
    if (path.kind == V_STRING) return path_range(e, item, path.string, 0, path.string->n, fallback, out);
    if (!template_ops_getitem(e, item, path, out)) return false;
    if (out->kind == V_UNDEFINED && given(fallback)) *out = fallback;
    return true;
}

static bool fold(struct eval *e, struct value v, bool case_sensitive, struct value *out)
{
    *out = v;
    return case_sensitive || v.kind != V_STRING || template_strings_case(e, v.string, CASE_LOWER, out);
}

static bool sort_key(struct eval *e, struct value item, struct value path, bool case_sensitive,
                     struct value *out)
{
    return attribute(e, item, path, value_of(V_MISSING), out) && fold(e, *out, case_sensitive, out);
}

/* --- order --- */

static bool copy_list(struct eval *e, struct value v, struct tlist **out)
{
    struct tlist *list;
    if (!template_value_elements(e, v, &list) || !(*out = template_list_new(e, list->n))) return false;
    if (list->n) memcpy((*out)->items, list->items, list->n * sizeof *list->items);
    return true;
}

/* The keys of an attribute list "a,b": a tuple of each. */
static bool multi_key(struct eval *e, struct value item, struct value path, bool case_sensitive,
                      struct value *out)
{
    size_t n = 1, begin = 0;
    if (path.kind != V_STRING) return sort_key(e, item, path, case_sensitive, out);
    for (size_t i = 0; i < path.string->n; i++) n += path.string->p[i] == ',';
    struct tlist *keys = template_list_new(e, n);
    if (!keys) return false;
    for (size_t i = 0; i < n; i++) {
        size_t end = begin;
        while (end < path.string->n && path.string->p[end] != ',') end++;
        if (!path_range(e, item, path.string, begin, end, value_of(V_MISSING), &keys->items[i])) return false;
        if (!fold(e, keys->items[i], case_sensitive, &keys->items[i])) return false;
        begin = end + 1;
    }
    *out = (struct value){.kind = V_LIST, .list = keys};
    return true;
}

FILTER(filter_sort)
{
    struct tlist *list;
    if (!copy_list(e, c->self, &list)) return false;
    struct value *keys = template_array(e, list->n, sizeof *keys);
    if (!keys) return false;
    for (size_t i = 0; i < list->n; i++)
        if (!multi_key(e, list->items[i], c->p[2], flag(c->p[1]), &keys[i])) return false;
    *out = (struct value){.kind = V_LIST, .list = list};
    return template_value_sort(e, list->items, keys, list->n, flag(c->p[0]));
}

FILTER(filter_dictsort)
{
    bool by_value = false;
    if (c->self.kind != V_DICT)
        return template_fail(e, "dictsort needs a dict, not a value of type '%s'",
                             template_value_type(c->self));
    if (c->p[1].kind != V_MISSING) {
        if (c->p[1].kind != V_STRING ||
            !(str_is(value_str(c->p[1]), "key") || str_is(value_str(c->p[1]), "value")))
            return template_fail(e, "dictsort sorts by 'key' or 'value'");
        by_value = str_is(value_str(c->p[1]), "value");
    }
    const struct tdict *dict = c->self.dict;
    struct tlist *list = template_list_new(e, dict->n);
    struct value *keys = template_array(e, dict->n, sizeof *keys);
    if (!list || !keys) return false;
    for (size_t i = 0; i < dict->n; i++) {
        struct tlist *pair = template_list_new(e, 2);
        if (!pair) return false;
        pair->items[0] = dict->entries[i].key;
        pair->items[1] = dict->entries[i].value;
        list->items[i] = (struct value){.kind = V_TUPLE, .list = pair};
        if (!fold(e, pair->items[by_value], flag(c->p[0]), &keys[i])) return false;
    }
    *out = (struct value){.kind = V_LIST, .list = list};
    return template_value_sort(e, list->items, keys, list->n, flag(c->p[2]));
}

/* Filters that are generators in Python fill *out as far as they get; see template_iterator_lazy. */
typedef bool lazy_fn(struct eval *e, struct call *c, struct tlist **out);

static bool lazily(struct eval *e, struct call *c, lazy_fn *fn, struct value *out)
{
    uint32_t depth = e->depth;
    struct tlist *list = NULL;
    bool ok = fn(e, c, &list);
    return template_iterator_lazy(e, ok, list, depth, out);
}

/* The elements of the operand, and an empty list with room for as many in *out. */
static bool lazy_elements(struct eval *e, struct call *c, struct tlist **list, struct tlist **out)
{
    if (!template_value_elements(e, c->self, list) || !(*out = template_list_new(e, (*list)->n)))
        return false;
    (*out)->n = 0;
    return true;
}

static bool unique(struct eval *e, struct call *c, struct tlist **out)
{
    struct tlist *list, *result;
    if (!lazy_elements(e, c, &list, out)) return false;
    result = *out;
    struct tdict *seen = template_dict_new(e, 0);
    if (!seen) return false;
    for (size_t i = 0; i < list->n; i++) {
        struct value key, *found;
        if (!sort_key(e, list->items[i], c->p[1], flag(c->p[0]), &key) ||
            !template_dict_get(e, seen, key, &found))
            return false;
        if (found) continue;
        if (!template_dict_set(e, seen, key, key)) return false;
        result->items[result->n++] = list->items[i];
    }
    return true;
}
FILTER(filter_unique)
{
    return lazily(e, c, unique, out);
}

static bool extreme(struct eval *e, struct call *c, enum token_type op, struct value *out)
{
    struct tlist *list;
    struct value best = value_of(V_MISSING);
    if (!template_value_elements(e, c->self, &list)) return false;
    if (!list->n)
        return template_value_undefined_hint(e, "the sequence was empty, so it has no min or max", out);
    for (size_t i = 0; i < list->n; i++) {
        struct value key;
        bool better = i == 0;
        if (!sort_key(e, list->items[i], c->p[1], flag(c->p[0]), &key)) return false;
        if (i && !template_value_compare(e, op, key, best, &better)) return false;
        if (better) best = key, *out = list->items[i];
    }
    return true;
}
FILTER(filter_min)
{
    return extreme(e, c, T_LT, out);
}
FILTER(filter_max)
{
    return extreme(e, c, T_GT, out);
}

FILTER(filter_groupby)
{
    struct tlist *list, *groups;
    if (!copy_list(e, c->self, &list) || !(groups = template_list_new(e, list->n))) return false;
    struct value *keys = template_array(e, list->n, sizeof *keys);
    if (!keys) return false;
    for (size_t i = 0; i < list->n; i++)
        if (!attribute(e, list->items[i], c->p[0], c->p[1], &keys[i]) ||
            !fold(e, keys[i], flag(c->p[2]), &keys[i]))
            return false;
    if (!template_value_sort(e, list->items, keys, list->n, false)) return false;
    groups->n = 0;
    for (size_t begin = 0, end; begin < list->n; begin = end) {
        bool same = true;
        for (end = begin + 1; end < list->n; end++) {
            if (!template_value_equal(e, keys[begin], keys[end], &same)) return false;
            if (!same) break;
        }
        struct tlist *pair = template_list_new(e, 2);
        if (!pair || !attribute(e, list->items[begin], c->p[0], c->p[1], &pair->items[0])) return false;
        if (!template_list_value(e, V_LIST, list->items + begin, end - begin, &pair->items[1])) return false;
        pair->grouped = true;
        groups->items[groups->n++] = (struct value){.kind = V_TUPLE, .list = pair};
    }
    *out = (struct value){.kind = V_LIST, .list = groups};
    return true;
}

FILTER(filter_reverse)
{
    struct tlist *list;
    if (c->self.kind == V_STRING)
        return template_ops_slice(e, c->self, value_of(V_NONE), value_of(V_NONE), value_int(-1), out);
    if (!copy_list(e, c->self, &list)) return false;
    for (size_t i = 0; i < list->n / 2; i++) {
        struct value swap = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = swap;
    }
    if (c->self.kind == V_ITERATOR || c->self.kind == V_UNDEFINED)
        return *out = (struct value){.kind = V_LIST, .list = list}, true;
    return template_iterator(e, list, "list_reverseiterator", out);
}

/* --- picking and mapping --- */

/* The name in args->pos[at] and the arguments behind it. */
static bool named(struct eval *e, struct call *c, size_t at, const struct callable *(*find)(struct str),
                  const char *what, const struct callable **out, struct args *rest)
{
    struct value name = c->args.pos[at];
    if (name.kind != V_STRING) return template_fail(e, "%s needs the name of a %s", c->callable->name, what);
    if (!(*out = find(value_str(name))))
        return template_fail(e, "there is no %s named '%.*s'", what, (int)ROSE_MIN(name.string->n, 100),
                             name.string->p);
    *rest = c->args;
    rest->pos += at + 1;
    rest->npos -= at + 1;
    return true;
}

static bool map(struct eval *e, struct call *c, struct tlist **out)
{
    struct tlist *list, *result;
    const struct callable *filter = NULL;
    struct args rest;
    struct value path = value_of(V_MISSING), fallback = value_of(V_MISSING);
    if (!template_value_truth(c->self)) return (*out = template_list_new(e, 0)) != NULL;
    for (size_t i = 0; !c->args.npos && i < c->args.nkw; i++) {
        bool is_path = str_is(c->args.kw[i].name, "attribute");
        if (!is_path && !str_is(c->args.kw[i].name, "default"))
            return template_fail(e, "map has no argument named '" STR_FMT "'", STR_ARG(c->args.kw[i].name));
        *(is_path ? &path : &fallback) = c->args.kw[i].value;
    }
    if (path.kind == V_MISSING && !c->args.npos)
        return template_fail(e, "map needs a filter or an attribute");
    if (!lazy_elements(e, c, &list, out)) return false;
    if (c->args.npos && !named(e, c, 0, template_filter, "filter", &filter, &rest)) return false;
    result = *out;
    for (size_t i = 0; i < list->n; i++, result->n++) {
        if (!template_charge(e, 0)) return false;
        if (!(filter ? template_call_bound(e, filter, list->items[i], &rest, &result->items[i])
                     : attribute(e, list->items[i], path, fallback, &result->items[i])))
            return false;
    }
    return true;
}
FILTER(filter_map)
{
    return lazily(e, c, map, out);
}

static bool pick(struct eval *e, struct call *c, bool keep, bool by_attribute, struct tlist **out)
{
    struct tlist *list, *result;
    const struct callable *test = NULL;
    struct args rest;
    size_t at = by_attribute;
    if (!template_value_truth(c->self)) return (*out = template_list_new(e, 0)) != NULL;
    if (by_attribute && !c->args.npos)
        return template_fail(e, "%s needs the name of an attribute", c->callable->name);
    if (!lazy_elements(e, c, &list, out)) return false;
    if (list->n && c->args.npos > at && !named(e, c, at, template_test, "test", &test, &rest)) return false;
    result = *out;
    for (size_t i = 0; i < list->n; i++) {
        struct value v = list->items[i];
        if (by_attribute && !attribute(e, v, c->args.pos[0], value_of(V_MISSING), &v)) return false;
        if (test && !template_call_bound(e, test, v, &rest, &v)) return false;
        if (!template_charge(e, 0)) return false;
        if (template_value_truth(v) == keep) result->items[result->n++] = list->items[i];
    }
    return true;
}
static bool select_(struct eval *e, struct call *c, struct tlist **out)
{
    return pick(e, c, true, false, out);
}
FILTER(filter_select)
{
    return lazily(e, c, select_, out);
}
static bool reject(struct eval *e, struct call *c, struct tlist **out)
{
    return pick(e, c, false, false, out);
}
FILTER(filter_reject)
{
    return lazily(e, c, reject, out);
}
static bool selectattr(struct eval *e, struct call *c, struct tlist **out)
{
    return pick(e, c, true, true, out);
}
FILTER(filter_selectattr)
{
    return lazily(e, c, selectattr, out);
}
static bool rejectattr(struct eval *e, struct call *c, struct tlist **out)
{
    return pick(e, c, false, true, out);
}
FILTER(filter_rejectattr)
{
    return lazily(e, c, rejectattr, out);
}

FILTER(filter_first)
{
    struct titer *iter;
    if (!template_value_iter(e, c->self, &iter)) return false;
    if (iter->at == iter->list->n && !template_value_iter_end(e, iter)) return false;
    if (iter->at == iter->list->n)
        return template_value_undefined_hint(e, "the sequence was empty, so it has no first item", out);
    *out = iter->list->items[iter->at++];
    return true;
}

FILTER(filter_last)
{
    struct tlist *list;
    if (c->self.kind == V_ITERATOR)
        return template_fail(e, "last needs a sequence, not a value of type '%s'",
                             template_value_type(c->self));
    if (!template_value_elements(e, c->self, &list)) return false;
    if (!list->n)
        return template_value_undefined_hint(e, "the sequence was empty, so it has no last item", out);
    *out = list->items[list->n - 1];
    return true;
}

FILTER(filter_length)
{
    int64_t n;
    if (!template_value_length(e, c->self, &n)) return false;
    *out = value_int(n);
    return true;
}

FILTER(filter_list)
{
    struct tlist *list;
    if (!copy_list(e, c->self, &list)) return false;
    *out = (struct value){.kind = V_LIST, .list = list};
    return true;
}

static bool items(struct eval *e, struct call *c, struct tlist **out)
{
    struct args none = {0};
    struct value view;
    if (c->self.kind == V_UNDEFINED) return (*out = template_list_new(e, 0)) != NULL;
    if (c->self.kind != V_DICT)
        return template_fail(e, "items needs a dict, not a value of type '%s'", template_value_type(c->self));
    if (!template_call_bound(e, template_method(c->self, STR("items")), c->self, &none, &view)) return false;
    *out = view.list;
    return true;
}
FILTER(filter_items)
{
    return lazily(e, c, items, out);
}

/* Lists of n elements, the last one filled up. */
static bool batch(struct eval *e, struct call *c, struct tlist **out)
{
    int64_t n;
    struct tlist *list, *result;
    if (!template_ops_index(e, c->p[0], "the size of a batch", &n) ||
        !template_value_elements(e, c->self, &list))
        return false;
    if (n < 1) n = 0;
    size_t size = n && (size_t)n < list->n ? (size_t)n : list->n, count = 0;
    if (!(result = template_list_new(e, size ? (list->n + size - 1) / size : 0))) return false;
    for (size_t begin = 0; begin < list->n; begin += size) {
        size_t have = ROSE_MIN(size, list->n - begin),
               want = given(c->p[1]) && n && have < (size_t)n ? (size_t)n : have;
        if (want > have && want > 1u << 24) return template_fail_memory(e);
        struct tlist *part = template_list_new(e, want);
        if (!part) return false;
        for (size_t i = 0; i < want; i++) part->items[i] = i < have ? list->items[begin + i] : c->p[1];
        result->items[count++] = (struct value){.kind = V_LIST, .list = part};
    }
    *out = result;
    return true;
}
FILTER(filter_batch)
{
    return lazily(e, c, batch, out);
}

/* n lists of about the same length. */
static bool slice(struct eval *e, struct call *c, struct tlist **out)
{
    int64_t n;
    struct tlist *list, *result;
    if (!template_ops_index(e, c->p[0], "the number of slices", &n) ||
        !template_value_elements(e, c->self, &list))
        return false;
    if (!n) return template_fail(e, "division by zero");
    if (n < 0) n = 0;
    if (n > 1 << 24) return template_fail_memory(e);
    if (!(result = template_list_new(e, (size_t)n))) return false;
    size_t each = n ? list->n / (size_t)n : 0, longer = n ? list->n % (size_t)n : 0, at = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t have = each + (i < longer), want = have + (given(c->p[1]) && i >= longer);
        struct tlist *part = template_list_new(e, want);
        if (!part) return false;
        for (size_t k = 0; k < want; k++) part->items[k] = k < have ? list->items[at + k] : c->p[1];
        result->items[i] = (struct value){.kind = V_LIST, .list = part};
        at += have;
    }
    *out = result;
    return true;
}
FILTER(filter_slice)
{
    return lazily(e, c, slice, out);
}

FILTER(filter_join)
{
    struct tlist *list;
    struct tbuild b = {0};
    struct value sep = c->p[0];
    if (sep.kind != V_MISSING && !template_str(e, sep, &sep)) return false;
    if (!template_value_elements(e, c->self, &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        struct value item = list->items[i];
        if (!template_charge(e, 0) || !attribute(e, item, c->p[1], value_of(V_MISSING), &item)) return false;
        if ((i && sep.kind != V_MISSING && !tbuild_string(e, &b, sep.string)) ||
            !template_str_add(e, &b, item))
            return false;
    }
    return tbuild_end(e, &b, out);
}

FILTER(filter_sum)
{
    struct tlist *list;
    struct value sum = c->p[1].kind == V_MISSING ? value_int(0) : c->p[1];
    if (sum.kind == V_STRING) return template_fail(e, "sum cannot add strings; use join");
    if (!template_value_elements(e, c->self, &list)) return false;
    for (size_t i = 0; i < list->n; i++) {
        struct value item;
        if (!template_charge(e, 0) || !attribute(e, list->items[i], c->p[0], value_of(V_MISSING), &item))
            return false;
        if (!template_ops_binary(e, T_ADD, sum, item, &sum)) return false;
    }
    *out = sum;
    return true;
}

FILTER(filter_default)
{
    (void)e;
    bool use = c->self.kind == V_UNDEFINED || (flag(c->p[1]) && !template_value_truth(c->self));
    *out = use ? c->p[0] : c->self;
    return out->kind != V_MISSING || template_string_literal(e, "", out);
}

FILTER(filter_attr)
{
    if (c->p[0].kind != V_STRING) return template_fail(e, "attr needs the name of an attribute");
    if (c->self.kind == V_DICT && !template_method(c->self, value_str(c->p[0])) &&
        !template_method_mutates(c->self, value_str(c->p[0])))
        return template_value_undefined(e, c->self, c->p[0], out); /* attributes only, no items */
    return template_ops_getattr(e, c->self, c->p[0], out);
}

/* --- numbers --- */

FILTER(filter_abs)
{
    if (c->self.kind == V_UNDEFINED) return template_value_undefined_fail(e, c->self);
    if (!value_is_number(c->self))
        return template_fail(e, "abs needs a number, not a value of type '%s'", template_value_type(c->self));
    if (c->self.kind == V_FLOAT) return *out = value_float(fabs(c->self.number)), true;
    int64_t i = value_integer(c->self);
    if (i == INT64_MIN) return template_fail(e, "an integer result does not fit 64 bits");
    *out = value_int(i < 0 ? -i : i);
    return true;
}

static bool int_of_float(struct eval *e, double d, struct value fallback, struct value *out)
{
    if (isnan(d) || isinf(d)) return *out = fallback, true;
    if (d >= 9223372036854775808.0 || d < -9223372036854775808.0)
        return template_fail(e, "int: the number does not fit 64 bits");
    *out = value_int((int64_t)d);
    return true;
}

FILTER(filter_int)
{
    struct value fallback = c->p[0].kind == V_MISSING ? value_int(0) : c->p[0];
    int64_t base = 10, i;
    bool overflow = false;
    double d;
    if (c->p[1].kind != V_MISSING && !template_ops_index(e, c->p[1], "the base of int", &base)) return false;
    if (c->self.kind == V_UNDEFINED) return template_value_undefined_fail(e, c->self);
    if (value_is_integral(c->self)) return *out = value_int(value_integer(c->self)), true;
    if (c->self.kind == V_FLOAT) return int_of_float(e, c->self.number, fallback, out);
    if (c->self.kind != V_STRING) return *out = fallback, true;
    if (!template_charge(e, c->self.string->n)) return false;
    if (template_read_int(value_str(c->self), base, &i, &overflow)) return *out = value_int(i), true;
    if (overflow) return template_fail(e, "int: the number does not fit 64 bits");
    if (template_read_float(value_str(c->self), &d)) return int_of_float(e, d, fallback, out);
    *out = fallback;
    return true;
}

FILTER(filter_float)
{
    double d;
    if (c->self.kind == V_UNDEFINED) return template_value_undefined_fail(e, c->self);
    *out = c->p[0].kind == V_MISSING ? value_float(0) : c->p[0];
    if (value_is_number(c->self))
        *out = value_float(value_number(c->self));
    else if (c->self.kind == V_STRING && template_charge(e, c->self.string->n) &&
             template_read_float(value_str(c->self), &d))
        *out = value_float(d);
    return e->status == ROSE_OK;
}

/* Rounds half to even on the decimal digits of the exact value, as Python does. */
static double round_digits(double d, int64_t digits)
{
    char text[700];
    if (!isfinite(d) || digits > 323) return d;
    if (digits < -308) return copysign(0, d);
    if (digits >= 0) {
        if (fabs(d) >= 1e22) return d;
        snprintf(text, sizeof text, "%.*f", (int)digits, d);
    } else {
        long double scale = powl(10, (long double)-digits);
        snprintf(text, sizeof text, "%.17Lg", nearbyintl((long double)d / scale) * scale);
    }
    double r;
    return str_to_f64(str_of(text), &r) ? r : strtod(text, NULL);
}

FILTER(filter_round)
{
    int64_t precision = 0;
    struct str method = STR("common");
    if (c->p[0].kind != V_MISSING && !template_ops_index(e, c->p[0], "the precision of round", &precision))
        return false;
    if (c->p[1].kind != V_MISSING) method = c->p[1].kind == V_STRING ? value_str(c->p[1]) : STR("");
    if (!str_is(method, "common") && !str_is(method, "ceil") && !str_is(method, "floor"))
        return template_fail(e, "the method of round must be 'common', 'ceil' or 'floor'");
    if (c->self.kind == V_UNDEFINED) return template_value_undefined_fail(e, c->self);
    if (!value_is_number(c->self))
        return template_fail(e, "round needs a number, not a value of type '%s'",
                             template_value_type(c->self));
    double d = value_number(c->self);
    if (str_is(method, "common")) {
        if (c->self.kind == V_FLOAT) return *out = value_float(round_digits(d, precision)), true;
        int64_t i = value_integer(c->self);
        if (precision >= 0) return *out = value_int(i), true;
        if (precision < -18) return *out = value_int(0), true;
        int64_t unit = 1;
        for (int64_t k = precision; k < 0; k++) unit *= 10;
        int64_t low = i % unit < 0 ? i % unit + unit : i % unit, down = i - low; /* down <= i */
        bool up = low > unit - low || (low == unit - low && (down / unit) % 2 != 0);
        if (up && __builtin_add_overflow(down, unit, &down))
            return template_fail(e, "an integer result does not fit 64 bits");
        *out = value_int(down);
        return true;
    }
    if (precision > 308 || precision < -308)
        return template_fail(e, "the precision of round is out of range");
    double scale = pow(10, (double)precision), scaled = d * scale;
    *out = value_float((str_is(method, "ceil") ? ceil(scaled) : floor(scaled)) / scale);
    return true;
}

const struct callable *template_filter(struct str name)
{
    static const struct callable table[] = {
        {"abs", filter_abs, "", 0},
        {"attr", filter_attr, "name", 1},
        {"batch", filter_batch, "linecount fill_with", 1},
        {"count", filter_length, "", 0},
        {"d", filter_default, "default_value boolean", 0},
        {"default", filter_default, "default_value boolean", 0},
        {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
        {"first", filter_first, "", 0},
        {"float", filter_float, "default", 0},
        {"groupby", filter_groupby, "attribute default case_sensitive", 1},
        {"int", filter_int, "default base", 0},
        {"items", filter_items, "", 0},
        {"join", filter_join, "d attribute", 0},
        {"last", filter_last, "", 0},
        {"length", filter_length, "", 0},
        {"list", filter_list, "", 0},
        {"map", filter_map, NULL, 0},
        {"max", filter_max, "case_sensitive attribute", 0},
        {"min", filter_min, "case_sensitive attribute", 0},
        {"reject", filter_reject, NULL, 0},
        {"rejectattr", filter_rejectattr, NULL, 0},
        {"reverse", filter_reverse, "", 0},
        {"round", filter_round, "precision method", 0},
        {"select", filter_select, NULL, 0},
        {"selectattr", filter_selectattr, NULL, 0},
        {"slice", filter_slice, "slices fill_with", 1},
        {"sort", filter_sort, "reverse case_sensitive attribute", 0},
        {"sum", filter_sum, "attribute start", 0},
        {"unique", filter_unique, "case_sensitive attribute", 0},
    };
    const struct callable *found = template_callable_find(table, ROSE_COUNT(table), name);
    return found ? found : template_text_filter(name);
}
