/* Runs statements, and the rendering as a whole.
 *
 * Scopes: every pass of a loop, macro, call, with, filter, set block and block has one of its own; set writes
 * into the innermost, names are looked up from there outwards, then among the variables, then among the
 * global functions. */
#include "tokenizer/template_internal.h"

#include <stdlib.h>

struct scope *template_scope(struct eval *e, struct scope *parent, const struct hidden *hidden)
{
    struct scope *scope = TEMPLATE_NEW(e, struct scope);
    if (!scope) return NULL;
    scope->parent = parent;
    for (; hidden; hidden = hidden->next) {
        if (e->globals[hidden->name->id].kind == V_MISSING) continue; /* nothing to hide */
        if (!template_charge(e, 0) || !template_scope_set(e, scope, hidden->name, value_of(V_MISSING)))
            return NULL;
    }
    return scope;
}

bool template_scope_set(struct eval *e, struct scope *scope, const struct name *name, struct value value)
{
    struct binding *b = scope->first;
    while (b && b->name != name) b = b->next;
    if (!b) {
        if (!(b = TEMPLATE_NEW(e, struct binding))) return false;
        b->name = name;
        b->next = scope->first;
        scope->first = b;
    }
    b->value = value;
    return true;
}

static bool set_attribute(struct eval *e, const struct node *target, struct value value)
{
    struct value owner, key;
    if (!template_eval_lookup(e, target->name, &owner)) return false;
    e->at = target;
    if (owner.kind != V_NAMESPACE)
        return template_fail(e, "attributes can be set on a namespace() only, not on a value of type '%s'",
                             template_value_type(owner));
    struct str name = target->attr->text;
    if (str_starts(name, STR("_")))
        return template_fail(e, "an attribute of a namespace cannot begin with '_'");
    return template_string_new(e, name, true, &key) && template_dict_set(e, owner.dict, key, value);
}

bool template_exec_assign(struct eval *e, const struct node *target, struct value value)
{
    e->at = target;
    if (target->kind == N_NAME) return template_scope_set(e, e->scope, target->name, value);
    if (target->kind == N_NSREF) return set_attribute(e, target, value);
    struct tlist *items;
    size_t n = 0, i = 0;
    if (value.kind == V_UNDEFINED) return template_value_undefined_fail(e, value);
    if (!template_value_elements(e, value, &items)) return false;
    for (const struct node *item = target->args; item; item = item->next) n++;
    if (items->n != n) return template_fail(e, "%zu values cannot be unpacked into %zu names", items->n, n);
    for (const struct node *item = target->args; item; item = item->next)
        if (!template_exec_assign(e, item, items->items[i++])) return false;
    return true;
}

static bool output(struct eval *e, struct value v)
{
    size_t before = e->out->n;
    if (!template_str_add(e, e->out, v)) return false;
    e->buffered += e->out->n - before;
    if (e->buffered > e->max_output)
        return template_fail_status(e, ROSE_LIMIT, "the output is longer than its limit of %zu bytes",
                                    e->max_output);
    return true;
}

enum flow template_exec_captured(struct eval *e, const struct node *body, struct scope *scope,
                                 struct value *out)
{
    struct tbuild buffer = {0}, *outer_out = e->out;
    struct scope *outer_scope = e->scope;
    size_t buffered = e->buffered;
    e->out = &buffer;
    e->scope = scope;
    enum flow flow = template_exec(e, body);
    e->out = outer_out;
    e->scope = outer_scope;
    e->buffered = buffered;
    if (flow == FLOW_ERROR || !tbuild_end(e, &buffer, out)) return FLOW_ERROR;
    return flow;
}

/* --- loops --- */

/* Does the loop's filter take the item? The target is bound in a scope of its own. What is unpacked into
 * several names becomes a tuple of them, as loop.previtem shows. */
static bool accepted(struct eval *e, struct tloop *loop, struct value *item, bool *out)
{
    struct scope *outer = e->scope;
    struct value test;
    *out = true;
    if (!loop->node->c) return true;
    if (!(e->scope = template_scope(e, loop->scope, NULL))) return false;
    if (!template_exec_assign(e, loop->node->a, *item) || !template_eval(e, loop->node->c, &test))
        return false;
    if (loop->node->a->kind == N_TUPLE && !template_eval(e, loop->node->a, item)) return false;
    e->scope = outer;
    *out = template_value_truth(test);
    return true;
}

/* The next item that passes the filter; V_MISSING at the end. */
static bool draw(struct eval *e, struct tloop *loop, struct value *out)
{
    struct titer *source = loop->filtered ? loop->filtered : loop->source;
    *out = value_of(V_MISSING);
    while (source->at < source->list->n) {
        struct value item = source->list->items[source->at++];
        bool take = true;
        if (!template_charge(e, 0)) return false;
        if (!loop->filtered && !accepted(e, loop, &item, &take)) return false;
        if (take) return *out = item, true;
    }
    return template_value_iter_end(e, source);
}

