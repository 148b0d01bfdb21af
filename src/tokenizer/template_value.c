/* Values: containers, truth, equality, order, membership, iteration, undefined. */
#include "tokenizer/template_internal.h"

#include <math.h>

#include "base/hash.h"

const char *template_value_type(struct value v)
{
    static const char *const names[] = {
        [V_MISSING] = "missing",  [V_UNDEFINED] = "Undefined",
        [V_NONE] = "NoneType",    [V_BOOL] = "bool",
        [V_INT] = "int",          [V_FLOAT] = "float",
        [V_STRING] = "str",       [V_LIST] = "list",
        [V_TUPLE] = "tuple",      [V_DICT] = "dict",
        [V_RANGE] = "range",      [V_NAMESPACE] = "Namespace",
        [V_LOOP] = "LoopContext", [V_MACRO] = "Macro",
        [V_BUILTIN] = "function", [V_METHOD] = "builtin_function_or_method",
        [V_CYCLER] = "Cycler",    [V_JOINER] = "Joiner",
    };
    if (v.kind == V_VIEW) return v.list->view;
    if (v.kind == V_ITERATOR) return v.iter->type;
    return names[v.kind];
}

bool template_value_truth(struct value v)
{
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL: return v.boolean;
    case V_INT: return v.integer != 0;
    case V_FLOAT: return v.number != 0;
    case V_STRING: return v.string->n != 0;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: return v.list->n != 0;
    case V_DICT: return v.dict->n != 0;
    case V_RANGE: return v.range->n != 0;
    default: return true;
    }
}

/* --- containers --- */

struct tlist *template_list_new(struct eval *e, size_t n)
{
    struct tlist *list = TEMPLATE_NEW(e, struct tlist);
    if (!list || !template_charge(e, n * 8)) return NULL;
    list->n = n;
    list->items = template_array(e, n, sizeof *list->items);
    return list->items ? list : NULL;
}

bool template_list_value(struct eval *e, enum value_kind kind, struct value *items, size_t n,
                         struct value *out)
{
    struct tlist *list = TEMPLATE_NEW(e, struct tlist);
    if (!list) return false;
    list->items = items;
    list->n = n;
    *out = (struct value){.kind = kind, .list = list};
    return true;
}

bool template_iterator(struct eval *e, struct tlist *list, const char *type, struct value *out)
{
    struct titer *iter = TEMPLATE_NEW(e, struct titer);
    if (!iter) return false;
    *iter = (struct titer){.list = list, .type = type};
    *out = (struct value){.kind = V_ITERATOR, .iter = iter};
    return true;
}

bool template_iterator_lazy(struct eval *e, bool ok, struct tlist *list, uint32_t depth, struct value *out)
{
    struct rose_error *error = NULL;
    if (!ok) {
        if (e->status != ROSE_INVALID) return false;
        e->status = ROSE_OK;
        e->depth = depth;
        if (!(error = TEMPLATE_NEW(e, struct rose_error))) return false;
        *error = *e->err;
        if (!list && !(list = template_list_new(e, 0))) return false;
    }
    if (!template_iterator(e, list, "generator", out)) return false;
    out->iter->error = error;
    return true;
}

enum { SMALL_DICT = 8 }; /* entries that are searched without an index */

struct tdict *template_dict_new(struct eval *e, size_t room)
{
    struct tdict *dict = TEMPLATE_NEW(e, struct tdict);
    if (!dict) return NULL;
    dict->cap = room;
    dict->entries = template_array(e, room, sizeof *dict->entries);
    return dict->entries ? dict : NULL;
}

static bool dict_index(struct eval *e, struct tdict *dict)
{
    size_t cap = 32;
    while (cap < dict->cap * 2) cap *= 2;
    uint32_t *index = template_array(e, cap, sizeof *index);
    if (!index || !template_charge(e, cap)) return false;
    for (size_t i = 0; i < dict->n; i++) {
        size_t at = dict->entries[i].hash & (cap - 1);
        while (index[at]) at = (at + 1) & (cap - 1);
        index[at] = (uint32_t)i + 1;
    }
    dict->index = index;
    dict->index_cap = cap;
    return true;
}

