/* Fetching a repository of the hub into its cache. pull.c: what; pull_blob.c: one file. */
#ifndef ROSE_CLI_PULL_H
#define ROSE_CLI_PULL_H

#include "base/arena.h"
#include "base/option.h"
#include "cli/http.h"

struct pull_file {
    struct str path;  /* in the repository; safe (hub_safe_path) */
    int64_t size;     /* -1: unknown */
    char name[65];    /* its blob's name: SHA-256, or git's SHA-1 of small files; "": unknown yet */
    bool wanted;
};

struct pull {
    struct http *http;
    struct arena arena;
    const char *endpoint, *token, *repo_dir, *lock_dir;
    struct str org, name, revision;
    char commit[65];
    struct pull_file *files;
    size_t count;
    int64_t total, done; /* bytes of all wanted files */
    bool quiet;
    double began, shown; /* of the progress line, seconds */
    int64_t began_done;
};

/* An address below the endpoint: prefix, then a path with everything unusual percent-encoded, slashes too unless kept. In the arena. */
const char *pull_url(struct pull *p, const char *prefix, struct str path, bool slashes);
/* Fetch one file into blobs/ unless it is there, check it, and link it into the snapshot. */
enum rose_status pull_blob(struct pull *p, struct pull_file *file, struct rose_error *err);
/* The progress line: `done` bytes of the current file beside p->done. */
void pull_progress(struct pull *p, const struct pull_file *file, int64_t done);

/* The whole: `model` is ORG/NAME[@REVISION]; *snapshot (in the caller's arena) is where it lies. */
enum rose_status pull_model(const char *model, struct arena *arena, const char **snapshot, struct rose_error *err);

#endif
