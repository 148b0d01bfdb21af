/* JSON (RFC 8259): a strict, bounded reader into an arena, and a writer onto a strbuf. */
#ifndef ROSE_BASE_JSON_H
#define ROSE_BASE_JSON_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_member;
struct json {
    enum json_type type;
    uint32_t count;      /* elements or members */
    bool is_integer;     /* the number was written without fraction or exponent and fits integer */
    bool is_wide;        /* so written, from 2^63 to 2^64 - 1: integer has its 64 bits, and is_integer is false */
    size_t offset;       /* byte offset in the text, for messages */
    union {
        struct {
            double number;
            int64_t integer;
        };
        struct str string; /* unescaped UTF-8; lone surrogates become U+FFFD */
        struct json *items;
        struct json_member *members; /* in the order of the text; of equal keys the last wins in json_get */
    };
};
struct json_member {
    struct str key;
    struct json value;
};

enum { JSON_MAX_DEPTH = 200 };

/* Parse a whole text. file names it in errors (NULL: none). Nodes live in the arena; strings without escapes point
 * into text, which must outlive them. Errors carry line, column and offset. Depth is limited to JSON_MAX_DEPTH. */
enum rose_status json_parse(struct arena *arena, const char *file, struct str text, const struct json **out,
                            struct rose_error *err);

/* The member of an object, or NULL (also when object is NULL or no object). */
const struct json *json_get(const struct json *object, const char *key);
/* Element i of a list, member i of an object. Of another kind, and beyond the end, a null without a name: whatever a text holds, looking is safe.
 * Readers take these and json_str, not the union. */
static inline const struct json *json_at(const struct json *list, size_t i);
static inline const struct json_member *json_member(const struct json *object, size_t i);
/* json_get along "a.b.c". */
const struct json *json_path(const struct json *object, const char *path);

/* Typed views with a default for what is missing or of another type. */
struct str json_str(const struct json *value, const char *fallback);
int64_t json_int(const struct json *value, int64_t fallback);
double json_num(const struct json *value, double fallback);
bool json_bool(const struct json *value, bool fallback);
static inline bool json_is(const struct json *value, enum json_type type) { return value && value->type == type; }
static inline bool json_is_null(const struct json *value) { return !value || value->type == JSON_NULL; }
extern const struct json_member json_nothing;
static inline const struct json *json_at(const struct json *list, size_t i) { return json_is(list, JSON_ARRAY) && i < list->count ? &list->items[i] : &json_nothing.value; }
static inline const struct json_member *json_member(const struct json *object, size_t i) { return json_is(object, JSON_OBJECT) && i < object->count ? &object->members[i] : &json_nothing; }
const char *json_type_name(enum json_type type);

/* Writing: a text is built by hand with strbuf_*; these add one value, escaped. */
void json_add_str(struct strbuf *b, struct str text); /* invalid UTF-8 bytes become U+FFFD */
void json_add_num(struct strbuf *b, double number);   /* shortest form that reads back equal; NaN, inf: null */
/* A whole value again, compact. */
void json_add_value(struct strbuf *b, const struct json *value);

#endif