/* Position of the key, or dict->n. */
static bool dict_find(struct eval *e, const struct tdict *dict, struct value key, uint64_t hash, size_t *out)
{
    size_t at = hash & (dict->index_cap - 1);
    for (size_t i = 0; dict->index ? dict->index[at] != 0 : i < dict->n; i++) {
        size_t entry = dict->index ? dict->index[at] - 1 : i;
        bool equal = false;
        if (!template_charge(e, 0)) return false;
        if (dict->entries[entry].hash == hash &&
            !template_value_equal(e, dict->entries[entry].key, key, &equal))
            return false;
        if (equal) return *out = entry, true;
        at = (at + 1) & (dict->index_cap - 1);
    }
    *out = dict->n;
    return true;
}

bool template_dict_set(struct eval *e, struct tdict *dict, struct value key, struct value value)
{
    uint64_t hash;
    size_t at;
    if (!template_charge(e, 0) || !template_value_hash(e, key, &hash) || !dict_find(e, dict, key, hash, &at))
        return false;
    if (at < dict->n) {
        dict->entries[at].value = value;
        return true;
    }
    if (dict->n == dict->cap) {
        size_t cap = dict->cap ? dict->cap * 2 : 4;
        struct tentry *entries = template_array(e, cap, sizeof *entries);
        if (!entries) return false;
        if (dict->n) memcpy(entries, dict->entries, dict->n * sizeof *entries);
        dict->entries = entries;
        dict->cap = cap;
        dict->index = NULL;
    }
    dict->entries[dict->n++] = (struct tentry){key, value, hash};
    if (dict->n <= SMALL_DICT) return true;
    if (!dict->index || dict->index_cap < dict->n * 2) return dict_index(e, dict);
    at = hash & (dict->index_cap - 1);
    while (dict->index[at]) at = (at + 1) & (dict->index_cap - 1);
    dict->index[at] = (uint32_t)dict->n;
    return true;
}

bool template_dict_get(struct eval *e, const struct tdict *dict, struct value key, struct value **out)
{
    uint64_t hash;
    size_t at;
    *out = NULL;
    if (!template_charge(e, 0) || !template_value_hash(e, key, &hash) || !dict_find(e, dict, key, hash, &at))
        return false;
    if (at < dict->n) *out = &dict->entries[at].value;
    return true;
}

static uint64_t hash_text(struct str text)
{
    return hash_bytes(text.p, text.n, 1);
}

struct value *template_dict_get_str(const struct tdict *dict, struct str key)
{
    uint64_t hash = hash_text(key);
    size_t at = hash & (dict->index_cap - 1);
    for (size_t i = 0; dict->index ? dict->index[at] != 0 : i < dict->n; i++) {
        struct tentry *entry = &dict->entries[dict->index ? dict->index[at] - 1 : i];
        if (entry->hash == hash && entry->key.kind == V_STRING && str_eq(value_str(entry->key), key))
            return &entry->value;
        at = (at + 1) & (dict->index_cap - 1);
    }
    return NULL;
}

/* --- hash, equality, order --- */

static uint64_t hash_number(double d)
{
    if (d == 0) d = 0; /* -0 */
    return hash_bytes(&d, sizeof d, 2);
}

bool template_value_hash(struct eval *e, struct value v, uint64_t *out)
{
    switch (v.kind) {
    case V_STRING: *out = hash_text(value_str(v)); return template_charge(e, v.string->n);
    case V_BOOL:
    case V_INT: *out = hash_number((double)value_integer(v)); return true;
    case V_FLOAT: *out = hash_number(v.number); return true;
    case V_NONE: *out = 3; return true;
    case V_UNDEFINED: *out = 4; return true;
    case V_TUPLE: {
        *out = 5;
        if (!template_enter(e)) return false;
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item;
            if (!template_charge(e, 0) || !template_value_hash(e, v.list->items[i], &item)) return false;
            *out = hash_mix(*out, item);
        }
        template_leave(e);
        return true;
    }
    case V_LIST:
    case V_DICT:
    case V_VIEW: return template_fail(e, "a %s cannot be a key", template_value_type(v));
    case V_RANGE: *out = hash_mix((uint64_t)v.range->start, (uint64_t)v.range->n); return true;
    default: *out = hash_bytes(&v.list, sizeof v.list, 6); return true;
    }
}

