/* What this machine can do at most, as JSON: read bandwidth from the cache, from memory at the
   small model's size and from far memory, and the peak of each dot-product instruction. The other
   figures are held against these.

       cc -O3 -pthread limits.c -o limits && ./limits [THREADS] [SECONDS per figure]

   One operation is one multiplication or one addition. Threads are pinned to the first THREADS
   processors of the affinity mask. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MAX_THREADS = 256 };

struct job {
    uint64_t (*work)(struct job *); /* one unit of work, returns bytes or operations done */
    unsigned char *data;            /* [size], for reads */
    size_t size;
    int cpu;
    double seconds, rate;
    atomic_int *ready;
    int threads;
};

static atomic_uint_fast64_t sink; /* what is computed goes here, so that it is computed */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reading. */
static uint64_t read_portable(struct job *j)
{
    const uint64_t *p = (const uint64_t *)j->data;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < j->size / 8; i += 4) a += p[i], b += p[i + 1], c += p[i + 2], d += p[i + 3];
    sink += a + b + c + d;
    return j->size;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t read_avx2(struct job *j)
{
    __m256i s[4] = {0};
    for (size_t i = 0; i < j->size; i += 256) {
        for (int k = 0; k < 8; k++)
            s[k & 3] = _mm256_xor_si256(s[k & 3], _mm256_load_si256((__m256i *)(j->data + i + 32 * k)));
        _mm_prefetch((char *)j->data + i + 2048, _MM_HINT_T0);
        _mm_prefetch((char *)j->data + i + 2112, _MM_HINT_T0);
        _mm_prefetch((char *)j->data + i + 2176, _MM_HINT_T0);
        _mm_prefetch((char *)j->data + i + 2240, _MM_HINT_T0);
    }
    s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    sink += (uint64_t)_mm256_extract_epi64(s[0], 0);
    return j->size;
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(struct job *j)
{
    __m512i s[4];
    for (int k = 0; k < 4; k++) s[k] = _mm512_setzero_si512();
    for (size_t i = 0; i < j->size; i += 256) {
        for (int k = 0; k < 4; k++) {
            s[k] = _mm512_xor_si512(s[k], _mm512_load_si512(j->data + i + 64 * k));
            _mm_prefetch((char *)j->data + i + 2048 + 64 * k, _MM_HINT_T0);
        }
    }
    s[0] = _mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3]));
    sink += (uint64_t)_mm512_reduce_add_epi64(s[0]);
    return j->size;
}

/* Arithmetic: 10 independent chains, each a register, hide the latency of all these instructions. */
#define CHAINS 10
#define ROUNDS 20000
#define EACH(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9)
#define DECLARE(k) s##k = zero,
#define ADVANCE(k)     \
    s##k = STEP(s##k); \
    __asm__("" : "+v"(s##k));
#define GATHER(k) sum += (uint64_t)SUM(s##k);
#define PEAK(NAME, TARGET, VEC, ZERO, OPS)                              \
    __attribute__((target(TARGET))) static uint64_t NAME(struct job *j) \
    {                                                                   \
        VEC zero = ZERO, EACH(DECLARE) x = zero, y = zero;              \
        uint64_t sum = (uint64_t)j->size;                               \
        __asm__ volatile("" : "+v"(x), "+v"(y));                        \
        for (int r = 0; r < ROUNDS; r++) {                              \
            EACH(ADVANCE)                                               \
        }                                                               \
        EACH(GATHER)                                                    \
        sink += sum;                                                    \
        return (uint64_t)ROUNDS * CHAINS * (OPS);                       \
    }

#define STEP(s) _mm256_fmadd_ps(x, y, s)
#define SUM(s) _mm_cvtss_f32(_mm256_castps256_ps128(s))
PEAK(fma_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), 16)
#undef STEP
#undef SUM

/* 32 products need three instructions without VNNI; the xor keeps them in the loop. */
#define STEP(s) _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_xor_si256(y, s)), y))
#define SUM(s) _mm256_extract_epi32(s, 0)
PEAK(int8_avx2, "avx2", __m256i, _mm256_setzero_si256(), 64)
#undef STEP
#undef SUM

#define STEP(s) _mm512_fmadd_ps(x, y, s)
#define SUM(s) _mm512_reduce_add_ps(s)
PEAK(fma_avx512, "avx512f", __m512, _mm512_setzero_ps(), 32)
#undef STEP
#undef SUM

#define STEP(s) _mm512_dpbusd_epi32(s, x, y)
#define SUM(s) _mm512_reduce_add_epi32(s)
PEAK(vnni_avx512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), 128)
#undef STEP
#undef SUM

#define STEP(s) _mm512_dpbf16_ps(s, (__m512bh)x, (__m512bh)y)
#define SUM(s) _mm512_reduce_add_ps(s)
PEAK(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), 64)
#undef STEP
#undef SUM

/* AMX: 2 x 2 tiles of accumulators, each step loads the four tiles it multiplies. */
static int amx_allowed(void)
{
    return syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) == 0;
}

struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