static bool peek(struct eval *e, struct tloop *loop, struct value *out)
{
    if (loop->after.kind == V_MISSING && !draw(e, loop, &loop->after)) return false;
    *out = loop->after;
    return true;
}

bool template_loop_next(struct eval *e, struct tloop *loop, struct value *out, bool *done)
{
    struct value item = loop->after;
    loop->after = value_of(V_MISSING);
    if (item.kind == V_MISSING && !draw(e, loop, &item)) return false;
    *done = item.kind == V_MISSING;
    if (*done) return true;
    loop->index0++;
    loop->before = loop->current;
    loop->current = *out = item;
    return true;
}

static bool loop_length(struct eval *e, struct tloop *loop)
{
    if (loop->length >= 0) return true;
    struct tlist *rest = template_list_new(e, loop->source->list->n - loop->source->at);
    if (!rest) return false;
    size_t n = 0;
    for (struct value item;; rest->items[n++] = item) {
        if (!draw(e, loop, &item)) return false;
        if (item.kind == V_MISSING) break;
    }
    rest->n = n;
    struct value iter;
    if (!template_iterator(e, rest, "list_iterator", &iter)) return false;
    loop->filtered = iter.iter;
    loop->length = (int64_t)n + loop->index0 + 1 + (loop->after.kind != V_MISSING);
    return true;
}

bool template_loop_attr(struct eval *e, struct tloop *loop, struct str name, struct value *out)
{
    *out = value_of(V_MISSING);
    if (str_is(name, "index")) return *out = value_int(loop->index0 + 1), true;
    if (str_is(name, "index0")) return *out = value_int(loop->index0), true;
    if (str_is(name, "first")) return *out = value_bool(loop->index0 == 0), true;
    if (str_is(name, "depth")) return *out = value_int(loop->depth0 + 1), true;
    if (str_is(name, "depth0")) return *out = value_int(loop->depth0), true;
    if (str_is(name, "last")) {
        if (!peek(e, loop, out)) return false;
        *out = value_bool(out->kind == V_MISSING);
        return true;
    }
    if (str_is(name, "nextitem")) {
        if (!peek(e, loop, out)) return false;
        return out->kind != V_MISSING ||
               template_value_undefined_hint(e, "there is no next item in the loop", out);
    }
    if (str_is(name, "previtem")) {
        *out = loop->before;
        return loop->index0 > 0 ||
               template_value_undefined_hint(e, "there is no previous item in the loop", out);
    }
    bool length = str_is(name, "length"), revindex = str_is(name, "revindex"),
         revindex0 = str_is(name, "revindex0");
    if (length || revindex || revindex0) {
        if (!loop_length(e, loop)) return false;
        *out = value_int(length ? loop->length : loop->length - loop->index0 - revindex0);
        return true;
    }
    const struct callable *method = template_method((struct value){.kind = V_LOOP, .loop = loop}, name);
    if (!method) return true;
    struct tmethod *bound = TEMPLATE_NEW(e, struct tmethod);
    if (!bound) return false;
    *bound = (struct tmethod){method, {.kind = V_LOOP, .loop = loop}};
    *out = (struct value){.kind = V_METHOD, .method = bound};
    return true;
}

static enum flow run_body(struct eval *e, struct tloop *loop, const struct name *loop_name, bool *ran)
{
    struct value item;
    bool done = false;
    for (;;) {
        if (!template_loop_next(e, loop, &item, &done)) return FLOW_ERROR;
        if (done) return FLOW_NEXT;
        if (!(e->scope = template_scope(e, loop->scope, loop->node->hidden))) return FLOW_ERROR;
        if (!template_exec_assign(e, loop->node->a, item)) return FLOW_ERROR;
        if (!template_scope_set(e, e->scope, loop_name, (struct value){.kind = V_LOOP, .loop = loop}))
            return FLOW_ERROR;
        enum flow flow = template_exec(e, loop->node->body);
        if (flow == FLOW_ERROR) return flow;
        if (flow == FLOW_BREAK) return FLOW_NEXT;
        if (flow == FLOW_NEXT) *ran = true; /* as in jinja2, passes left by break or continue do not count */
    }
}