static bool lists_equal(struct eval *e, const struct tlist *a, const struct tlist *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (!template_charge(e, 0) || !template_value_equal(e, a->items[i], b->items[i], out)) return false;
    return true;
}

static bool dicts_equal(struct eval *e, const struct tdict *a, const struct tdict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        struct value *other;
        if (!template_dict_get(e, b, a->entries[i].key, &other)) return false;
        if (!other)
            *out = false;
        else if (!template_value_equal(e, a->entries[i].value, *other, out))
            return false;
    }
    return true;
}

/* The order of an integer and a double, exactly. NaN: 2. */
static int order_numbers(struct value a, struct value b)
{
    if (value_is_integral(a) && value_is_integral(b)) {
        int64_t x = value_integer(a), y = value_integer(b);
        return (x > y) - (x < y);
    }
    long double x = a.kind == V_FLOAT ? a.number : value_integer(a);
    long double y = b.kind == V_FLOAT ? b.number : value_integer(b);
    if (isnan((double)x) || isnan((double)y)) return 2;
    return (x > y) - (x < y);
}

bool template_value_equal(struct eval *e, struct value a, struct value b, bool *out)
{
    *out = false;
    if (value_is_number(a) && value_is_number(b)) return *out = order_numbers(a, b) == 0, true;
    if (a.kind != b.kind) return true;
    bool ok = true;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE: *out = true; break;
    case V_STRING:
        *out = str_eq(value_str(a), value_str(b));
        if (a.string->n == b.string->n) return template_charge(e, a.string->n);
        break;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        if (a.list == b.list) return *out = true, true;
        if (!template_enter(e)) return false;
        ok = lists_equal(e, a.list, b.list, out);
        template_leave(e);
        break;
    case V_DICT:
        if (a.dict == b.dict) return *out = true, true;
        if (!template_enter(e)) return false;
        ok = dicts_equal(e, a.dict, b.dict, out);
        template_leave(e);
        break;
    case V_RANGE:
        *out = a.range->n == b.range->n &&
               (!a.range->n ||
                (a.range->start == b.range->start && (a.range->n == 1 || a.range->step == b.range->step)));
        break;
    case V_METHOD:
        *out = a.method->callable == b.method->callable && a.method->self.list == b.method->self.list;
        break;
    default: *out = a.list == b.list; break; /* identity */
    }
    return ok;
}

static int order_strings(struct str a, struct str b)
{
    int c = memcmp(a.p, b.p, ROSE_MIN(a.n, b.n));
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static const char *operator_text(enum token_type op)
{
    return op == T_LT ? "<" : op == T_LE ? "<=" : op == T_GT ? ">" : ">=";
}

/* For op among < <= > >=. */
bool template_value_compare(struct eval *e, enum token_type op, struct value a, struct value b, bool *out)
{
    int order;
    if (value_is_number(a) && value_is_number(b)) {
        order = order_numbers(a, b);
        if (order == 2) return *out = false, true;
    } else if (a.kind == V_STRING && b.kind == V_STRING) {
        if (!template_charge(e, ROSE_MIN(a.string->n, b.string->n))) return false;
        order = order_strings(value_str(a), value_str(b));
    } else if ((a.kind == V_LIST || a.kind == V_TUPLE) && b.kind == a.kind) {
        size_t n = ROSE_MIN(a.list->n, b.list->n);
        for (size_t i = 0; i < n; i++) {
            bool equal, ok;
            if (!template_charge(e, 0) ||
                !template_value_equal(e, a.list->items[i], b.list->items[i], &equal))
                return false;
            if (equal) continue;
            if (!template_enter(e)) return false;
            ok = template_value_compare(e, op, a.list->items[i], b.list->items[i], out);
            template_leave(e);
            return ok;
        }
        order = (a.list->n > b.list->n) - (a.list->n < b.list->n);
    } else if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED) {
        return template_value_undefined_fail(e, a.kind == V_UNDEFINED ? a : b);
    } else {
        return template_fail(e, "'%s' is not supported between '%s' and '%s'", operator_text(op),
                             template_value_type(a), template_value_type(b));
    }
    *out = op == T_LT ? order < 0 : op == T_LE ? order <= 0 : op == T_GT ? order > 0 : order >= 0;
    return true;
}

