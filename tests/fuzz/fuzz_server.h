/* An engine that tokenises and has no weights: what the server's targets put behind their routes. */
#ifndef ROSE_FUZZ_SERVER_H
#define ROSE_FUZZ_SERVER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rose.h"

/* A directory that goes with the process; files that are written there again and again are best in memory. */
static char fuzz_directory[64];

static inline const char *fuzz_path(const char *name)
{
    static char path[4][160];
    static int turn;
    char *to = path[turn++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", fuzz_directory, name);
    return to;
}

static inline void fuzz_clean(void)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "out", "out.resume"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(fuzz_path(names[i]));
    rmdir(fuzz_directory);
}

static inline void fuzz_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}

/* tokenizer: of tests/golden/tokenizer, without .json */
static inline struct rose_engine *fuzz_engine(const char *tokenizer)
{
    static const char config[] = "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"]}", header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    struct rose_error err = {0};
    struct rose_device *device;
    struct rose_engine *engine;
    char file[80 + sizeof header] = {(char)(sizeof header - 1)}, target[4096], name[100];
    snprintf(fuzz_directory, sizeof fuzz_directory, "%s/rose-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    snprintf(name, sizeof name, "tests/golden/tokenizer/%s.json", tokenizer);
    if (!mkdtemp(fuzz_directory) || atexit(fuzz_clean)) abort();
    memcpy(file + 8, header, sizeof header - 1);
    fuzz_write(fuzz_path("config.json"), config, sizeof config - 1);
    fuzz_write(fuzz_path("model.safetensors"), file, 8 + sizeof header - 1 + 4);
    if (!realpath(name, target) || symlink(target, fuzz_path("tokenizer.json"))) abort();
    struct rose_device_options d = {.kind = "cpu", .threads = 1, .no_pin = true};
    struct rose_engine_options o = {.model = fuzz_directory, .tokenizer_only = true};
    if (rose_device_open(&d, &device, &err) || rose_engine_open(device, &o, &engine, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return engine;
}

#endif
