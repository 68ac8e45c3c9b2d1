/* cudnn.c: just enough of libcudnn.so.8 (TensorFlow 2.16, 2.17) and libcudnn.so.9 (since) to have a version;
 * convolutions are not simulated. */
#include "standin.h"

#include <stddef.h>

#define MINOR (SOVERSION < 9 ? 9 : 3)

API(cudnnGetProperty, int which, int *to)
{
    static const int version[] = {SOVERSION, MINOR, 0};
    if (which < 0 || which > 2 || !to)
        return 2000; /* CUDNN_STATUS_BAD_PARAM */
    *to = version[which];
    return 0;
}

EXPORT size_t cudnnGetVersion(void) { return SOVERSION * (SOVERSION < 9 ? 1000 : 10000) + MINOR * 100; }
EXPORT size_t cudnnGetCudartVersion(void) { return 12080; }

/* XLA wants a handle before it compiles anything at all. */
static int handle;
API(cudnnCreate, void **to) { *to = &handle; return 0; }
API(cudnnDestroy, void *h) { return 0; }
API(cudnnSetStream, void *h, void *stream) { return 0; }
API(cudnnGetStream, void *h, void **to) { *to = NULL; return 0; }
EXPORT const char *cudnnGetErrorString(int status) { return status ? "error" : "success"; }