/* Runs a loop over the values, writing to e->out. */
static enum flow run_loop(struct eval *e, const struct node *node, struct scope *around, struct value values,
                          int64_t depth0)
{
    static const struct name unnamed = {.id = 0};
    const struct name *loop_name = template_name_find(e->t, STR("loop"));
    struct scope *outer = e->scope;
    struct tloop *loop = TEMPLATE_NEW(e, struct tloop);
    bool ran = false;
    e->at = node;
    if (!loop) return FLOW_ERROR;
    *loop = (struct tloop){.node = node, .scope = around, .depth0 = depth0, .index0 = -1, .length = -1};
    if (!template_value_iter(e, values, &loop->source)) return FLOW_ERROR;
    if (!node->c && values.kind != V_ITERATOR && values.kind != V_LOOP)
        loop->length = (int64_t)loop->source->list->n;
    if (run_body(e, loop, loop_name ? loop_name : &unnamed, &ran) == FLOW_ERROR) return FLOW_ERROR;
    enum flow flow = FLOW_NEXT;
    if (!ran && node->orelse) {
        if (!(e->scope = template_scope(e, around, node->hidden_else))) return FLOW_ERROR;
        flow = template_exec(e, node->orelse); /* a break there belongs to the loop around */
    }
    e->scope = outer;
    return flow;
}

bool template_exec_recurse(struct eval *e, struct tloop *loop, struct value children, struct value *out)
{
    if (!loop->node->flag) return template_fail(e, "a loop without 'recursive' cannot be called");
    struct tbuild buffer = {0}, *outer = e->out;
    size_t buffered = e->buffered;
    if (!template_enter(e)) return false;
    e->out = &buffer;
    bool ok = run_loop(e, loop->node, loop->scope, children, loop->depth0 + 1) != FLOW_ERROR;
    e->out = outer;
    e->buffered = buffered;
    template_leave(e);
    return ok && tbuild_end(e, &buffer, out);
}

/* --- statements --- */

