/* A cuBLASLt that multiplies nothing: it offers FAKE_BLAS_CHOICES algorithms and says which one is asked to multiply. */
#ifndef ROSE_TESTS_FAKE_BLAS_H
#define ROSE_TESTS_FAKE_BLAS_H

enum { FAKE_BLAS_CHOICES = 4 };

struct fake_blas {
    int heuristics, checks, matmuls, alive; /* alive: objects made and not destroyed */
    int last;                               /* the algorithm of the last product */
    const void *w, *y;                      /* of the last product: weights and result */
    int refused;                            /* this algorithm is not known any more; -1: all are */
    void (*matmul)(int algorithm);          /* called at each product; NULL: nothing */
};
/* Found by dlsym: the library's one state. */
struct fake_blas *fake_blas(void);

#endif
