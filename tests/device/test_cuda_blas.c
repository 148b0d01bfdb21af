/* cuBLASLt's algorithms by measuring, without either: the fake driver tells what an algorithm "takes" (fake_cuda.c, fake_blas.c). And the file
 * that keeps them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "device/cuda.h"
#include "device/cuda_blas.h"
#include "device/cuda_blas_table.h"
#include "fake_blas.h"
#include "test.h"

static char dir_[4096], cache_[] = "/tmp/rose-test-blas-XXXXXX";
static void (*reset)(void), (*elapsed)(float);
static struct fake_blas *fake;
static float takes_[FAKE_BLAS_CHOICES]; /* milliseconds */

static void on_matmul(int algorithm) { elapsed(takes_[algorithm]); }

static char *beside(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir_, name);
    return path;
}

static void *symbol(const char *library, const char *name)
{
    void *l = dlopen(beside(library), RTLD_NOW | RTLD_LOCAL), *s = l ? dlsym(l, name) : NULL;
    if (!s) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return s;
}

static void setup(void)
{
    ssize_t n = readlink("/proc/self/exe", dir_, sizeof dir_ - 1);
    dir_[n > 0 ? n : 0] = '\0';
    *strrchr(dir_, '/') = '\0';
    *(void **)&reset = symbol("fake_cuda.so", "fake_reset");
    *(void **)&elapsed = symbol("fake_cuda.so", "fake_elapsed");
    struct fake_blas *(*state)(void);
    *(void **)&state = symbol("fake_blas.so", "fake_blas");
    fake = state();
    if (!mkdtemp(cache_)) exit(1);
}

static void clear_cache(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s/cublaslt", cache_);
    if (system(command)) exit(1);
}

enum { N = 64, K = 32, LAYERS = 3 };
struct bench {
    struct device *device;
    struct program *program;
    uint16_t w[LAYERS][N * K], one[N / 2 * K], x[512 * K], y[512 * N], one_y[512 * N];
};

static void add_product(struct bench *b, int32_t n, const void *w, program_buffer_id panel, void *y)
{
    struct cuda_blas_params p = {.blas = b->device->blas, .x = b->x, .w = w, .y = y, .x_stride = K, .y_stride = N, .n = n, .k = K, .alpha = 1};
    struct program_launch l = {.name = "product", .params = &p, .params_bytes = sizeof p, .host = cuda_blas_run, .rows_extent = EXTENT_ROWS,
                               .rows_param = (uint16_t)(1 + offsetof(struct cuda_blas_params, rows))};
    program_use(&l, panel, PROGRAM_READ, offsetof(struct cuda_blas_params, w));
    program_add(b->program, &l);
}

/* A program of one product a layer, made for so many rows; and, where more is set, of one of other weights, or of a panel. */
enum more { NOTHING, ONE_WEIGHT, ONE_PANEL };
static void open_bench_with(struct bench *b, int64_t rows, enum more more)
{
    struct rose_error err = {0};
    struct device_options o = {.kind = DEVICE_CUDA, .driver = beside("fake_cuda.so")};
    reset();
    *fake = (struct fake_blas){.refused = -1, .matmul = on_matmul};
    *b = (struct bench){0};
    CHECK_OK(device_open(&o, &b->device, &err), err);
    CHECK_OK(cuda_blas_open(b->device, &(struct cuda_blas_places){.path = beside("fake_blas.so"), .cache_dir = cache_}, &b->device->blas, &err), err);
    CHECK_OK(program_open(b->device, &b->program, &err), err);
    b->program->expect.n[EXTENT_ROWS] = rows;
    for (int i = 0; i < LAYERS && b->device->blas; i++) add_product(b, N, b->w[i], 0, b->y);
    if (more) add_product(b, N / 2, b->one, more == ONE_PANEL ? program_buffer(b->program, "panel", sizeof b->one) : 0, b->one_y);
    CHECK_OK(program_finish(b->program, NULL, 0, &err), err);
}
static void open_bench(struct bench *b, int64_t rows) { open_bench_with(b, rows, NOTHING); }

static void close_bench(struct bench *b)
{
    program_close(b->program);
    struct cuda_blas *blas = b->device->blas;
    cuda_blas_close(blas);
    device_close(b->device);
    CHECK_INT(fake->alive, 0);
}

static struct cuda_blas_tuned tune(struct bench *b, double limit_s)
{
    struct cuda_blas_tuned t;
    struct rose_error err = {0};
    CHECK_OK(cuda_blas_tune(b->device, &b->program, 1, limit_s, &t, &err), err);
    return t;
}

