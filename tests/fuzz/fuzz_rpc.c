/* libFuzzer: KServe's ModelInferRequest as it comes over gRPC. What is accepted must be readable to its end. In a build without gRPC nothing is. */
#include "fuzz_kserve.h"
#include "server/rpc_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct kserve_request r;
    struct api_error e = {0};
    struct str model, version;
    void *message = rpc_read_unpack((struct str){(const char *)data, size}, &model, &version);
    if (!message) return 0;
    arena_init(&arena, (size_t)64 << 20);
    if (rpc_read(message, &arena, NULL, &r, &e)) {
        for (int i = 0; i < r.inputs_count; i++) use(&r.inputs[i]);
        sum += (double)model.n + (double)version.n;
    } else if (e.status < 400 || !e.message[0]) {
        abort();
    }
    arena_free(&arena);
    rpc_read_free(message);
    return 0;
}
