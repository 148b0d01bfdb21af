#ifdef ROSE_HAVE_GRPC
#include "server/rpc_api.h"

#include <dlfcn.h>

struct rpc_api rpc_api;

static void on_log(gpr_log_func_args *args) { (void)args; /* peers' mistakes are no news */ }

enum rose_status rpc_api_load(struct rose_error *err)
{
    static bool loaded;
    if (loaded) return ROSE_OK;
    void *library = dlopen(ROSE_GRPC_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) return status_set(err, ROSE_UNSUPPORTED, "--grpc-port needs gRPC's core library, %s: install it (Debian: libgrpc29), or leave the option out", dlerror());
#define X(name)                                                                                                                                      \
    *(void **)&rpc_api.name = dlsym(library, #name);                                                                                                 \
    if (!rpc_api.name) return status_set(err, ROSE_UNSUPPORTED, "%s has no %s: it is another version than the one Rose was built with", ROSE_GRPC_SONAME, #name);
    RPC_FUNCTIONS(X)
#undef X
    rpc_api.gpr_set_log_function(on_log);
    loaded = true;
    return ROSE_OK;
}
#else
typedef int rpc_api_is_not_built;
#endif
