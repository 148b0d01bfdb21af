#define _GNU_SOURCE
#include "model/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "model/packed_list.h"
#include "rose.h"

static const char magic[8] = "RosePck2";

enum { PAGE = 4096, TAIL = 32, PIECE = 4 << 20, MAX_KEY = 1 << 20 };
/* Weights up to this size are written to the end when the model closes early; room of this many times their size is asked for; and where
 * there is little to pack nothing is gained. */
enum { SMALL = 512 << 20, ROOM = 4, LEAST = 4 << 20 };
/* The page cache's large pages, advice that older headers do not know, and of how many ranges one look at a map tells. */
enum { LARGE = 2 << 20, POPULATE_READ = 22, RANGES = 64 };

bool packed_key(const struct weights *w, size_t bytes, uint64_t layout, struct strbuf *key)
{
    *key = (struct strbuf){.limit = MAX_KEY};
    strbuf_printf(key, PACKED_PROGRAM "packed weights, %zu bytes, layout %016llx\n", bytes, (unsigned long long)layout);
    int part = -1;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_tensor *t = weights_tensor(w, i);
        if (t->part == part) continue;
        part = t->part;
        char *whole = realpath(t->file, NULL); /* of use in another folder too */
        bool good = whole && packed_key_line(whole, key);
        free(whole);
        if (!good) return false;
    }
    return part >= 0 && !key->failed;
}

/* "<dir>/packed/<hash>-": what all files of a model begin with, and the file of this key. */
static void names(const char *dir, const char *model_path, struct str key, struct strbuf *folder, struct strbuf *prefix, struct strbuf *file)
{
    *folder = *prefix = *file = (struct strbuf){0};
    char *whole = realpath(model_path, NULL); /* the same model whatever the working directory */
    if (whole) model_path = whole;
    strbuf_printf(folder, "%s/packed", dir);
    strbuf_printf(prefix, "%016llx-", (unsigned long long)hash_bytes(model_path, strlen(model_path), 1));
    strbuf_printf(file, "%s/%s%016llx.bin", folder->p ? folder->p : "", prefix->p ? prefix->p : "", (unsigned long long)hash_bytes(key.p, key.n, 2));
    free(whole);
}

static void names_free(struct strbuf *folder, struct strbuf *prefix, struct strbuf *file)
{
    strbuf_free(folder);
    strbuf_free(prefix);
    strbuf_free(file);
}

static size_t file_bytes(struct str key, size_t bytes) { return size_round_up(bytes, PAGE) + key.n + TAIL; }

static void tail_put(uint8_t tail[TAIL], struct str key, size_t bytes, uint64_t sum)
{
    uint64_t n[3] = {key.n, bytes, sum};
    memcpy(tail, n, sizeof n);
    memcpy(tail + sizeof n, magic, sizeof magic);
}

