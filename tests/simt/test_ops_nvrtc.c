/* Every op's kernel, with the constants of its plan, compiles for every architecture without spills. Needs
 * NVRTC, no GPU. */
#include "base/str.h"
#include "jit/jit.h"
#include "op_cases.h"
#include "test.h"

enum { MOST = 2000 };
static bool verbose_;
static const char *only_ = ""; /* part of a case's name */

TEST(compiles_without_spills)
{
    static const struct jit_kernel *kernels[MOST];
    struct rose_error err = {0};
    struct jit *jit = NULL;
    int n = 0;
    CHECK_OK(jit_open(&(struct jit_options){.cache_dir = NVRTC_CACHE}, &jit, &err), err);
    for (int i = 0; op_cases_name(i); i++)
        for (int d = 0; d < OP_DEVICES; d++) {
            struct plan plan;
            if (!strstr(op_cases_name(i), only_)) continue;
            if (d != 2 && d != (int[]){0, 1, 3, 4}[i % 4]) continue;
            if (!op_cases_there(i, &op_devices[d])) continue; /* tests/simt/test_ops: its plan is refused */
            CHECK(n < MOST);
            if (n == MOST) break;
            CHECK(op_cases_plan(i, &op_devices[d], 0, &plan));
            CHECK_OK(plan_request(&plan, jit, op_devices[d].arch, &kernels[n++], &err), err);
        }
    CHECK_OK(jit_compile_all(jit, &err), err);
    double ms = 0;
    for (int i = 0; i < n && kernels[i]; i++) {
        struct jit_info info = jit_info(kernels[i]);
        CHECK_INT(info.entries_count, 1);
        if (info.entries_count != 1) continue;
        const struct jit_entry *e = &info.entries[0];
        if (e->stack_bytes > 0 || e->spill_stores > 0 || e->spill_loads > 0)
            test_failures_++, fprintf(stderr, "%s %s: stack %d, spills %d + %d\n", info.name, info.arch,
                                      (int)e->stack_bytes, (int)e->spill_stores, (int)e->spill_loads);
        ms += info.compile_ms;
    }
    printf("  %d kernels, %.0f ms each\n", n, ms / (n ? n : 1));
    struct strbuf table = {0};
    if (verbose_) jit_print_kernels(jit, &table), printf("%s", table.p ? table.p : "");
    strbuf_free(&table);
    jit_close(jit);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {CASE(compiles_without_spills)};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--table")) verbose_ = true;
        if (!strcmp(argv[i], "--only") && i + 1 < argc) only_ = argv[++i];
    }
    return test_run_all(cases, 1, 1, argv);
}
