/* Every wrapper compiles and assembles for each of its architectures. Needs NVRTC, no GPU. */
#include "base/str.h"
#include "jit/jit.h"
#include "test.h"

TEST(every_wrapper)
{
    static const char *const arches[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
    struct rose_error err = {0};
    struct jit *jit = NULL;
    const struct jit_kernel *k[5] = {0};
    CHECK_OK(jit_open(&(struct jit_options){.override_dir = "tests/simt"}, &jit, &err), err);
    for (int i = 0; i < 5; i++)
        CHECK_OK(jit_request(jit, "every_wrapper", arches[i], NULL, 0, &k[i], &err), err);
    CHECK_OK(jit_compile_all(jit, &err), err);
    for (int i = 0; i < 5 && k[i]; i++) {
        struct jit_info info = jit_info(k[i]);
        CHECK(info.cubin_bytes > 10000);
        CHECK_INT(info.entries_count, 1);
        printf("  %s: %zu bytes of cubin, compiled in %.0f ms\n", arches[i], info.cubin_bytes,
               info.compile_ms);
    }
    jit_close(jit);
}

TEST_MAIN(CASE(every_wrapper))
