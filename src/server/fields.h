/* Requests by table: each field of a JSON object has a row that says what it is. Nothing is silently ignored (but on TEI's routes what TEI ignores): a
 * field without a row, and a row that says so, refuse the request and name the field. null counts as absent.
 */
#ifndef ROSE_SERVER_FIELDS_H
#define ROSE_SERVER_FIELDS_H

#include "base/arena.h"
#include "base/json.h"

/* What goes back instead of an answer. */
struct api_error {
    int status;        /* 0: none */
    const char *type;  /* "invalid_request_error" */
    const char *code;  /* "context_length_exceeded"; NULL */
    char param[96];    /* the field; "" when none */
    char message[1200];
};
/* Fill *e and return false. param NULL: none. */
bool api_error_set(struct api_error *e, int status, const char *type, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* A 400 about a field. */
bool api_error_field(struct api_error *e, const char *param, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A failed call of rose.h: its status as HTTP has it. */
bool api_error_rose(struct api_error *e, enum rose_status status, const struct rose_error *err);

enum field_kind {
    FIELD_IGNORE,  /* accepted, without effect here */
    FIELD_REFUSE,  /* 400: `why` */
    FIELD_NEUTRAL, /* accepted only where it changes nothing: false, [], {}, or the number `low`; else 400: `why` */
    FIELD_BOOL,    /* bool */
    FIELD_INT,     /* int, low..high */
    FIELD_NUMBER,  /* float, low..high */
    FIELD_TEXT,    /* struct str */
    FIELD_ARRAY,   /* const struct json * */
    FIELD_OBJECT,  /* const struct json * */
    FIELD_ANY,     /* const struct json * */
    FIELD_CALL,    /* `call` reads it */
};

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset; /* into the target */
    double low, high;
    const char *why;
    bool (*call)(void *target, const struct json *value, struct arena *arena, struct api_error *e);
};

/* Read a whole object into target. `where` comes before names in messages ("" or "stream_options."). */
bool fields_read(const struct field *table, size_t rows, const char *where, const struct json *object, void *target, struct arena *arena, struct api_error *e);
/* The same, but a field without a row is left out, as TEI does; its name is added to unknown[room] ("a, b"), which the caller has begun. */
bool fields_read_known(const struct field *table, size_t rows, const char *where, const struct json *object, void *target, struct arena *arena, char *unknown, size_t room, struct api_error *e);
/* A zero-terminated copy of a text; NULL with *e set when memory is out, or a NUL character would cut it short. */
const char *fields_terminated(struct arena *arena, const char *name, struct str text, struct api_error *e);

#endif
