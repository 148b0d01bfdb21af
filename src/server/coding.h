/* Content codings of HTTP (RFC 9110, 8.4.1): gzip and deflate, by zlib where the build has it. */
#ifndef ROSE_SERVER_CODING_H
#define ROSE_SERVER_CODING_H

#include "base/str.h"

enum coding { CODING_IDENTITY, CODING_GZIP, CODING_DEFLATE, CODING_UNKNOWN };

/* Of a Content-Encoding header; NULL: identity. What this build cannot undo is unknown, and so is one coding upon another. */
enum coding coding_find(const char *header);
/* What an Accept-Encoding header likes best of gzip and deflate; identity where it names neither, or this build has none. */
enum coding coding_accepted(const char *header);
const char *coding_name(enum coding coding);

enum coding_result { CODING_OK, CODING_WRONG, CODING_TOO_LARGE, CODING_NO_MEMORY };
/* Undo the coding: *body is replaced. TOO_LARGE: more than body->limit would come out (0: no limit); it is found out before that much memory is
 * taken. On any failure *body stays. */
enum coding_result coding_decode(enum coding coding, struct strbuf *body);
/* Code *body in place; false: out of memory, or the coding is none; *body stays. */
bool coding_encode(enum coding coding, struct strbuf *body);

#endif
