/* Models come and go while others are served: threads open and close engines, the loop takes over what they have done. Repositories are
 * directories of models:
 *
 *     DIR/NAME/config.json        a Hugging Face directory, version 1
 *     DIR/NAME/3/config.json      its version 3 (Triton's layout); the highest one is served, or what versions.h says
 *     DIR/NAME/model.gguf         likewise, also below a version
 *     DIR/NAME.gguf
 */
#ifndef ROSE_SERVER_LOADER_H
#define ROSE_SERVER_LOADER_H

#include "server/models.h"

/* Whoever waits for the end of a loading or unloading: called once, then forgotten. status is that of the loading. */
struct model_wait {
    void (*done)(struct model_wait *w, struct model *model, enum rose_status status, const struct rose_error *err);
    struct model_wait *next;
};

enum rose_status loader_open(struct models *m, struct rose_error *err);
void loader_close(struct models *m);
/* Readable when loader_run has something to do. */
int loader_fd(const struct models *m);
void loader_run(struct models *m);
void loader_wake(struct models *m);

/* Begin to load it, or when it is being unloaded, as soon as that is done; wait may be NULL. A version that is up is left; when this one is ready, ready versions of its name that the name's policy does
 * not want are unloaded. */
enum rose_status loader_load(struct models *m, struct model *model, struct model_wait *wait, struct rose_error *err);
/* The same on this thread, for the start; its cache may take so much of the memory that is left. */
enum rose_status loader_load_now(struct models *m, struct model *model, double share, struct rose_error *err);
/* It takes no more requests; its engine is closed when those under way have ended. */
enum rose_status loader_unload(struct models *m, struct model *model, struct rose_error *err);
/* Unload what the policy of the model's name does not want. */
void loader_retire(struct models *m, const struct model *model);
void loader_forget(struct model *model, struct model_wait *wait);

/* A directory that holds models and is none. */
bool repository_is(const char *path);
/* Add what is new there; what is known stays as it is. Nothing at all there is an error. */
enum rose_status repository_scan(struct models *m, const char *dir, struct rose_error *err);

#endif
