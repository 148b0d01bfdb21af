/* What an output file's answers were made of, beside it in FILE.resume, so that a command goes on behind them only when they are its own:
 *
 *     {"made_by":"rose embed","version":1,"model":"minilm","fingerprint":"9f…","options":{"dimensions":"64", …}}
 *     5feceb66ffc86f38                      a line of the input each, in its order: half of the hash of what is asked
 *     6b86b273ff34fce1 d4735e3a265e16ee     or, where answers come in any order, before it of the name they go by
 *
 * It is written whole, by a rename, before the first answer goes into FILE, with a hash of every line of the input: whenever the command is
 * killed, every answer in FILE has its hash, and nothing is written beside an answer. It stays when all is answered, so that the same command
 * finds nothing to do and a longer input is gone on with. */
#ifndef ROSE_BASE_RESUME_H
#define ROSE_BASE_RESUME_H

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"

enum { RESUME_OPTIONS = 24 };
struct resume {
    const char *made_by;               /* "rose embed" */
    const char *output;                /* FILE */
    const char *model, *fingerprint;   /* for messages; of the model's files (rose_fingerprint) */
    struct { const char *name, *value; } option[RESUME_OPTIONS]; /* those that answers depend on, as they are typed, without dashes */
    int options;
};
/* Room is the caller's to keep: name and value are not copied. */
void resume_option(struct resume *r, const char *name, const char *value);

struct resume_mark {
    uint64_t name, asked; /* name 0: by the order of the lines */
};
/* Never 0. */
uint64_t resume_hash(const void *bytes, size_t n);
struct resume_marks {
    struct resume_mark *mark;
    size_t count, room;
};
bool resume_marks_add(struct resume_marks *m, struct resume_mark mark);
void resume_marks_free(struct resume_marks *m);

/* What FILE.resume says, for a FILE that is not empty. No FILE.resume, or one of another command, model or option, is an error that says which. */
enum rose_status resume_read(const struct resume *r, struct resume_marks *out, struct rose_error *err);
/* Before anything is written to FILE. */
enum rose_status resume_write(const struct resume *r, const struct resume_marks *marks, struct rose_error *err);
/* "…: what to do", the end of every refusal: another output, or --restart. */
enum rose_status resume_refuse(const struct resume *r, struct rose_error *err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