/* Which algorithm multiplies so many rows. */
static int chosen(struct bench *b, int rows)
{
    struct rose_error err = {0};
    CHECK_OK(device_submit(b->device, b->program, &(struct extents){.n = {[EXTENT_ONE] = 1, [EXTENT_ROWS] = rows}}, &err), err);
    return fake->last;
}

static void take(float a, float b, float c, float d) { takes_[0] = a, takes_[1] = b, takes_[2] = c, takes_[3] = d; }

/* Nothing is known yet, and this is what the algorithms take. */
static void begin(struct bench *b, float first, float second, float third, float fourth)
{
    clear_cache();
    take(first, second, third, fourth);
    open_bench(b, 256);
}

TEST(the_fastest_is_taken_and_kept)
{
    static struct bench b;
    begin(&b, 4, 3, 1, 2);
    struct cuda_blas_tuned t = tune(&b, 60);
    CHECK_INT(t.shapes, 1);
    CHECK_INT(t.measured, 1);
    CHECK_INT(t.changed, 1);
    CHECK_INT(chosen(&b, 256), 2);
    CHECK_INT(chosen(&b, 200), 2); /* a few rows less */
    CHECK_INT(chosen(&b, 100), 0);
    CHECK_INT(chosen(&b, 300), 0);
    close_bench(&b);
    /* A second start measures nothing and knows it still, whatever the library would answer now. */
    take(1, 1, 9, 1);
    open_bench(&b, 256);
    t = tune(&b, 60);
    CHECK_INT(t.measured, 0);
    CHECK_INT(t.changed, 1);
    CHECK_INT(fake->matmuls, 0);
    CHECK_INT(chosen(&b, 256), 2);
    CHECK_INT(fake->heuristics, 0);
    CHECK_INT(fake->checks, 1);
    close_bench(&b);
}

TEST(its_first_choice_stays_unless_another_is_clearly_faster)
{
    static struct bench b;
    begin(&b, 1, 0.99f, 1.2f, 1);
    CHECK_INT(tune(&b, 60).changed, 0);
    CHECK_INT(chosen(&b, 256), 0);
    close_bench(&b);
}

TEST(what_the_library_refuses_is_not_taken)
{
    static struct bench b;
    begin(&b, 3, 1, 2, 2.5f);
    fake->refused = 1; /* while measuring */
    CHECK_INT(tune(&b, 60).measured, 1);
    CHECK_INT(chosen(&b, 256), 2);
    close_bench(&b);
    open_bench(&b, 256);
    fake->refused = 2; /* kept by an earlier start, not known any more */
    CHECK_INT(chosen(&b, 256), 0);
    close_bench(&b);
}

TEST(no_time_leaves_it_to_a_later_start)
{
    static struct bench b;
    begin(&b, 4, 3, 1, 2);
    CHECK_INT(tune(&b, 0).measured, 0);
    CHECK_INT(fake->matmuls, 0);
    CHECK_INT(chosen(&b, 256), 0);
    CHECK_INT(tune(&b, 60).measured, 1);
    CHECK_INT(chosen(&b, 256), 2);
    close_bench(&b);
}

/* Which weights the product into one_y is measured with. */
static const void *seen_[2 * LAYERS], *watched_;
static int seen_count_;
static void watch(int algorithm)
{
    bool known = fake->y != watched_ || seen_count_ == 2 * LAYERS;
    elapsed(takes_[algorithm]);
    for (int i = 0; i < seen_count_; i++) known |= seen_[i] == fake->w;
    if (!known) seen_[seen_count_++] = fake->w;
}

/* Weights that a step reads from memory are not measured out of L2: a matrix without another of its shape takes turns with larger ones. A panel was
 * written right before its product. */
TEST(one_matrix_is_not_measured_out_of_the_cache)
{
    static struct bench b;
    for (enum more more = ONE_WEIGHT; more <= ONE_PANEL; more++) {
        clear_cache();
        take(4, 3, 1, 2);
        open_bench_with(&b, 256, more);
        seen_count_ = 0, watched_ = b.one_y, fake->matmul = watch;
        CHECK_INT(tune(&b, 60).measured, 2);
        CHECK_INT(seen_count_, more == ONE_WEIGHT ? 1 + LAYERS : 1);
        if (more == ONE_WEIGHT) CHECK(seen_[0] == b.one);
        close_bench(&b);
    }
}

/* --- the file ------------------------------------------------------------------------------------------------------------------ */

