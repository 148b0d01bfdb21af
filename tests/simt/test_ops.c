/* Every op's kernel, as its plan launches it, on the CPU harness: for each architecture whose plan differs,
 * in several orders. */
#include <time.h>

#include "op_cases.h"
#include "simt.h"
#include "simt_tensor_map.h"
#include "test.h"

enum { SM_80 = 0, SM_90 = 2, SM_100 = 3, SM_120 = 4 }; /* of op_devices */

struct context {
    const struct device_info *device;
    uint64_t seed;
};

static void *buffer(void *context, const char *name, size_t bytes, const void *data, bool constant)
{
    (void)context;
    return constant ? simt_constant(name, bytes, data) : simt_buffer(name, bytes, data);
}
static bool run(void *context, const struct plan *plan, const void *params, size_t bytes)
{
    const struct context *c = context;
    char defines[1500], file[100];
    (void)bytes;
    CHECK(plan_defines(plan, c->device, defines, sizeof defines));
    snprintf(file, sizeof file, "src/kernels/cuda/%s.cu", plan->kernel);
    struct simt_report r =
        simt_launch(&(struct simt_launch){.kernel = simt_kernel(file, plan->kernel, defines),
                                          .grid = {plan_grid(plan, plan->rows)},
                                          .block = {plan->block},
                                          .shared_bytes = plan->shared_bytes,
                                          .cluster = plan->cluster,
                                          .cooperative = plan->cooperative,
                                          .dependent = plan_arch(c->device) >= 900,
                                          .seed = c->seed},
                    params);
    CHECK_SIMT_CLEAN(r);
    return r.fault == SIMT_CLEAN;
}
static void read_back(void *context, void *dst, const void *src, size_t bytes)
{
    (void)context;
    memcpy(dst, src, bytes);
}
static void map(void *context, struct tensor_map *out, const void *base, const struct layout_tma *box)
{
    struct simt_tensor t = {
        .base = (void *)(uintptr_t)base, .rank = box->rank, .element_bytes = 2, .swizzle = (uint32_t)box->swizzle_bytes};
    (void)context;
    for (int i = 0; i < box->rank; i++) {
        t.dim[i] = (uint32_t)box->dim[i], t.box[i] = (uint32_t)box->box[i];
        if (i) t.stride[i - 1] = (uint64_t)box->stride_bytes[i];
    }
    simt_tensor_map(out, &t);
}
static void reset(void *context)
{
    (void)context;
    simt_reset();
}

/* The CPU compiles a kernel anew only when its constants or the vector width differ: sm_90a stands for all
 * that share them. */
static bool same_code(int i, const struct device_info *a, const struct device_info *b)
{
    struct plan p, q;
    char x[1500], y[1500];
    if (!op_cases_plan(i, a, 0, &p) || !op_cases_plan(i, b, 0, &q)) return false;
    if (!plan_defines(&p, a, x, sizeof x) || !plan_defines(&q, b, y, sizeof y)) return false;
    return !strcmp(strchr(x, ' '), strchr(y, ' ')) && !strcmp(p.kernel, q.kernel);
}

/* How many cases the filter let through. */
static int run_device(int d, const char *filter)
{
    int ran = 0;
    struct context context = {&op_devices[d], 0};
    struct op_io io = {&op_devices[d], buffer, run, read_back, reset, &context, 0, map};
    for (int i = 0; op_cases_name(i); i++) {
        if (filter && !strstr(op_cases_name(i), filter)) continue;
        ran++;
        if (!op_cases_there(i, &op_devices[d])) continue;
        if (d != SM_90 && same_code(i, &op_devices[d], &op_devices[SM_90])) continue;
        for (context.seed = 0; context.seed < (d == SM_90 ? 2u : 1u); context.seed++) {
            int wrong = op_cases_run(i, &io);
            if (wrong) fprintf(stderr, "%s on %s: %d wrong\n", op_cases_name(i), op_devices[d].arch, wrong);
            CHECK_INT(wrong, 0);
        }
    }
    return ran;
}

TEST(sm_90)
{
    run_device(SM_90, NULL);
}
TEST(sm_80)
{
    run_device(SM_80, NULL);
}
TEST(sm_100)
{
    run_device(SM_100, NULL);
}
TEST(sm_120)
{
    run_device(SM_120, NULL);
}

/* Plans are the same whenever they are asked for, and say what they mean. */
TEST(plans_print)
{
    struct plan a, b;
    for (int i = 0; op_cases_name(i); i++)
        for (int d = 0; d < OP_DEVICES; d++) {
            struct strbuf x = {0}, y = {0};
            if (!op_cases_there(i, &op_devices[d])) {
                CHECK(!op_cases_plan(i, &op_devices[d], 0, &a));
                continue;
            }
            CHECK(op_cases_plan(i, &op_devices[d], 0, &a) && op_cases_plan(i, &op_devices[d], 0, &b));
            plan_print(&a, &x), plan_print(&b, &y);
            CHECK(x.p && y.p && !strcmp(x.p, y.p));
            CHECK(a.count <= PLAN_MAX_CONSTANTS && a.block % 32 == 0 && a.block <= 1024 && a.bytes > 0 &&
                  a.predicted_us > 0.9);
            strbuf_free(&x), strbuf_free(&y);
        }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(plans_print), CASE(sm_90), CASE(sm_80), CASE(sm_100), CASE(sm_120)};
    if (argc > 2 && !strcmp(argv[1], "--only")) { /* --only FILTER [ARCH] */
        int ran = 0;
        for (int d = 0; d < OP_DEVICES; d++)
            if (!strcmp(op_devices[d].arch, argc > 3 ? argv[3] : "sm_90a")) ran += run_device(d, argv[2]);
        printf(test_failures_ || !ran ? "%d cases, FAIL\n" : "%d cases, passed\n", ran);
        return test_failures_ || !ran;
    }
    return test_run_all(cases, sizeof cases / sizeof *cases, argc, argv);
}
