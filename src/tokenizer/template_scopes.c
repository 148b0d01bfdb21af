/* Names that a scope assigns before it reads them.
 *
 * jinja2 compiles a scope's names to Python locals. A name whose first mention in a scope (reading order, not
 * inside an `if`) is an assignment, and which no outer scope mentions, is a local without value until then: a
 * variable or global function of the same name is not seen, not even by blocks inside the scope that run
 * before. This pass finds those names; entering the scope binds them to "no value". All other lookups go
 * outwards at run time. */
#include "tokenizer/template_internal.h"

struct undo {
    const struct name *name;
    uint32_t owner;
};
struct analysis {
    struct template *t;
    struct arena scratch;
    uint32_t *owner; /* by name id: level of the innermost scope that mentions it, 0: none */
    struct undo *undo;
    size_t n, cap;
    uint32_t level;
    struct hidden **hidden; /* the list of the scope at hand */
    bool failed;
};

static void mention(struct analysis *x, const struct name *name, bool hides)
{
    uint32_t *owner = &x->owner[name->id];
    if (x->failed || *owner == x->level) return;
    if (hides && !*owner) {
        struct hidden *h = ARENA_NEW(&x->t->arena, struct hidden);
        if (!h) {
            x->failed = true;
            return;
        }
        *h = (struct hidden){name, *x->hidden};
        *x->hidden = h;
    }
    /* A name that an outer scope mentions stays that scope's; this one only reads or shadows it. */
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 64;
        struct undo *undo = ARENA_ARRAY(&x->scratch, struct undo, cap);
        if (!undo) {
            x->failed = true;
            return;
        }
        if (x->n) memcpy(undo, x->undo, x->n * sizeof *undo);
        x->undo = undo;
        x->cap = cap;
    }
    x->undo[x->n++] = (struct undo){name, *owner};
    *owner = x->level;
}

/* All names an expression reads. Chains to the left may be long, so they are a loop. */
static void reads(struct analysis *x, const struct node *node)
{
    for (; node; node = node->a) {
        if (node->kind == N_NAME) mention(x, node->name, false);
        reads(x, node->b);
        reads(x, node->c);
        reads(x, node->star);
        reads(x, node->starstar);
        for (const struct node *arg = node->args; arg; arg = arg->next) reads(x, arg);
    }
}

static void writes(struct analysis *x, const struct node *target, bool hides)
{
    if (target->kind != N_TUPLE)
        mention(x, target->name, hides && target->kind == N_NAME);
    else
        for (const struct node *item = target->args; item; item = item->next) writes(x, item, hides);
}

/* The mentions of a scope's own statements, in order; scopes inside are not entered. */
static void own(struct analysis *x, const struct node *body, bool hides)
{
    for (const struct node *node = body; node; node = node->next) {
        switch (node->kind) {
        case N_OUTPUT:
        case N_CALL_BLOCK: reads(x, node->a); break;
        case N_SET:
            reads(x, node->b);
            writes(x, node->a, hides);
            break;
        case N_SET_BLOCK: writes(x, node->a, hides); break;
        case N_FOR:
        case N_FILTER_BLOCK: reads(x, node->b); break;
        case N_MACRO: mention(x, node->name, hides); break;
        case N_WITH:
            for (const struct node *set = node->args; set; set = set->next) reads(x, set->b);
            break;
        case N_IF:
            reads(x, node->a);
            own(x, node->body, false);
            own(x, node->args, false); /* the elifs, as if they stood inside */
            own(x, node->orelse, false);
            break;
        default: break;
        }
    }
}

static void scopes_inside(struct analysis *x, struct node *body);

static void scope(struct analysis *x, const struct node *owner, struct node *body, struct hidden **hidden)
{
    size_t mark = x->n;
    struct hidden **outer = x->hidden;
    x->level++;
    x->hidden = hidden;
    if (owner && owner->kind == N_FOR) {
        const struct name *loop = template_name_find(x->t, STR("loop"));
        if (loop) mention(x, loop, false);
        writes(x, owner->a, false);
    }
    if (owner && (owner->kind == N_MACRO || owner->kind == N_CALL_BLOCK)) {
        for (const struct node *param = owner->args; param; param = param->next)
            mention(x, param->name, false);
        for (const struct node *param = owner->args; param; param = param->next) reads(x, param->a);
    }
    if (owner && owner->kind == N_WITH)
        for (const struct node *set = owner->args; set; set = set->next) writes(x, set->a, false);
    own(x, body, true);
    scopes_inside(x, body);
    while (x->n > mark) {
        x->n--;
        x->owner[x->undo[x->n].name->id] = x->undo[x->n].owner;
    }
    x->hidden = outer;
    x->level--;
}

static void scopes_inside(struct analysis *x, struct node *body)
{
    for (struct node *node = body; node; node = node->next) {
        switch (node->kind) {
        case N_IF:
            scopes_inside(x, node->body);
            scopes_inside(x, node->args);
            scopes_inside(x, node->orelse);
            break;
        case N_FOR:
            scope(x, node, node->body, &node->hidden);
            scope(x, NULL, node->orelse, &node->hidden_else);
            break;
        case N_SET_BLOCK:
        case N_FILTER_BLOCK:
        case N_MACRO:
        case N_CALL_BLOCK:
        case N_WITH:
        case N_GENERATION:
        case N_BLOCK: scope(x, node, node->body, &node->hidden); break;
        default: break;
        }
    }
}

bool template_scopes(struct template *t)
{
    struct analysis x = {.t = t};
    arena_init(&x.scratch, 0);
    x.owner = ARENA_ARRAY(&x.scratch, uint32_t, (size_t)t->name_count + 1);
    x.failed = !x.owner;
    if (!x.failed) scope(&x, NULL, t->body, &t->hidden);
    arena_free(&x.scratch);
    return !x.failed;
}
