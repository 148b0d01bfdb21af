/* Packed weights of an earlier start, in a file that is mapped instead of packing again. Packing 100 MB takes 35 ms where memory is at
 * hand and 250 ms where the machine must find it first (a guest whose host took the free pages back); mapping takes none of both, and
 * processes that serve the same model share the pages.
 *
 *     DIR/packed/<hash of the model's path>-<hash of the key>.bin
 *     weights as model.c lays them out | zeros to a multiple of 4096 | key | key bytes u64 | weight bytes u64 | checksum u64 | "RosePck2"
 *
 * The key names the program's version, the weights' size, and every file of the model with its path, size, time and inode. A file that
 * is shorter, says another key or belongs to another user is not there; model.c packs a sample of every matrix again and compares, so that
 * another order or layout is noticed too. The checksum is of all weights, and verified whenever they are mapped: a damaged file goes and is written
 * anew. Whoever may write the file is its user alone, who must not cut it while it is mapped (as with any file of the model); the program only renames
 * and removes such files. */
#ifndef ROSE_MODEL_PACKED_H
#define ROSE_MODEL_PACKED_H

#include "base/str.h"
#include "weights/weights.h"

/* The key of a checkpoint whose packed weights have `bytes`, laid out as `layout` (a hash) tells: the same model to generate and to embed is packed
 * in two ways. False: a file cannot be looked at. Free with strbuf_free. */
bool packed_key(const struct weights *weights, size_t bytes, uint64_t layout, struct strbuf *key);
/* The key at the end of an open packed file; false: it is none. free key->p. */
bool packed_read_key(int fd, struct str *key);

/* bytes of packed weights, read-only, as many as the key says; NULL: there are none. *damaged: there were, and have been removed. */
const void *packed_map(const char *dir, const char *model_path, struct str key, size_t bytes, bool *damaged);
void packed_unmap(const void *map, struct str key, size_t bytes);

/* Write memory[bytes] beside the work of others: a thread of the lowest priority that begins after half a second, syncs and renames, and then keeps
 * the folder within `limit` bytes (packed_list_trim; 0: a tenth of the file system). The memory must stay until packed_store_end. NULL: it is not
 * worth it or not possible (more than the limit, too little room on the disk, a file system in memory, no right to write), *why says which. */
struct packed_store;
struct packed_store *packed_store_begin(const char *dir, const char *model_path, struct str key, const void *memory, size_t bytes, uint64_t limit,
                                        const char **why);
/* Ends the writing: small weights are written to the end (a short run leaves them too), large ones are given up. NULL is fine. */
void packed_store_end(struct packed_store *store);

#endif
