/* blaslt.c: the stand-in for libcublasLt.so.12: zeroed descriptors, one algorithm for everything, nothing computed. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Larger than any descriptor of the real library. */
static int give_zeros(void **to)
{
    *to = calloc(1, 1024);
    return *to ? 0 : 3; /* CUBLAS_STATUS_ALLOC_FAILED */
}

static int take_back(void *descriptor)
{
    free(descriptor);
    return 0;
}

static int done(void) { return 0; }

#define LIKE(name, other) EXPORT int name(void **) __attribute__((alias(#other)));
#pragma GCC diagnostic ignored "-Wattribute-alias"
LIKE(cublasLtCreate, give_zeros)
LIKE(cublasLtMatmulDescCreate, give_zeros)
LIKE(cublasLtMatmulPreferenceCreate, give_zeros)
LIKE(cublasLtMatrixLayoutCreate, give_zeros)
LIKE(cublasLtMatrixTransformDescCreate, give_zeros)
LIKE(cublasLtDestroy, take_back)
LIKE(cublasLtMatmulDescDestroy, take_back)
LIKE(cublasLtMatmulPreferenceDestroy, take_back)
LIKE(cublasLtMatrixLayoutDestroy, take_back)
LIKE(cublasLtMatrixTransformDescDestroy, take_back)
LIKE(cublasLtMatmulDescSetAttribute, done)
LIKE(cublasLtMatmulPreferenceSetAttribute, done)
LIKE(cublasLtMatrixLayoutSetAttribute, done)
LIKE(cublasLtMatrixTransformDescSetAttribute, done)
LIKE(cublasLtMatmulAlgoConfigSetAttribute, done)
LIKE(cublasLtMatmulAlgoCheck, done)
LIKE(cublasLtMatmul, done)
LIKE(cublasLtMatrixTransform, done)

/* The attributes that are asked for, and how much was written. */
static int give_nothing(void *of, int attribute, void *to, size_t size, size_t *written)
{
    (void)of, (void)attribute;
    if (to)
        memset(to, 0, size);
    if (written)
        *written = size;
    return 0;
}

LIKE(cublasLtMatmulDescGetAttribute, give_nothing)
LIKE(cublasLtMatmulPreferenceGetAttribute, give_nothing)
LIKE(cublasLtMatrixLayoutGetAttribute, give_nothing)
LIKE(cublasLtMatmulAlgoConfigGetAttribute, give_nothing)
LIKE(cublasLtMatmulAlgoCapGetAttribute, give_nothing)

enum { RESULT = 96 }; /* bytes of a cublasLtMatmulHeuristicResult_t: all zero is a good one that needs no workspace */

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                          int wanted, void *results, int *found)
{
    (void)h, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *found = wanted > 0;
    if (wanted > 0)
        memset(results, 0, RESULT);
    return 0;
}

EXPORT size_t cublasLtGetVersion(void) { return 120804; }
EXPORT size_t cublasLtGetCudartVersion(void) { return 12080; }
EXPORT int cublasLtGetProperty(int which, int *to) { *to = which == 0 ? 12 : which == 1 ? 8 : 4; return 0; }
EXPORT const char *cublasLtGetStatusName(int status) { return status ? "CUBLAS_STATUS" : "CUBLAS_STATUS_SUCCESS"; }
EXPORT const char *cublasLtGetStatusString(int status) { return status ? "error" : "success"; }