/* Merge sort: stable, n log n even for hostile orders. Sorts positions. */
static bool merge(struct eval *e, struct value *keys, uint32_t *pos, uint32_t *work, size_t n, bool reverse)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            size_t mid = ROSE_MIN(begin + width, n), end = ROSE_MIN(begin + 2 * width, n), i = begin, j = mid;
            for (size_t k = begin; k < end; k++) {
                bool right = i == mid;
                if (i < mid && j < end) {
                    struct value a = keys[pos[j]], b = keys[pos[i]];
                    if (!template_charge(e, 0)) return false;
                    if (!template_value_compare(e, T_LT, reverse ? b : a, reverse ? a : b, &right))
                        return false;
                }
                work[k] = right ? pos[j++] : pos[i++];
            }
        }
        memcpy(pos, work, n * sizeof *pos);
    }
    return true;
}

bool template_value_sort(struct eval *e, struct value *items, struct value *keys, size_t n, bool reverse)
{
    uint32_t *pos = template_array(e, n, sizeof *pos), *work = template_array(e, n, sizeof *work);
    struct value *copy = template_array(e, n, sizeof *copy), *key_copy = template_array(e, n, sizeof *copy);
    if (!pos || !work || !copy || !key_copy) return false;
    for (size_t i = 0; i < n; i++) pos[i] = (uint32_t)i, copy[i] = items[i], key_copy[i] = keys[i];
    if (!merge(e, key_copy, pos, work, n, reverse)) return false;
    for (size_t i = 0; i < n; i++) items[i] = copy[pos[i]], keys[i] = key_copy[pos[i]];
    return true;
}

/* --- size, membership, iteration --- */

bool template_value_length(struct eval *e, struct value v, int64_t *out)
{
    switch (v.kind) {
    case V_UNDEFINED: *out = 0; return true;
    case V_STRING: *out = (int64_t)v.string->chars; return true;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: *out = (int64_t)v.list->n; return true;
    case V_DICT: *out = (int64_t)v.dict->n; return true;
    case V_RANGE: *out = v.range->n; return true;
    case V_LOOP: {
        struct value length;
        if (!template_loop_attr(e, v.loop, STR("length"), &length)) return false;
        *out = length.integer;
        return true;
    }
    default: return template_fail(e, "a value of type '%s' has no length", template_value_type(v));
    }
}

bool template_value_is_iterable(struct value v)
{
    switch (v.kind) {
    case V_UNDEFINED:
    case V_STRING:
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
    case V_DICT:
    case V_RANGE:
    case V_ITERATOR:
    case V_LOOP: return true;
    default: return false;
    }
}

static bool string_elements(struct eval *e, const struct tstring *s, struct tlist *list)
{
    size_t at = 0;
    for (size_t i = 0; i < list->n; i++) {
        size_t end = at + 1;
        while (end < s->n && ((unsigned char)s->p[end] & 0xC0) == 0x80) end++;
        if (!template_string_slice(e, s, at, end, &list->items[i])) return false;
        list->items[i].string->markup = false; /* walking a marked string gives plain ones */
        at = end;
    }
    return true;
}