static bool read_all(int fd, void *to, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* ---- the checksum ----
 *
 * A hash of the hashes of all pieces, which threads share: 100 MB take 10 ms on one core, and a model of gigabytes is read at the memory's rate. */

enum { SUM_PIECE = 2 << 20, SUM_THREADS = 8, SUM_SHARE = 16 }; /* pieces that are worth a thread */

struct summing {
    const uint8_t *memory;
    size_t bytes, pieces;
    uint64_t *sums;
    atomic_size_t next;
};

static void *sum_pieces(void *arg)
{
    struct summing *s = arg;
    for (size_t i; (i = atomic_fetch_add(&s->next, 1)) < s->pieces;) s->sums[i] = hash_bytes(s->memory + i * SUM_PIECE, ROSE_MIN(s->bytes - i * SUM_PIECE, (size_t)SUM_PIECE), i);
    return NULL;
}

/* False: out of memory. */
static bool checksum(const void *memory, size_t bytes, size_t threads, uint64_t *sum)
{
    struct summing s = {.memory = memory, .bytes = bytes, .pieces = (bytes + SUM_PIECE - 1) / SUM_PIECE};
    pthread_t others[SUM_THREADS];
    size_t n = 0, most = ROSE_MIN(threads, ROSE_MIN((size_t)SUM_THREADS, s.pieces / SUM_SHARE));
    if (!(s.sums = malloc(s.pieces * sizeof *s.sums + 1))) return false;
    while (n + 1 < most && pthread_create(&others[n], NULL, sum_pieces, &s) == 0) n++;
    sum_pieces(&s);
    for (size_t i = 0; i < n; i++) pthread_join(others[i], NULL);
    *sum = hash_bytes(s.sums, s.pieces * sizeof *s.sums, bytes);
    free(s.sums);
    return true;
}

/* Is fd the file of this key, whole and this user's own? *sum: what its weights must have. */
static bool is_good(int fd, struct str key, size_t bytes, uint64_t *sum)
{
    struct stat st;
    size_t n = key.n + TAIL;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) || (size_t)st.st_size != file_bytes(key, bytes)) return false;
    char *end = malloc(n);
    uint8_t tail[TAIL];
    bool good = end && read_all(fd, end, n, st.st_size - (off_t)n) && !memcmp(end, key.p, key.n);
    if (good) memcpy(sum, end + key.n + 16, sizeof *sum);
    tail_put(tail, key, bytes, *sum);
    good = good && !memcmp(end + key.n, tail, TAIL);
    free(end);
    return good;
}

bool packed_read_key(int fd, struct str *key)
{
    struct stat st;
    uint8_t tail[TAIL], want[TAIL];
    uint64_t n[3];
    if (fstat(fd, &st) != 0 || st.st_size < TAIL || !read_all(fd, tail, TAIL, st.st_size - TAIL)) return false;
    memcpy(n, tail, sizeof n);
    if (!n[0] || n[0] > MAX_KEY || n[1] > (uint64_t)st.st_size) return false;
    *key = (struct str){NULL, (size_t)n[0]};
    tail_put(want, *key, (size_t)n[1], n[2]);
    if (memcmp(tail, want, TAIL) || file_bytes(*key, (size_t)n[1]) != (size_t)st.st_size) return false;
    char *text = malloc(key->n);
    if (!text || !read_all(fd, text, key->n, st.st_size - TAIL - (off_t)key->n)) {
        free(text);
        return false;
    }
    key->p = text;
    return true;
}

/* ---- large pages ----
 *
 * A file is read from large pages as fast as memory, from small ones at little more than half of that (docs/facts.md), and the page cache
 * keeps whichever it got: small ones where it was short of large ones, or where somebody read a few bytes. Such pieces are dropped from it and read
 * anew through the map, which asks for large ones. */

/* The kernel's struct pm_scan_arg and struct page_region (Linux 6.7, PAGEMAP_SCAN). */
struct scan {
    uint64_t size, flags, start, end, walk_end, ranges, ranges_count, max_pages, inverted, mask, any, wanted;
};
struct scan_range {
    uint64_t start, end, categories;
};

/* Ranges of [from, end) that are mapped by small pages, at most RANGES; *next is where to go on. 0: none, or the kernel does not tell. */
static int small_pages(int pagemap, uintptr_t from, uintptr_t end, struct scan_range found[RANGES], uintptr_t *next)
{
    enum { PRESENT = 1 << 3, HUGE = 1 << 6 };
    struct scan s = {.size = sizeof s, .start = from, .end = end, .ranges = (uintptr_t)found, .ranges_count = RANGES,
                     .inverted = HUGE, .mask = PRESENT | HUGE, .wanted = PRESENT | HUGE};
    int n = ioctl(pagemap, _IOWR('f', 16, struct scan), &s);
    *next = n > 0 ? (uintptr_t)s.walk_end : end;
    return ROSE_MAX(n, 0);
}

