#include "device/cuda_api.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/str.h"

static enum rose_status load_symbols(struct cuda_api *api, const char *path, struct rose_error *err)
{
    void *symbol;
    /* POSIX's way from void * to a function pointer. */
#define CUDA_API_LOAD(required, field, name, arguments)                                                     \
    symbol = dlsym(api->library, #name);                                                                    \
    if (!symbol && required)                                                                                \
        return status_set(err, ROSE_UNSUPPORTED,                                                            \
                          "%s has no %s: the NVIDIA driver is older than 520 (CUDA 11.8); update it", path, \
                          #name);                                                                           \
    *(void **)&api->field = symbol;
    CUDA_API_FUNCTIONS(CUDA_API_LOAD)
#undef CUDA_API_LOAD
    return ROSE_OK;
}

enum rose_status cuda_api_load(const char *path, struct cuda_api *api, struct rose_error *err)
{
    static const char *const usual[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/lib/wsl/lib/libcuda.so.1"};
    const char *const *places = path ? &path : usual;
    size_t n = path ? 1 : ROSE_COUNT(usual);
    struct strbuf tried = {.limit = 800};
    *api = (struct cuda_api){0};
    for (size_t i = 0; i < n; i++) {
        api->library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
        if (api->library) {
            strbuf_free(&tried);
            enum rose_status s = load_symbols(api, places[i], err);
            if (s != ROSE_OK) cuda_api_unload(api);
            return s;
        }
        const char *why = dlerror();
        strbuf_printf(&tried, "%s%s", i ? "; " : "", why ? why : places[i]);
    }
    status_set(err, ROSE_NOT_FOUND,
               "no NVIDIA driver on this machine (%s). Install it, or serve from the CPU with --device cpu",
               tried.p ? tried.p : "out of memory");
    strbuf_free(&tried);
    return ROSE_NOT_FOUND;
}

void cuda_api_unload(struct cuda_api *api)
{
    if (api->library) dlclose(api->library);
    *api = (struct cuda_api){0};
}

bool cuda_api_sticky(cu_result code)
{
    return code == CU_ERROR_ECC || code == CU_ERROR_ILLEGAL_ADDRESS || code == CU_ERROR_LAUNCH_TIMEOUT ||
           code == CU_ERROR_ASSERT || (code >= CU_ERROR_HARDWARE_STACK && code <= CU_ERROR_LAUNCH_FAILED) ||
           code == CU_ERROR_TENSOR_MEMORY_LEAK || code == CU_ERROR_UNKNOWN;
}

enum rose_status cuda_api_error(const struct cuda_api *api, cu_result code, struct rose_error *err,
                                const char *fmt, ...)
{
    char context[512];
    const char *name = NULL, *text = NULL;
    va_list args;
    va_start(args, fmt);
    vsnprintf(context, sizeof context, fmt, args);
    va_end(args);
    if (api->error_name(code, &name) != CU_SUCCESS || !name) name = "an error this driver has no name for";
    if (api->error_string(code, &text) != CU_SUCCESS || !text) text = "no description";
    enum rose_status s = code == CU_ERROR_OUT_OF_MEMORY ? ROSE_NO_MEMORY
                         : code == CU_ERROR_NO_DEVICE   ? ROSE_NOT_FOUND
                                                        : ROSE_DEVICE;
    return status_set(err, s, "%s: %s (%d), %s", context, name, code, text);
}