static struct blas_measured row(uint32_t rows)
{
    struct blas_measured m;
    memset(&m, 0, sizeof m);
    m.key.n = 8, m.key.k = 16, m.key.x_stride = 16, m.key.y_stride = 8, m.key.rows = rows;
    m.algorithm.data[0] = rows;
    m.us = 1, m.first_us = 2;
    return m;
}

static void add(struct cuda_blas_table *t, uint32_t rows)
{
    struct rose_error err = {0};
    struct blas_measured m = row(rows);
    CHECK_OK(cuda_blas_table_add(t, &m, &err), err);
}

static int rows_there(const char *identity)
{
    struct cuda_blas_table t;
    cuda_blas_table_open(&t, cache_, identity);
    int n = t.count;
    cuda_blas_table_close(&t);
    return n;
}

TEST(a_damaged_file_is_an_empty_one)
{
    struct cuda_blas_table t;
    struct rose_error err = {0};
    struct arena a;
    struct str text = {0};
    clear_cache();
    cuda_blas_table_open(&t, cache_, "A");
    for (uint32_t i = 1; i <= 3; i++) add(&t, i * 100);
    CHECK_OK(cuda_blas_table_save(&t, &err), err);
    CHECK_INT(rows_there("A"), 3);
    CHECK_INT(rows_there("B"), 0);
    arena_init(&a, 0);
    CHECK_OK(file_read(&a, t.path, 1 << 20, &text, &err), err);
    char *copy = malloc(text.n + 1);
    int taken = 0;
    for (size_t i = 0; i < text.n; i++) { /* one wrong bit anywhere */
        memcpy(copy, text.p, text.n);
        copy[i] ^= (char)(1 << i % 8);
        CHECK_OK(file_write_atomic(t.path, (struct str){copy, text.n}, &err), err);
        taken += rows_there("A");
    }
    for (size_t n = 0; n < text.n; n += 7) { /* cut */
        CHECK_OK(file_write_atomic(t.path, (struct str){text.p, n}, &err), err);
        taken += rows_there("A");
    }
    memcpy(copy, text.p, text.n), copy[text.n] = 0;
    CHECK_OK(file_write_atomic(t.path, (struct str){copy, text.n + 1}, &err), err);
    CHECK_INT(taken + rows_there("A"), 0);
    /* And a bad one is replaced. */
    t.changed = true;
    CHECK_OK(cuda_blas_table_save(&t, &err), err);
    CHECK_INT(rows_there("A"), 3);
    free(copy);
    arena_free(&a);
    cuda_blas_table_close(&t);
}

TEST(writers_at_once_leave_a_whole_file)
{
    enum { WRITERS = 4, EACH = 20 };
    clear_cache();
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            int bad = 0;
            for (uint32_t i = 0; i < EACH; i++) {
                struct cuda_blas_table t;
                struct blas_measured m = row((uint32_t)w * 1000 + i + 1);
                cuda_blas_table_open(&t, cache_, "A");
                bad |= cuda_blas_table_add(&t, &m, NULL) != ROSE_OK || cuda_blas_table_save(&t, NULL) != ROSE_OK;
                cuda_blas_table_close(&t);
                bad |= rows_there("A") < 1;
            }
            _exit(bad);
        }
    for (int w = 0, status; w < WRITERS; w++) {
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(rows_there("A") > 0); /* what two lost to each other is measured again */
}

TEST(no_cache_no_file)
{
    struct cuda_blas_table t;
    struct rose_error err = {0};
    cuda_blas_table_open(&t, NULL, "A");
    add(&t, 5);
    CHECK_OK(cuda_blas_table_save(&t, &err), err);
    struct blas_key key = row(4).key;
    CHECK(cuda_blas_table_near(&t, &key) && !cuda_blas_table_find(&t, &key));
    cuda_blas_table_close(&t);
    cuda_blas_table_open(&t, "/proc/nowhere", "A"); /* cannot be written: an error to tell, nothing worse */
    add(&t, 5);
    CHECK(cuda_blas_table_save(&t, &err) != ROSE_OK);
    cuda_blas_table_close(&t);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(the_fastest_is_taken_and_kept), CASE(its_first_choice_stays_unless_another_is_clearly_faster), CASE(what_the_library_refuses_is_not_taken),
        CASE(no_time_leaves_it_to_a_later_start), CASE(one_matrix_is_not_measured_out_of_the_cache), CASE(a_damaged_file_is_an_empty_one), CASE(writers_at_once_leave_a_whole_file), CASE(no_cache_no_file)};
    setup();
    int failed = test_run_all(cases, sizeof cases / sizeof *cases, argc, argv);
    reset();
    clear_cache();
    rmdir(cache_);
    return failed;
}