/* The piece of a large page at p, which has small ones: read anew. Has it a large one now? */
static bool read_anew(int fd, int pagemap, const char *map, char *p)
{
    struct scan_range found[RANGES];
    uintptr_t next;
    madvise(p, LARGE, MADV_DONTNEED); /* only this process's view of the file; what others map stays in the cache */
    posix_fadvise(fd, p - map, LARGE, POSIX_FADV_DONTNEED);
    return madvise(p, LARGE, POPULATE_READ) == 0 && !small_pages(pagemap, (uintptr_t)p, (uintptr_t)p + LARGE, found, &next);
}

/* Reads the map in, and again what came in small pages. The first piece that stays small ends it: no large pages here or none left. */
static void make_large(int fd, char *map, size_t bytes)
{
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), whole = bytes / LARGE * LARGE;
    madvise(map, bytes, MADV_HUGEPAGE);
    if ((uintptr_t)map % LARGE || bytes > memory / 2 || madvise(map, bytes, POPULATE_READ) != 0) return;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    struct scan_range found[RANGES];
    uintptr_t at = (uintptr_t)map, end = at + whole;
    for (bool good = pagemap >= 0; good && at < end;) {
        uintptr_t next;
        int n = small_pages(pagemap, at, end, found, &next);
        for (int i = 0; i < n && good; i++)
            for (uintptr_t p = ROSE_MAX(at, found[i].start / LARGE * LARGE); p < found[i].end && good; at = p += LARGE)
                good = read_anew(fd, pagemap, map, (char *)p);
        at = ROSE_MAX(at, next / LARGE * LARGE);
        if (next >= end) break;
    }
    if (pagemap >= 0) close(pagemap);
}

