/* What lies in DIR/packed, files of all models (packed.h), and how it stays within bounds.
 *
 * A file is ours when its name is packed.h's, it is a regular file of this user, and its end says so; nothing else is ever touched, and links
 * are not followed. A file's modification time is its last use. Removing one takes nothing from a process that has it mapped; of two processes
 * that remove the same file one finds it gone. */
#ifndef ROSE_MODEL_PACKED_LIST_H
#define ROSE_MODEL_PACKED_LIST_H

#include "base/status.h"
#include "base/str.h"
#include "rose.h"

enum packed_state {
    PACKED_CURRENT, /* the model's files are as they were */
    PACKED_CHANGED, /* one of them is not */
    PACKED_GONE,    /* one of them is not there */
    PACKED_UNKNOWN, /* the key is none of this program's */
    PACKED_LEFT,    /* what a writer left that was killed */
};

enum { PACKED_NAME = 48 };
struct packed_file {
    char name[PACKED_NAME];
    enum packed_state state;
    bool foreign; /* by another version of this program */
    uint64_t bytes, inode;
    int64_t used;  /* nanoseconds since 1970 */
    char *model;   /* the first of the model's files; "": unknown */
};
struct packed_list {
    struct packed_file *files; /* least recently used first */
    size_t count;
    uint64_t bytes; /* of all */
};

/* ROSE_OK and an empty list where there is no folder. Free with packed_list_free, after errors too. */
enum rose_status packed_list_read(const char *dir, struct packed_list *out, struct rose_error *err);
void packed_list_free(struct packed_list *list);
/* Remove one, if it is still the file that the list has seen. */
bool packed_list_remove(const char *dir, const struct packed_file *file);

/* The limit in force for DIR: `asked`, or for 0 a tenth of the file system. */
uint64_t packed_list_limit(const char *dir, uint64_t asked);
/* Remove what has no use any more: files whose model is gone or another one, leftovers, another version's files of keep's model; then the least recently used
 * ones until all together have at most `limit` bytes. keep, a file's name, stays. */
void packed_list_trim(const char *dir, uint64_t limit, const char *keep);

/* What keys begin with. */
#define PACKED_PROGRAM "rose " ROSE_VERSION ", "
/* A line of a key: a model's file as it is now. False: it cannot be looked at. */
bool packed_key_line(const char *path, struct strbuf *out);

#endif
