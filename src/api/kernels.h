/* rose_kernels, between its files. */
#ifndef ROSE_API_KERNELS_H
#define ROSE_API_KERNELS_H

#include "api/internal.h"
#include "engine/pool.h"
#include "jit/jit.h"
#include "ops/plan.h"

enum { KERNELS_ROWS = 512, KERNELS_SAME = 64, KERNELS_DISTINCT = 1024 };

/* Launches of one step that are alike but for their layer. */
struct kernels_row {
    const struct program_launch *launch; /* the first */
    const struct planned *planned;       /* NULL: a library's product */
    const struct program_launch *same[KERNELS_SAME]; /* some of them, the first too */
    int count;
    double bytes, ops, limit_us, predicted_us, measured_us; /* of one; measured_us < 0: not measured */
    uint32_t grid[3];
};

/* Whose programs they are: an engine's or, of a model that embeds, classifies or scores, a pool's. */
struct kernels_source {
    struct device *device;
    struct model *model;
    struct engine *engine; /* one of the two */
    struct pool *pool;
    int32_t context; /* tokens of a sequence, or of a text */
};

struct kernels_step {
    const char *kind; /* "decode", "prompt", "sample", "fetch"; a pool's: "texts" */
    int32_t rows, seqs;
    struct program *program;
    struct extents extents;
    struct kernels_row *row; /* [KERNELS_ROWS] */
    int rows_count;
};

/* The step's launches by kind. limit: the longer of the bytes at 7/8 of the memory's rate (what a clone reaches) and the operations at
 * the tensor cores' rate. */
enum rose_status kernels_step_read(const struct kernels_source *source, struct kernels_step *step, struct rose_error *err);
/* kernels_measure.c: run each kind of launch with a step of sequences (texts) of the source's context behind it. */
enum rose_status kernels_step_measure(const struct kernels_source *source, struct kernels_step *step, struct rose_error *err);

/* Dense BF16 operations a second of the tensor cores of an architecture's usual card; 0: unknown. */
double kernels_tensor_rate(const char *arch);
/* A planning device of this architecture and what compiles for it. */
enum rose_status kernels_open_planned(const char *arch, const char *cache_dir, const char *nvrtc, struct rose_device **out, struct rose_error *err);

/* The text of a kernel. */
enum rose_status kernels_show(struct jit *jit, const struct jit_kernel *kernel, enum rose_kernels_show show, struct strbuf *out, struct rose_error *err);

#endif