const void *packed_map(const char *dir, const char *model_path, struct str key, size_t bytes, bool *damaged)
{
    struct strbuf folder, prefix, file;
    uint64_t want = 0, sum = 0;
    *damaged = false;
    if (bytes < LEAST || !key.n) return NULL;
    names(dir, model_path, key, &folder, &prefix, &file);
    int fd = file.p ? open(file.p, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    void *map = fd >= 0 && is_good(fd, key, bytes, &want) ? mmap(NULL, file_bytes(key, bytes), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (map != MAP_FAILED) {
        futimens(fd, NULL); /* used now; where the folder may not be written nobody removes anything either */
        make_large(fd, map, bytes);
        if (checksum(map, bytes, (size_t)sysconf(_SC_NPROCESSORS_ONLN), &sum) && sum != want) {
            *damaged = true;
            unlink(file.p); /* where it cannot go it is found again, and packed anew again */
        }
        if (sum != want) munmap(map, file_bytes(key, bytes)), map = MAP_FAILED;
    }
    names_free(&folder, &prefix, &file);
    if (fd >= 0) close(fd);
    return map == MAP_FAILED ? NULL : map;
}

void packed_unmap(const void *map, struct str key, size_t bytes)
{
    if (map) munmap((void *)(uintptr_t)map, file_bytes(key, bytes));
}

/* ---- writing ---- */

struct packed_store {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool end;         /* under lock: the model closes */
    atomic_bool stop; /* give up */
    char *dir, *folder, *file, *temp, *key;
    size_t key_bytes, bytes;
    uint64_t limit;
    const uint8_t *memory;
};

static bool put_all(struct packed_store *s, int fd, const void *from, size_t n)
{
    for (size_t done = 0; done < n;) {
        if (atomic_load(&s->stop)) return false;
        ssize_t put = write(fd, (const char *)from + done, ROSE_MIN(n - done, (size_t)PIECE));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

static bool write_file(struct packed_store *s, int fd)
{
    static const char zeros[PAGE];
    uint8_t tail[TAIL];
    struct str key = {s->key, s->key_bytes};
    uint64_t sum;
    if (!checksum(s->memory, s->bytes, 1, &sum)) return false;
    tail_put(tail, key, s->bytes, sum);
    return put_all(s, fd, s->memory, s->bytes) && put_all(s, fd, zeros, size_round_up(s->bytes, PAGE) - s->bytes) && put_all(s, fd, s->key, s->key_bytes) &&
           put_all(s, fd, tail, TAIL) && !atomic_load(&s->stop) && fdatasync(fd) == 0;
}

static void *store_main(void *arg)
{
    struct packed_store *s = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 500000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&s->lock);
    while (!s->end && pthread_cond_timedwait(&s->wake, &s->lock, &until) != ETIMEDOUT) continue;
    bool early = s->end;
    pthread_mutex_unlock(&s->lock);
    if (!early) setpriority(PRIO_PROCESS, 0, 19); /* on Linux: of this thread */
    int fd = atomic_load(&s->stop) ? -1 : mkostemp(s->temp, O_CLOEXEC);
    if (fd < 0) return NULL;
    flock(fd, LOCK_EX | LOCK_NB); /* until it is closed: this is no leftover (packed_list.c) */
    bool good = write_file(s, fd); /* mode 0600: the model's files may be private */
    close(fd);
    if (!good || rename(s->temp, s->file) != 0) unlink(s->temp);
    else packed_list_trim(s->dir, s->limit, strrchr(s->file, '/') + 1);
    return NULL;
}

/* Makes the folder. Why a file of so many bytes is not written there; NULL: it is, for there is room several times over, on a disk. */
static const char *refusal(struct packed_store *s, uint64_t limit, size_t bytes)
{
    enum { TMPFS = 0x01021994, RAMFS = (int)0x858458f6 };
    struct statfs fs;
    struct statvfs room;
    struct rose_error ignored;
    if (!s->dir || !s->folder || !s->file || !s->temp || !s->key) return "out of memory";
    if (file_make_dirs(s->folder, &ignored) != ROSE_OK || access(s->folder, W_OK) != 0 || statfs(s->folder, &fs) != 0 || statvfs(s->folder, &room) != 0)
        return "the cache's packed folder cannot be written";
    if ((int)fs.f_type == TMPFS || (int)fs.f_type == RAMFS) return "the cache's packed folder lies in memory, not on a disk";
    if ((double)room.f_bavail * (double)room.f_frsize < (double)ROOM * (double)s->bytes) return "the cache's disk has not four times their size left";
    s->limit = packed_list_limit(s->dir, limit);
    return bytes > s->limit ? "they are more than the cache of packed weights may hold (--packed-cache SIZE)" : NULL;
}

static void store_free(struct packed_store *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s->dir);
    free(s->folder);
    free(s->file);
    free(s->temp);
    free(s->key);
    free(s);
}

struct packed_store *packed_store_begin(const char *dir, const char *model_path, struct str key, const void *memory, size_t bytes, uint64_t limit, const char **why)
{
    *why = bytes < LEAST ? "there is little to pack" : "out of memory";
    struct packed_store *s = bytes >= LEAST && key.n ? calloc(1, sizeof *s) : NULL;
    if (!s) return NULL;
    struct strbuf folder, prefix, file, temp = {0};
    names(dir, model_path, key, &folder, &prefix, &file);
    strbuf_printf(&temp, "%s.XXXXXX", file.p ? file.p : "");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    strbuf_free(&prefix);
    s->dir = strdup(dir);
    s->folder = folder.p, s->file = file.p, s->temp = temp.p;
    s->key = malloc(key.n);
    if (s->key) memcpy(s->key, key.p, key.n);
    s->key_bytes = key.n;
    s->memory = memory;
    s->bytes = bytes;
    *why = refusal(s, limit, file_bytes(key, bytes));
    if (!*why && pthread_create(&s->thread, NULL, store_main, s) == 0) return s;
    if (!*why) *why = "no thread can be started";
    store_free(s);
    return NULL;
}

void packed_store_end(struct packed_store *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->end = true;
    if (s->bytes > SMALL) atomic_store(&s->stop, true);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    store_free(s);
}