#define AMX(NAME, MUL, OPS)                                                                            \
    __attribute__((target("amx-tile,amx-int8,amx-bf16"))) static uint64_t NAME(struct job *j)          \
    {                                                                                                  \
        struct tile_config c = {.palette = 1};                                                         \
        for (int t = 0; t < 8; t++) c.bytes[t] = 64, c.rows[t] = 16;                                   \
        __asm__ volatile("ldtilecfg %0" : : "m"(c));                                                   \
        const unsigned char *p = j->data; /* 4 tiles of 1 KiB */                                       \
        for (int r = 0; r < ROUNDS / 4; r++)                                                           \
            __asm__ volatile("tileloadd (%0,%1,1), %%tmm4\n tileloadd 1024(%0,%1,1), %%tmm5\n"         \
                             "tileloadd 2048(%0,%1,1), %%tmm6\n tileloadd 3072(%0,%1,1), %%tmm7\n" MUL \
                             " %%tmm6, %%tmm4, %%tmm0\n" MUL " %%tmm7, %%tmm4, %%tmm1\n" MUL           \
                             " %%tmm6, %%tmm5, %%tmm2\n" MUL " %%tmm7, %%tmm5, %%tmm3\n"               \
                             :                                                                         \
                             : "r"(p), "r"((int64_t)64)                                                \
                             : "memory");                                                              \
        __asm__ volatile("tilerelease");                                                               \
        return (uint64_t)(ROUNDS / 4) * 4 * (OPS);                                                     \
    }
AMX(amx_int8, "tdpbusd", 16 * 16 * 64 * 2)
AMX(amx_bf16, "tdpbf16ps", 16 * 16 * 32 * 2)
#endif

static void *run(void *arg)
{
    struct job *j = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(j->cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    memset(j->data, 1, j->size + 4096);
    j->work(j);
    atomic_fetch_add(j->ready, 1);
    while (atomic_load(j->ready) < j->threads)
        ;
    double start = now(), t, best = 0, last = start;
    do { /* the best pass of each thread: what the machine can do, not what it was left to do */
        uint64_t done = j->work(j);
        t = now();
        if ((double)done / (t - last) > best) best = (double)done / (t - last);
        last = t;
    } while (t - start < j->seconds);
    j->rate = best;
    return NULL;
}

static int cpus[MAX_THREADS], threads;
static double seconds = 0.5;

static double measure(uint64_t (*work)(struct job *), size_t size)
{
    pthread_t id[MAX_THREADS];
    struct job jobs[MAX_THREADS];
    atomic_int ready = 0;
    double sum = 0;
    size_t each = (size / (size_t)threads + 255) & ~(size_t)255;
    for (int i = 0; i < threads; i++) {
        size_t huge = 2u << 20; /* large pages: the limit is the memory's, not the page walker's */
        size_t room = (each + 4096 + huge - 1) & ~(huge - 1);
        unsigned char *data = aligned_alloc(huge, room);
        if (!data) {
            fprintf(stderr, "limits: out of memory\n");
            exit(1);
        }
        madvise(data, room, MADV_HUGEPAGE);
        jobs[i] = (struct job){work, data, each, cpus[i], seconds, 0, &ready, threads};
        pthread_create(&id[i], NULL, run, &jobs[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(id[i], NULL);
        sum += jobs[i].rate;
        free(jobs[i].data);
    }
    return sum / 1e9;
}

int main(int argc, char **argv)
{
    cpu_set_t set;
    int available = 0;
    sched_getaffinity(0, sizeof set, &set);
    for (int c = 0; c < CPU_SETSIZE && available < MAX_THREADS; c++)
        if (CPU_ISSET(c, &set)) cpus[available++] = c;
    threads = argc > 1 ? atoi(argv[1]) : available;
    if (threads < 1 || threads > available) {
        fprintf(stderr, "limits: THREADS must be 1 to %d\n", available);
        return 2;
    }
    if (argc > 2) seconds = atof(argv[2]);

    uint64_t (*reader)(struct job *) = read_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        reader = read_avx512;
    else if (__builtin_cpu_supports("avx2"))
        reader = read_avx2;
#endif
    printf("{\"threads\": %d", threads);
    printf(", \"read_1m_gb_s\": %.1f", measure(reader, 1u << 20));
    printf(", \"read_96m_gb_s\": %.1f", measure(reader, 96u << 20));
    printf(", \"read_1g_gb_s\": %.1f", measure(reader, 1u << 30));
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        printf(", \"avx2_fma_gop_s\": %.0f", measure(fma_avx2, 4096));
        printf(", \"avx2_int8_gop_s\": %.0f", measure(int8_avx2, 4096));
    }
    if (__builtin_cpu_supports("avx512f")) printf(", \"avx512_fma_gop_s\": %.0f", measure(fma_avx512, 4096));
    if (__builtin_cpu_supports("avx512vnni"))
        printf(", \"avx512_vnni_gop_s\": %.0f", measure(vnni_avx512, 4096));
    if (__builtin_cpu_supports("avx512bf16"))
        printf(", \"avx512_bf16_gop_s\": %.0f", measure(bf16_avx512, 4096));
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    if ((d >> 24 & 1) && (d >> 25 & 1) && amx_allowed()) {
        printf(", \"amx_bf16_gop_s\": %.0f", measure(amx_bf16, 4096));
        printf(", \"amx_int8_gop_s\": %.0f", measure(amx_int8, 4096));
    }
#endif
    printf("}\n");
    return 0;
}
