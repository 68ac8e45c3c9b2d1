/* blaslt.c: the stand-in for libcublasLt.so.12: zeroed descriptors, one algorithm for everything, nothing computed. */
#include "launch.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Larger than any descriptor of the real library. */
#define CREATES(name)                                                    \
    API(name, void **to)                                                 \
    {                                                                    \
        *to = calloc(1, 1024);                                           \
        return *to ? 0 : 3; /* CUBLAS_STATUS_ALLOC_FAILED */             \
    }
CREATES(cublasLtCreate)
CREATES(cublasLtMatmulDescCreate)
CREATES(cublasLtMatmulPreferenceCreate)
CREATES(cublasLtMatrixLayoutCreate)
CREATES(cublasLtMatrixTransformDescCreate)

#define DESTROYS(name) API(name, void *descriptor) { free(descriptor); return 0; }
DESTROYS(cublasLtDestroy)
DESTROYS(cublasLtMatmulDescDestroy)
DESTROYS(cublasLtMatmulPreferenceDestroy)
DESTROYS(cublasLtMatrixLayoutDestroy)
DESTROYS(cublasLtMatrixTransformDescDestroy)

#define DOES_NOTHING(name) API(name, void) { return 0; }
DOES_NOTHING(cublasLtMatmulDescSetAttribute)
DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
DOES_NOTHING(cublasLtMatrixLayoutSetAttribute)
DOES_NOTHING(cublasLtMatrixTransformDescSetAttribute)
DOES_NOTHING(cublasLtMatmulAlgoConfigSetAttribute)
DOES_NOTHING(cublasLtMatmulAlgoCheck)
LAUNCHES(cublasLtMatmul)
LAUNCHES(cublasLtMatrixTransform)

/* Attributes are not stored: all are zeros. */
#define GETS(name)                                                                  \
    API(name, void *of, int attribute, void *to, size_t size, size_t *written)      \
    {                                                                               \
        if (to)                                                                     \
            memset(to, 0, size);                                                    \
        if (written)                                                                \
            *written = size;                                                        \
        return 0;                                                                   \
    }
GETS(cublasLtMatmulDescGetAttribute)
GETS(cublasLtMatmulPreferenceGetAttribute)
GETS(cublasLtMatrixLayoutGetAttribute)
GETS(cublasLtMatmulAlgoConfigGetAttribute)
GETS(cublasLtMatmulAlgoCapGetAttribute)

enum { RESULT = 96 }; /* bytes of a cublasLtMatmulHeuristicResult_t: all zeros are a valid one without workspace */

API(cublasLtMatmulAlgoGetHeuristic, void *h, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                          int wanted, void *results, int *found)
{
    *found = wanted > 0;
    if (wanted > 0)
        memset(results, 0, RESULT);
    return 0;
}

EXPORT size_t cublasLtGetVersion(void) { return 120804; }
EXPORT size_t cublasLtGetCudartVersion(void) { return 12080; }
API(cublasLtGetProperty, int which, int *to) { *to = which == 0 ? 12 : which == 1 ? 8 : 4; return 0; }
EXPORT const char *cublasLtGetStatusName(int status) { return status ? "CUBLAS_STATUS" : "CUBLAS_STATUS_SUCCESS"; }
EXPORT const char *cublasLtGetStatusString(int status) { return status ? "error" : "success"; }
