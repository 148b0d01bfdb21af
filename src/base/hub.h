/* The Hugging Face hub's cache on disk, shared with its Python client (huggingface_hub, "Understand caching"):
 *
 *     <cache>/models--ORG--NAME/refs/main                      a commit's hash
 *     <cache>/models--ORG--NAME/blobs/<etag>                   contents, once each
 *     <cache>/models--ORG--NAME/snapshots/<commit>/config.json -> ../../blobs/<etag>
 *     <cache>/.locks/models--ORG--NAME/<etag>.lock             flock while a blob is fetched
 */
#ifndef ROSE_BASE_HUB_H
#define ROSE_BASE_HUB_H

#include "base/arena.h"
#include "base/str.h"

/* HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub: the first that is set; NULL: none is. */
const char *hub_cache_dir(struct arena *arena);
/* ORG/NAME, optionally @REVISION, of the characters the hub allows; false: it is something else (a path). revision.n 0: none. */
bool hub_name(const char *text, struct str *org, struct str *name, struct str *revision);
/* <cache>/models--ORG--NAME. */
const char *hub_repo_dir(struct arena *arena, const char *cache, struct str org, struct str name);
/* A name for a file or reference that stays below its directory: no empty, "." or ".." part, no backslash, no control character. */
bool hub_safe_path(struct str path);
/* 7 to 64 lower-case hexadecimal digits: a commit or a blob's name. */
bool hub_is_hash(struct str text);

#endif