static enum flow flow_of(bool ok)
{
    return ok ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow exec_if(struct eval *e, const struct node *node)
{
    const struct node *branch = node;
    do {
        struct value test;
        if (!template_eval(e, branch->a, &test)) return FLOW_ERROR;
        if (template_value_truth(test)) return template_exec(e, branch->body);
        branch = branch == node ? node->args : branch->next;
    } while (branch);
    return template_exec(e, node->orelse);
}

/* Applies a chain of filters whose innermost has no operand to a text. */
static bool filtered(struct eval *e, const struct node *filter, struct value text, struct value *out)
{
    struct args args;
    if (!filter) return *out = text, true;
    if (!template_enter(e) || !filtered(e, filter->a, text, &text) || !template_eval_args(e, filter, &args))
        return false;
    template_leave(e);
    e->at = filter;
    if (!filter->callable)
        return template_fail(e, "there is no filter named '" STR_FMT "'", STR_ARG(filter->name->text));
    return template_call_bound(e, filter->callable, text, &args, out);
}

/* The text of body through the filters; a break inside ends the body and is passed on. */
static enum flow exec_filtered(struct eval *e, const struct node *node, struct value *out)
{
    struct scope *outer = e->scope, *inner = template_scope(e, outer, node->hidden);
    if (!inner) return FLOW_ERROR;
    enum flow flow = template_exec_captured(e, node->body, inner, out);
    if (flow != FLOW_NEXT) return flow;
    e->scope = inner;
    bool ok = filtered(e, node->b, *out, out);
    e->scope = outer;
    return flow_of(ok);
}

static enum flow exec_with(struct eval *e, const struct node *node)
{
    struct scope *outer = e->scope, *inner = template_scope(e, outer, node->hidden);
    if (!inner) return FLOW_ERROR;
    for (const struct node *set = node->args; set; set = set->next) {
        struct value value;
        if (!template_eval(e, set->b, &value)) return FLOW_ERROR;
        e->scope = inner;
        if (!template_exec_assign(e, set->a, value)) return FLOW_ERROR;
        e->scope = outer;
    }
    e->scope = inner;
    enum flow flow = template_exec(e, node->body);
    e->scope = outer;
    return flow;
}

static struct tmacro *new_macro(struct eval *e, const struct node *node, struct str name)
{
    struct tmacro *macro = TEMPLATE_NEW(e, struct tmacro);
    if (macro) *macro = (struct tmacro){.node = node, .scope = e->scope, .name = name};
    return macro;
}

/* {% call(args) macro(...) %}: the body is a macro that is passed on as caller. */
static bool exec_call_block(struct eval *e, const struct node *node)
{
    struct value fn, result;
    struct args args;
    struct tmacro *caller = new_macro(e, node, STR("caller"));
    if (!caller || !template_eval(e, node->a->a, &fn) || !template_eval_args(e, node->a, &args)) return false;
    e->at = node->a;
    struct keyword *kw = template_array(e, args.nkw + 1, sizeof *kw);
    if (!kw) return false;
    if (args.nkw) memcpy(kw, args.kw, args.nkw * sizeof *kw);
    kw[args.nkw++] = (struct keyword){STR("caller"), {.kind = V_MACRO, .macro = caller}, true};
    args.kw = kw;
    return template_call(e, fn, &args, &result) && output(e, result);
}

static enum flow exec_one(struct eval *e, const struct node *node)
{
    struct value v;
    enum flow flow;
    e->at = node;
    switch (node->kind) {
    case N_TEXT: return flow_of(output(e, node->value));
    case N_OUTPUT: return flow_of(template_eval(e, node->a, &v) && output(e, v));
    case N_FOR: return template_eval(e, node->b, &v) ? run_loop(e, node, e->scope, v, 0) : FLOW_ERROR;
    case N_IF: return exec_if(e, node);
    case N_SET: return flow_of(template_eval(e, node->b, &v) && template_exec_assign(e, node->a, v));
    case N_SET_BLOCK:
        flow = exec_filtered(e, node, &v);
        return flow != FLOW_NEXT ? flow : flow_of(template_exec_assign(e, node->a, v));
    case N_FILTER_BLOCK:
        flow = exec_filtered(e, node, &v);
        return flow != FLOW_NEXT ? flow : flow_of(output(e, v));
    case N_MACRO: {
        struct tmacro *macro = new_macro(e, node, node->name->text);
        return flow_of(macro && template_scope_set(e, e->scope, node->name,
                                                   (struct value){.kind = V_MACRO, .macro = macro}));
    }
    case N_CALL_BLOCK: return flow_of(exec_call_block(e, node));
    case N_WITH: return exec_with(e, node);
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    case N_GENERATION:
    case N_BLOCK: {
        struct scope *scope = template_scope(e, node->kind == N_GENERATION || node->flag ? e->scope : e->root,
                                             node->hidden),
                     *outer = e->scope;
        if (!scope) return FLOW_ERROR;
        e->scope = scope;
        flow = template_exec(e, node->body);
        e->scope = outer;
        return flow;
    }
    default:
        return flow_of(
            template_fail_status(e, ROSE_INTERNAL, "a node of kind %d is no statement", node->kind));
    }
}

enum flow template_exec(struct eval *e, const struct node *body)
{
    enum flow flow = FLOW_NEXT;
    if (!template_enter(e)) return FLOW_ERROR;
    for (const struct node *node = body; node && flow == FLOW_NEXT; node = node->next) {
        if (!template_charge(e, 0))
            flow = FLOW_ERROR;
        else
            flow = exec_one(e, node);
    }
    template_leave(e);
    return flow;
}

/* --- rendering --- */

static bool collect(struct eval *e, const struct tbuild *b, struct template_output *out)
{
    out->segments = b->span_count ? calloc(b->span_count, sizeof *out->segments) : NULL;
    if ((b->span_count && !out->segments) || !strbuf_add(&out->text, b->p ? b->p : "", b->n))
        return template_fail_memory(e);
    size_t begin = 0;
    for (size_t i = 0; i < b->span_count; i++) {
        out->segments[i] = (struct template_segment){begin, b->spans[i].end, b->spans[i].trusted};
        begin = b->spans[i].end;
    }
    out->count = b->span_count;
    return true;
}

enum rose_status template_render(const struct template *template, const struct json *variables,
                                 const struct template_options *options, struct template_output *out,
                                 struct rose_error *err)
{
    static const struct template_options none = {0};
    const struct template_options *o = options ? options : &none;
    struct tbuild text = {0};
    struct rose_error unasked;
    struct eval e = {
        .t = template,
        .err = err ? err : &unasked,
        .out = &text,
        .now = o->now,
        .utc = o->utc,
        .steps = o->max_steps ? o->max_steps : 50u * 1000 * 1000,
        .max_depth = o->max_depth ? o->max_depth : 400,
        .max_output = o->max_output ? o->max_output : (size_t)64 << 20,
    };
    *out = (struct template_output){0};
    if (variables && variables->type != JSON_OBJECT)
        return status_set(err, ROSE_INVALID,
                          "the variables of a chat template must be a JSON object, not a %s",
                          json_type_name(variables->type));
    arena_init(&e.arena, o->max_memory ? o->max_memory : (size_t)512 << 20);
    if (template_variables(&e, variables, o) &&
        (e.root = e.scope = template_scope(&e, NULL, template->hidden)) &&
        template_exec(&e, template->body) != FLOW_ERROR)
        collect(&e, &text, out);
    arena_free(&e.arena);
    if (e.status != ROSE_OK) template_output_free(out);
    return e.status;
}

void template_output_free(struct template_output *output)
{
    strbuf_free(&output->text);
    free(output->segments);
    *output = (struct template_output){0};
}
