/* cuda_pool.c: memory pools, for TF_GPU_ALLOCATOR=cuda_malloc_async; nothing is kept back, so a threshold is only
 * stored. */
#include "cuda.h"

struct pool { int ordinal; uint64_t threshold; };
static struct pool pools[CUDA_DEVICES];

static int give_pool(struct pool **to, int ordinal)
{
    NEED(to && ordinal >= 0 && ordinal < cuda.count);
    pools[ordinal].ordinal = ordinal;
    *to = &pools[ordinal];
    return CUDA_OK;
}

/* The properties begin with three enums, then a location's type and its id: the ordinal. */
API(cuMemPoolCreate, struct pool **to, const int *properties)
{
    BEGIN(-1);
    NEED(properties);
    return give_pool(to, properties[3]);
}

API(cuMemPoolDestroy, struct pool *pool) { BEGIN(-1); return CUDA_OK; }
API(cuDeviceGetDefaultMemPool, struct pool **to, int ordinal) { BEGIN(ordinal); return give_pool(to, ordinal); }
API(cuDeviceGetMemPool, struct pool **to, int ordinal) { BEGIN(ordinal); return give_pool(to, ordinal); }
API(cuDeviceSetMemPool, int ordinal, struct pool *pool) { BEGIN(ordinal); return CUDA_OK; }
API(cuMemPoolSetAccess, struct pool *pool, const void *map, size_t n) { BEGIN(-1); return CUDA_OK; }
API(cuMemPoolTrimTo, struct pool *pool, size_t keep) { BEGIN(-1); return CUDA_OK; }

API(cuMemPoolSetAttribute, struct pool *pool, int attribute, const uint64_t *value)
{
    BEGIN(-1);
    NEED(pool && value);
    if (attribute == 4)
        pool->threshold = *value;
    return CUDA_OK;
}

API(cuMemPoolGetAttribute, struct pool *pool, int attribute, uint64_t *to)
{
    BEGIN(-1);
    NEED(pool && to);
    if (attribute < 4) {
        *(int *)to = 1; /* the first three are ints: how freed blocks may be used again */
        return CUDA_OK;
    }
    *to = attribute == 4 ? pool->threshold : cuda_allocated(pool->ordinal);
    return CUDA_OK;
}

API(cuMemAllocFromPoolAsync, CUdeviceptr *to, size_t size, struct pool *pool, CUstream stream)
{
    NEED(pool);
    BEGIN(pool->ordinal);
    return cuda_allocate(to, size, pool->ordinal, MEMORY_DEVICE);
}
