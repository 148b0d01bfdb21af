#include "model/head_pt.h"

#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "tensor/dtype.h"

/* A .pt file is a ZIP archive whose members are stored as they are: NAME/data.pkl says which tensors there are, NAME/data/0 holds the
 * weight [1, hidden], NAME/data/1 the bias. Of the pickle only the name of the storages' type is looked for: two tensors of 1 x hidden and 1
 * elements can only be these. Offsets: APPNOTE.TXT 4.3.12 and 4.3.7. */
static struct str zip_member(const struct file_map *map, const char *end)
{
    static const struct str none = {NULL, 0};
    const uint8_t *p = map->data;
    size_t n = map->size, at = n < 22 ? 0 : n - 22;
    while (at && memcmp(p + at, "PK\5\6", 4)) at--;
    if (n < 22 || memcmp(p + at, "PK\5\6", 4)) return none;
    uint32_t dir;
    uint16_t count, name_n, extra_n, comment_n, method;
    memcpy(&count, p + at + 10, 2);
    memcpy(&dir, p + at + 16, 4);
    for (size_t e = dir; count--; e += 46u + name_n + extra_n + comment_n) {
        if (e + 46 > n || memcmp(p + e, "PK\1\2", 4)) return none;
        uint32_t stored, size, local;
        memcpy(&method, p + e + 10, 2);
        memcpy(&stored, p + e + 20, 4);
        memcpy(&size, p + e + 24, 4);
        memcpy(&name_n, p + e + 28, 2);
        memcpy(&extra_n, p + e + 30, 2);
        memcpy(&comment_n, p + e + 32, 2);
        memcpy(&local, p + e + 42, 4);
        if (e + 46 + name_n > n) return none;
        if (!str_ends((struct str){(const char *)p + e + 46, name_n}, str_of(end))) continue;
        if (method || stored != size || (size_t)local + 30 > n || memcmp(p + local, "PK\3\4", 4)) return none;
        uint16_t local_name, local_extra;
        memcpy(&local_name, p + local + 26, 2);
        memcpy(&local_extra, p + local + 28, 2);
        size_t begin = (size_t)local + 30 + local_name + local_extra;
        if (begin > n || size > n - begin) return none;
        return (struct str){(const char *)p + begin, size};
    }
    return none;
}

/* The one type that all storages have. */
static bool storage_type(struct str pickle, enum dtype *out)
{
    static const struct { const char *name; enum dtype dtype; } types[] = {{"BFloat16Storage", DTYPE_BF16}, {"HalfStorage", DTYPE_F16}, {"FloatStorage", DTYPE_F32}};
    int found = 0;
    for (size_t i = 0; i < ROSE_COUNT(types); i++)
        if (pickle.n && str_find(pickle, str_of(types[i].name), 0) >= 0) *out = types[i].dtype, found++;
    return found == 1;
}

enum rose_status head_pt_read(const char *path, size_t hidden, float *weight, float *bias, struct rose_error *err)
{
    struct file_map map;
    enum dtype dtype = DTYPE_F32;
    ROSE_TRY(file_map_open(&map, path, err));
    struct str w = zip_member(&map, "/data/0"), b = zip_member(&map, "/data/1");
    bool typed = storage_type(zip_member(&map, "/data.pkl"), &dtype);
    size_t size = dtype == DTYPE_F32 ? 4 : 2;
    bool good = typed && hidden && w.n == size * hidden && b.n == size;
    if (good) {
        dtype_decode(dtype, w.p, weight, hidden);
        dtype_decode(dtype, b.p, bias, 1);
    }
    file_map_close(&map);
    return good ? ROSE_OK : status_at(err, ROSE_FORMAT, path, -1, "%s does not hold a weight of 1 x %zu and a bias of 1 of one type (float32, float16, bfloat16), stored plainly; save it as sparse_linear.safetensors",
                                      path, hidden);
}
