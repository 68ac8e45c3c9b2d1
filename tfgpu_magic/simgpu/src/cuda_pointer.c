/* cuda_pointer.c: what a pointer is: without it copies between logical GPUs abort. */
#include "cuda.h"

static int describe(void *to, int attribute, CUdeviceptr at)
{
    struct cuda_block block;
    if (!cuda_find(at, &block, false))
        return CUDA_INVALID_VALUE;
    bool device = block.kind <= MEMORY_MAPPED;
    switch (attribute) {
    case 1: *(CUcontext *)to = &cuda.primary[block.ordinal]; break;
    case 2: *(unsigned *)to = device ? 2 : 1; break;
    case 3: *(CUdeviceptr *)to = at; break;
    case 4: *(void **)to = device ? NULL : (void *)at; break;
    case 6: *(int *)to = 0; break;
    case 7: *(uint64_t *)to = block.id; break;
    case 8: *(int *)to = block.kind == MEMORY_MANAGED; break;
    case 9: *(int *)to = block.ordinal; break;
    case 11: *(CUdeviceptr *)to = block.at; break;
    case 12: *(size_t *)to = block.size; break;
    default: return CUDA_NOT_SUPPORTED;
    }
    return CUDA_OK;
}

API(cuPointerGetAttribute, void *to, int attribute, CUdeviceptr at)
{
    BEGIN(-1);
    NEED(to);
    return describe(to, attribute, at);
}

API(cuPointerGetAttributes, unsigned number, const int *attribute, void **to, CUdeviceptr at)
{
    BEGIN(-1);
    NEED(attribute && to);
    for (unsigned i = 0; i < number; i++)
        describe(to[i], attribute[i], at);
    return CUDA_OK;
}

API(cuPointerSetAttribute, const void *value, int attribute, CUdeviceptr at) { BEGIN(-1); return CUDA_OK; }
