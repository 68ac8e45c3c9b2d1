/* blas.c: the stand-in for libcublas.so.12: a handle, and products that are never computed. */
#include "launch.h"

#include <stddef.h>
#include <stdint.h>

static int handle;
static void *stream;

API(cublasCreate_v2, void **to) { *to = &handle; return 0; }
API(cublasGetStream_v2, void *h, void **to) { *to = stream; return 0; }
API(cublasSetStream_v2, void *h, void *s) { stream = s; return 0; }
API(cublasGetMathMode, void *h, int *to) { *to = 0; return 0; }
API(cublasGetPointerMode_v2, void *h, int *to) { *to = 0; return 0; }
API(cublasGetAtomicsMode, void *h, int *to) { *to = 0; return 0; }
API(cublasGetVersion_v2, void *h, int *to) { *to = 120804; return 0; }
API(cublasGetProperty, int which, int *to) { *to = which == 0 ? 12 : which == 1 ? 8 : 4; return 0; }
EXPORT size_t cublasGetCudartVersion(void) { return 12080; }
EXPORT const char *cublasGetStatusString(int status) { return status ? "error" : "success"; }

/* All other functions return nothing but success; their arguments are ignored. */
#define DOES_NOTHING(name) API(name, void) { return 0; }
#define FOUR(stem, end)                 \
    LAUNCHES(cublasS##stem##end)        \
    LAUNCHES(cublasD##stem##end)        \
    LAUNCHES(cublasC##stem##end)        \
    LAUNCHES(cublasZ##stem##end)

DOES_NOTHING(cublasDestroy_v2)
DOES_NOTHING(cublasSetMathMode)
DOES_NOTHING(cublasSetPointerMode_v2)
DOES_NOTHING(cublasSetAtomicsMode)
DOES_NOTHING(cublasSetWorkspace_v2)
DOES_NOTHING(cublasSetSmCountTarget)
LAUNCHES(cublasGemmEx)
LAUNCHES(cublasGemmBatchedEx)
LAUNCHES(cublasGemmStridedBatchedEx)
LAUNCHES(cublasSgemmEx)
LAUNCHES(cublasHgemm)
LAUNCHES(cublasHgemmBatched)
LAUNCHES(cublasHgemmStridedBatched)
LAUNCHES(cublasSdot_v2)
LAUNCHES(cublasDdot_v2)
LAUNCHES(cublasSasum_v2)
LAUNCHES(cublasDasum_v2)
LAUNCHES(cublasSsbmv_v2)
LAUNCHES(cublasDsbmv_v2)
FOUR(gemm, _v2)
FOUR(gemmBatched, )
FOUR(gemmStridedBatched, )
FOUR(gemv, _v2)
FOUR(axpy, _v2)
FOUR(copy, _v2)
FOUR(scal, _v2)
FOUR(trsm, _v2)
FOUR(trsmBatched, )
FOUR(getrfBatched, )
FOUR(getrsBatched, )
FOUR(getriBatched, )
FOUR(matinvBatched, )
FOUR(geam, )
