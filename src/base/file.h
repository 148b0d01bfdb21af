/* Files: read-only maps, whole small reads, atomic writes. */
#ifndef ROSE_BASE_FILE_H
#define ROSE_BASE_FILE_H

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

/* A file mapped read-only. Pages come in when touched; file_map_release gives them back. */
struct file_map {
    const uint8_t *data; /* NULL when the file is empty */
    size_t size;
    char *path; /* owned */
};
enum rose_status file_map_open(struct file_map *map, const char *path, struct rose_error *err);
void file_map_close(struct file_map *map);
/* Tell the system that [offset, offset + n) will not be read soon; whole pages inside it lose their memory. */
void file_map_release(const struct file_map *map, size_t offset, size_t n);

/* Read a whole file of at most limit bytes into the arena, NUL-terminated. */
enum rose_status file_read(struct arena *arena, const char *path, size_t limit, struct str *out, struct rose_error *err);
/* Write beside path, fsync, rename: readers see the old file or the new one. A pipe or a device at path is written to and stays. */
enum rose_status file_write_atomic(const char *path, struct str content, struct rose_error *err);
bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* mkdir -p with mode 0755. */
enum rose_status file_make_dirs(const char *path, struct rose_error *err);
/* dir/name in the arena. */
char *file_join(struct arena *arena, const char *dir, const char *name);

#endif
