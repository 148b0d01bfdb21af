/* Rose embedded in another program (embed: not vectors, for which rose_request.task is ROSE_TASK_EMBED): one streamed continuation of a text.
 * Where librose lies in no folder of the loader's, add -Wl,-rpath,$(pkg-config --variable=libdir rose).
 *
 *     cc embed.c $(pkg-config --cflags --libs rose) && ./a.out MODEL "text" */
#include <rose.h>
#include <stdio.h>
#include <string.h>

static int fail(const struct rose_error *err)
{
    fprintf(stderr, "%s\n", err->message);
    return 1;
}

int main(int argc, char **argv)
{
    struct rose_error err = {0};
    struct rose_device *device;
    struct rose_engine *engine;
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
    if (rose_device_open(&(struct rose_device_options){0}, &device, &err)) return fail(&err);
    if (rose_engine_open(device, &(struct rose_engine_options){.model = argv[1], .max_sequences = 1}, &engine, &err)) return fail(&err);

    struct rose_request request;
    rose_request_init(&request);
    request.prompt = argv[2];
    request.prompt_bytes = strlen(argv[2]);
    request.max_tokens = 64;
    uint64_t id;
    if (rose_submit(engine, &request, &id, &err)) return fail(&err);

    for (bool done = false; !done;) {
        struct rose_event events[16];
        size_t n = rose_events(engine, events, 16, -1);
        for (size_t i = 0; i < n; i++) {
            if (events[i].kind == ROSE_EVENT_TOKEN) fwrite(events[i].text, 1, events[i].text_bytes, stdout);
            if (events[i].kind == ROSE_EVENT_FINAL) done = true;
        }
        fflush(stdout);
    }
    putchar('\n');
    rose_engine_close(engine);
    rose_device_close(device);
    return 0;
}
