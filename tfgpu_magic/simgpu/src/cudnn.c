/* cudnn.c: just enough of libcudnn.so.9 to have a version; convolutions are not simulated. */
#include <stddef.h>

#define API(name, ...) __attribute__((visibility("default"))) int name(__VA_ARGS__)

API(cudnnGetProperty, int which, int *to)
{
    static const int version[] = {9, 3, 0};
    if (which < 0 || which > 2 || !to)
        return 2000; /* CUDNN_STATUS_BAD_PARAM */
    *to = version[which];
    return 0;
}

__attribute__((visibility("default"))) size_t cudnnGetVersion(void) { return 90300; }
__attribute__((visibility("default"))) size_t cudnnGetCudartVersion(void) { return 12080; }

/* XLA wants a handle before it compiles anything at all. */
static int handle;
API(cudnnCreate, void **to) { *to = &handle; return 0; }
API(cudnnDestroy, void *h) { (void)h; return 0; }
API(cudnnSetStream, void *h, void *stream) { (void)h, (void)stream; return 0; }
API(cudnnGetStream, void *h, void **to) { (void)h; *to = NULL; return 0; }
__attribute__((visibility("default"))) const char *cudnnGetErrorString(int status) { return status ? "error" : "success"; }
