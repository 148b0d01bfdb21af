/* The part of rose bench that measures models which embed, classify or score. */
#ifndef ROSE_CLI_BENCH_TEXTS_H
#define ROSE_CLI_BENCH_TEXTS_H

#include "cli/cli.h"

struct bench_texts {
    int64_t prompt, batch, repeat; /* tokens of a text, texts, rounds */
    const char *file;              /* a text a line, NULL: random tokens */
    bool json;
};
enum rose_status bench_texts_run(struct rose_device *device, struct rose_engine *engine, const struct bench_texts *options, bool profile, struct rose_error *err);

#endif
