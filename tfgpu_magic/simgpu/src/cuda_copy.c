/* cuda_copy.c: copies and fills: synchronous, so that a stream has nothing to wait for. */
#include "cuda.h"

#include <string.h>
#include <sys/mman.h>

static int copy(const void *to, const void *from, size_t size)
{
    NEED((to && from) || !size);
    memmove((void *)to, from, size);
    return CUDA_OK;
}

#define COPIES(name, To, From)                                          \
    API(name##_v2, To to, From from, size_t size)                       \
    {                                                                   \
        BEGIN_CURRENT(c);                                               \
        return copy((void *)to, (const void *)from, size);              \
    }                                                                   \
    API(name##Async_v2, To to, From from, size_t size, CUstream s)      \
    {                                                                   \
        BEGIN_CURRENT(c);                                               \
        return copy((void *)to, (const void *)from, size);              \
    }
COPIES(cuMemcpyHtoD, CUdeviceptr, const void *)
COPIES(cuMemcpyDtoH, void *, CUdeviceptr)
COPIES(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr)

API(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size) { BEGIN(-1); return copy((void *)to, (void *)from, size); }

API(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s)
{
    BEGIN(-1);
    return copy((void *)to, (void *)from, size);
}

API(cuMemcpyPeer, CUdeviceptr to, CUcontext c, CUdeviceptr from, CUcontext d, size_t size)
{
    BEGIN(-1);
    return copy((void *)to, (void *)from, size);
}

API(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext c, CUdeviceptr from, CUcontext d, size_t size, CUstream s)
{
    BEGIN(-1);
    return copy((void *)to, (void *)from, size);
}

/* Zeroing untouched whole pages leaves them untouched: a pool cleared by TensorFlow must not cost real memory. */
static int fill(CUdeviceptr at, uint32_t value, size_t width, size_t number)
{
    NEED(at || !number);
    size_t size = width * number;
    if (!value && size >= 1u << 20) {
        CUdeviceptr first = (at + 4095) & ~(CUdeviceptr)4095, last = (at + size) & ~(CUdeviceptr)4095;
        if (madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
            memset((void *)at, 0, first - at);
            memset((void *)last, 0, at + size - last);
            return CUDA_OK;
        }
    }
    for (size_t i = 0; i < number; i++)
        memcpy((char *)at + i * width, &value, width);
    return CUDA_OK;
}

#define FILLS(name, Value)                                                      \
    API(name##_v2, CUdeviceptr at, Value value, size_t number)                  \
    {                                                                           \
        BEGIN_CURRENT(c);                                                       \
        return fill(at, value, sizeof value, number);                           \
    }                                                                           \
    API(name##Async, CUdeviceptr at, Value value, size_t number, CUstream s)    \
    {                                                                           \
        BEGIN_CURRENT(c);                                                       \
        return fill(at, value, sizeof value, number);                           \
    }
FILLS(cuMemsetD8, uint8_t)
FILLS(cuMemsetD16, uint16_t)
FILLS(cuMemsetD32, uint32_t)