bool template_value_elements(struct eval *e, struct value v, struct tlist **out)
{
    struct tlist *list;
    switch (v.kind) {
    case V_LIST:
    case V_TUPLE:
    case V_VIEW: *out = v.list; return true;
    case V_UNDEFINED: return (*out = template_list_new(e, 0)) != NULL;
    case V_STRING:
        if (!(*out = list = template_list_new(e, v.string->chars))) return false;
        return string_elements(e, v.string, list);
    case V_DICT:
        if (!(*out = list = template_list_new(e, v.dict->n))) return false;
        for (size_t i = 0; i < v.dict->n; i++) list->items[i] = v.dict->entries[i].key;
        return true;
    case V_RANGE:
        if (!(*out = list = template_list_new(e, (size_t)v.range->n))) return false;
        for (int64_t i = 0; i < v.range->n; i++)
            list->items[i] = value_int(v.range->start + i * v.range->step);
        return true;
    case V_ITERATOR: {
        size_t n = v.iter->list->n - v.iter->at;
        if (!(*out = list = TEMPLATE_NEW(e, struct tlist))) return false;
        list->items = v.iter->list->items + v.iter->at;
        list->n = n;
        v.iter->at = v.iter->list->n;
        return template_value_iter_end(e, v.iter);
    }
    default: return template_fail(e, "a value of type '%s' cannot be iterated", template_value_type(v));
    }
}

bool template_value_iter_end(struct eval *e, const struct titer *iter)
{
    if (!iter->error) return true;
    e->status = ROSE_INVALID;
    *e->err = *iter->error;
    return false;
}

bool template_value_iter(struct eval *e, struct value v, struct titer **out)
{
    if (v.kind == V_ITERATOR) return *out = v.iter, true;
    struct tlist *list;
    struct value iter;
    if (!template_value_elements(e, v, &list) || !template_iterator(e, list, "iterator", &iter)) return false;
    *out = iter.iter;
    return true;
}

bool template_value_contains(struct eval *e, struct value container, struct value item, bool *out)
{
    struct tlist *list;
    struct value *found;
    *out = false;
    switch (container.kind) {
    case V_STRING:
        if (item.kind == V_UNDEFINED || item.kind != V_STRING)
            return template_fail(e, "'in <string>' needs a string on its left, not '%s'",
                                 template_value_type(item));
        *out = str_find(value_str(container), value_str(item), 0) >= 0;
        return template_charge(e, container.string->n);
    case V_DICT:
        if (!template_dict_get(e, container.dict, item, &found)) return false;
        *out = found != NULL;
        return true;
    case V_NAMESPACE:
    case V_NONE:
    case V_BOOL:
    case V_INT:
    case V_FLOAT:
        return template_fail(e, "a value of type '%s' has no elements to look for",
                             template_value_type(container));
    default:
        if (!template_value_elements(e, container, &list)) return false;
        for (size_t i = 0; i < list->n && !*out; i++)
            if (!template_charge(e, 0) || !template_value_equal(e, list->items[i], item, out)) return false;
        return true;
    }
}

/* --- undefined --- */

bool template_value_undefined(struct eval *e, struct value owner, struct value name, struct value *out)
{
    struct tundefined *u = TEMPLATE_NEW(e, struct tundefined);
    if (!u) return false;
    *u = (struct tundefined){.owner = owner, .name = name};
    *out = (struct value){.kind = V_UNDEFINED, .undefined = u};
    return true;
}

bool template_value_undefined_hint(struct eval *e, const char *hint, struct value *out)
{
    if (!template_value_undefined(e, value_of(V_MISSING), value_of(V_MISSING), out)) return false;
    out->undefined->hint = hint;
    return true;
}

bool template_value_undefined_fail(struct eval *e, struct value v)
{
    const struct tundefined *u = v.undefined;
    if (u->hint) return template_fail(e, "%s", u->hint);
    struct tbuild b = {0};
    if (!template_repr_add(e, &b, u->name)) return false;
    int n = (int)ROSE_MIN(b.n, 100);
    if (u->owner.kind == V_MISSING) return template_fail(e, "%.*s is undefined", n, b.p);
    const char *owner = u->owner.kind == V_NONE ? "None" : template_value_type(u->owner);
    return template_fail(e, "%s%s has no %s %.*s, so the value is undefined", owner,
                         u->owner.kind == V_NONE ? "" : " object",
                         u->name.kind == V_STRING ? "attribute" : "element", n, b.p);
}
