/* Protobuf's text format (protobuf.dev/reference/protobuf/textformat-spec), as a tree of fields: what a message's fields mean is the reader's affair.
 *
 *     name: "x"  dims: [ -1, 384 ]  input [ { ... }, { ... } ]  version_policy: { all {} }  # a comment
 *
 * A list is so many fields of one name, as protobuf has it. Extensions ([a.b]) are refused. Size, depth and number of fields are bounded.
 */
#ifndef ROSE_SERVER_PBTXT_H
#define ROSE_SERVER_PBTXT_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

enum { PBTXT_BYTES = 1 << 20, PBTXT_DEPTH = 32, PBTXT_FIELDS = 1 << 14 };
enum pbtxt_kind {
    PBTXT_MESSAGE,
    PBTXT_STRING, /* its bytes, pieces joined, escapes resolved */
    PBTXT_NUMBER, /* as it is written, a sign before it */
    PBTXT_NAME,   /* an enum's, true, false, inf, nan; a sign before it */
};
struct pbtxt_field {
    struct str name, value;
    enum pbtxt_kind kind;
    bool listed;                /* it stands in brackets */
    int line, column;           /* of the name, from 1; a column is a byte */
    int at_line, at_column;     /* of the value */
    struct pbtxt_field *fields; /* of a message, in their order */
    struct pbtxt_field *next;
};

/* The whole text, into the arena; *out: its fields, NULL where there are none. `file` stands in errors, which tell line and column and what was expected. */
enum rose_status pbtxt_read(struct str text, const char *file, struct arena *arena, struct pbtxt_field **out, struct rose_error *err);

/* The first field of that name; NULL: there is none. */
const struct pbtxt_field *pbtxt_get(const struct pbtxt_field *fields, const char *name);
/* A whole number: decimal, 0x hexadecimal or 0 octal. */
bool pbtxt_integer(const struct pbtxt_field *f, int64_t *out);
bool pbtxt_bool(const struct pbtxt_field *f, bool *out);
/* An error at the field's value. */
enum rose_status pbtxt_wrong(const struct pbtxt_field *f, const char *file, struct rose_error *err, enum rose_status status, const char *fmt, ...) ROSE_PRINTF(5, 6);

#endif
