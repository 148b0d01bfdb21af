/* The way in of variables: JSON to values, who is trusted, and what transformers does to messages. */
#include "tokenizer/template_internal.h"

static bool from_json(struct eval *e, const struct json *json, bool trusted, int depth, struct value *out)
{
    if (depth > JSON_MAX_DEPTH) return template_fail_status(e, ROSE_LIMIT, "a variable is nested too deep");
    if (!template_charge(e, 0)) return false;
    switch (json->type) {
    case JSON_NULL: *out = value_of(V_NONE); return true;
    case JSON_FALSE:
    case JSON_TRUE: *out = value_bool(json->type == JSON_TRUE); return true;
    case JSON_NUMBER:
        *out = json->is_integer ? value_int(json->integer) : value_float(json->number);
        return true;
    case JSON_STRING: return template_string_new(e, json->string, trusted, out);
    case JSON_ARRAY: {
        struct tlist *list = template_list_new(e, json->count);
        if (!list) return false;
        for (uint32_t i = 0; i < json->count; i++)
            if (!from_json(e, &json->items[i], trusted, depth + 1, &list->items[i])) return false;
        *out = (struct value){.kind = V_LIST, .list = list};
        return true;
    }
    case JSON_OBJECT: {
        struct tdict *dict = template_dict_new(e, json->count);
        if (!dict) return false;
        for (uint32_t i = 0; i < json->count; i++) {
            struct value key, value;
            if (!template_string_new(e, json->members[i].key, trusted, &key) ||
                !from_json(e, &json->members[i].value, trusted, depth + 1, &value) ||
                !template_dict_set(e, dict, key, value))
                return false;
        }
        *out = (struct value){.kind = V_DICT, .dict = dict};
        return true;
    }
    }
    return template_fail(e, "a variable has an unknown type");
}

static bool listed(const char *const *list, struct str text)
{
    for (; *list; list++)
        if (str_is(text, *list)) return true;
    return false;
}

static bool is_trusted(const char *const *trusted, struct str name)
{
    static const char *const usual[] = {"bos_token", "eos_token", "unk_token",  "pad_token",
                                        "sep_token", "cls_token", "mask_token", NULL};
    return listed(trusted ? trusted : usual, name);
}

/* Some templates make control tokens from roles: '<|' + message.role + '|>'. The roles in use are no text
 * that a user could hide a control token in, so they count as the template's own; any other word in their
 * place does not. */
static void trust_roles(struct value messages)
{
    static const char *const roles[] = {
        "system",   "developer",   "user",         "assistant",       "tool",
        "function", "ipython",     "tool_results", "tool_result",     "tool_response",
        "model",    "chatbot",     "observation",  "documents",       "document",
        "context",  "environment", "critic",       "latest_reminder", NULL};
    if (messages.kind != V_LIST) return;
    for (size_t i = 0; i < messages.list->n; i++) {
        struct value message = messages.list->items[i];
        struct value *role = message.kind == V_DICT ? template_dict_get_str(message.dict, STR("role")) : NULL;
        if (role && role->kind == V_STRING && listed(roles, value_str(*role))) role->string->trusted = true;
    }
}

static bool set_member(struct eval *e, struct tdict *dict, const char *key, struct value value)
{
    struct value k;
    return template_string_literal(e, key, &k) && template_dict_set(e, dict, k, value);
}

/* Without members that are null, and with the reasoning under the names that templates read. */
static bool prepare_message(struct eval *e, const struct tdict *message, struct tdict **out)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct value *reasoning = NULL;
    if (!(*out = template_dict_new(e, message->n + 2))) return false;
    for (size_t i = 0; i < ROSE_COUNT(names) && !reasoning; i++) {
        reasoning = template_dict_get_str(message, str_of(names[i]));
        if (reasoning && reasoning->kind == V_NONE) reasoning = NULL;
    }
    if (reasoning && !set_member(e, *out, "thinking", *reasoning)) return false;
    for (size_t i = 0; i < message->n; i++)
        if (message->entries[i].value.kind != V_NONE &&
            !template_dict_set(e, *out, message->entries[i].key, message->entries[i].value))
            return false;
    return !reasoning || set_member(e, *out, "reasoning_content", *reasoning);
}

static struct value *variable(struct eval *e, const char *name)
{
    const struct name *interned = template_name_find(e->t, str_of(name));
    return interned ? &e->globals[interned->id] : NULL;
}

static bool prepare(struct eval *e)
{
    static const char *const absent[] = {"tools", "documents"};
    struct value *v;
    for (size_t i = 0; i < ROSE_COUNT(absent); i++)
        if ((v = variable(e, absent[i])) && v->kind == V_MISSING) *v = value_of(V_NONE);
    if ((v = variable(e, "add_generation_prompt")) && v->kind == V_MISSING) *v = value_bool(false);
    v = variable(e, "messages");
    for (size_t i = 0; v && v->kind == V_LIST && i < v->list->n; i++)
        if (v->list->items[i].kind == V_DICT &&
            !prepare_message(e, v->list->items[i].dict, &v->list->items[i].dict))
            return false;
    return true;
}

bool template_variables(struct eval *e, const struct json *variables, const struct template_options *options)
{
    if (!(e->globals = template_array(e, e->t->name_count, sizeof *e->globals))) return false;
    for (uint32_t i = 0; variables && i < variables->count; i++) {
        const struct json_member *member = &variables->members[i];
        const struct name *name = template_name_find(e->t, member->key);
        if (name && !from_json(e, &member->value, is_trusted(options->trusted, member->key), 0,
                               &e->globals[name->id]))
            return false;
    }
    struct value *messages = variable(e, "messages");
    if (options->as_transformers && !prepare(e)) return false;
    if (messages) trust_roles(*messages);
    for (size_t i = 0; i < e->t->name_cap; i++) {
        for (const struct name *name = e->t->name_slots[i]; name; name = name->next) {
            const struct callable *global = template_global(name->text);
            if (global && e->globals[name->id].kind == V_MISSING)
                e->globals[name->id] = (struct value){.kind = V_BUILTIN, .builtin = global};
        }
    }
    return true;
}
