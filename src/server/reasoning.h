/* Splits an answer of a reasoning model, as it streams, at <think> and </think>. */
#ifndef ROSE_SERVER_REASONING_H
#define ROSE_SERVER_REASONING_H

#include "base/str.h"

#define REASONING_OPEN "<think>"
#define REASONING_CLOSE "</think>"

enum reasoning_state {
    REASONING_OFF,     /* all is content */
    REASONING_BEGIN,   /* before the first visible character: <think> may come */
    REASONING_THINK,   /* behind <think> */
    REASONING_AFTER,   /* behind </think>: white space is dropped */
    REASONING_CONTENT, /* the answer proper */
};
struct reasoning {
    enum reasoning_state state;
    char held[16]; /* what may become a tag */
    size_t held_bytes;
};

/* Add text; what belongs to the thoughts and to the answer is appended to the two buffers. */
void reasoning_add(struct reasoning *r, struct str text, struct strbuf *thoughts, struct strbuf *content);
/* The end: what was held is text after all. */
void reasoning_end(struct reasoning *r, struct strbuf *thoughts, struct strbuf *content);

#endif
