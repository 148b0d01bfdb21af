/* Options: one table a command makes parsing, validation, --help and the man page. Each option is a flag, and where it has an
 * environment name, that variable is its default. This file is the only one that reads the environment.
 */
#ifndef ROSE_BASE_OPTION_H
#define ROSE_BASE_OPTION_H

#include "base/status.h"
#include "base/str.h"

enum option_type {
    OPTION_FLAG,   /* bool: --name, --no-name */
    OPTION_INT,    /* int64_t */
    OPTION_NUMBER, /* double */
    OPTION_TEXT,   /* const char * */
    OPTION_SIZE,   /* int64_t bytes: 4096, 64k, 8M, 2G */
    OPTION_CHOICE, /* const char *, one of `choices` */
    OPTION_LIST,   /* struct option_list: may be given several times */
    OPTION_GROUP,  /* a heading in --help, no option */
};

enum { OPTION_LIST_MAX = 64 };
struct option_list {
    const char *items[OPTION_LIST_MAX];
    int count;
};

struct option {
    const char *name;        /* "threads": --threads N, --threads=N */
    char letter;             /* 't': -t N; 0: none */
    enum option_type type;
    const char *env;         /* "ROSE_THREADS" or NULL */
    const char *value_name;  /* "N" */
    const char *choices;     /* OPTION_CHOICE: "f16|f32" */
    const char *fallback;    /* as text; NULL: the target keeps what it had */
    double low, high;        /* numbers: both 0: no limits */
    const char *help;
    void *target;
};

/* Fallbacks, then the environment, then argv[1..). Words that are no options go to `rest` (at most rest_room), in order; all
 * behind a `--` too. *help is set by --help or -h. Errors are ROSE_INVALID with a sentence that names the option. */
enum rose_status option_parse(const struct option *options, size_t count, int argc, char **argv, const char **rest, int rest_room, int *rest_count,
                              bool *help, struct rose_error *err);
/* The options' part of a --help text, wrapped at `width` columns. */
void option_help(const struct option *options, size_t count, int width, struct strbuf *out);
/* The same as man page source (roff). */
void option_man(const struct option *options, size_t count, struct strbuf *out);

/* A variable of the surroundings that is no option: HOME, XDG_CACHE_HOME, HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT, NO_COLOR,
 * NOTIFY_SOCKET, TERM, CUDA_HOME, CUDA_PATH, VIRTUAL_ENV, CONDA_PREFIX, ROSE_CUDA_DRIVER, ROSE_NVRTC (libraries to use), ROSE_KERNELS, ROSE_KERNEL_SOURCES
 * (docs/cli.md), LD_LIBRARY_PATH, COLUMNS. NULL when unset or empty, and for any other name. */
const char *option_env(const char *name);

/* "64k" and the like; false when it is no size. */
bool option_size(struct str text, int64_t *out);

#endif
