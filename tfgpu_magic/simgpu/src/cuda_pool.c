/* cuda_pool.c: stream-ordered memory pools, as TF_GPU_ALLOCATOR=cuda_malloc_async uses them; what they reserve and what
 * becomes of it is in cuda_account.c. Source: CUDA Driver API, "Stream Ordered Memory Allocator". */
#include "cuda.h"

/* The attributes: how freed memory may be used again (ints), and sizes. */
enum { REUSE = 1, REUSES = 3, THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

static struct cuda_pool *usual[CUDA_DEVICES];  /* each device's default pool, made when it is first asked for */
static struct cuda_pool *current[CUDA_DEVICES]; /* the one that was set for it; NULL is the default one */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static struct cuda_pool *default_of(int ordinal)
{
    pthread_mutex_lock(&guard);
    if (!usual[ordinal])
        usual[ordinal] = cuda_pool_make(ordinal);
    pthread_mutex_unlock(&guard);
    return usual[ordinal];
}

static struct cuda_pool *current_of(int ordinal)
{
    return current[ordinal] ? current[ordinal] : default_of(ordinal);
}

API(cuDeviceGetDefaultMemPool, struct cuda_pool **to, int ordinal)
{
    BEGIN(ordinal);
    NEED(ordinal >= 0 && to && (*to = default_of(ordinal)));
    return CUDA_OK;
}

API(cuDeviceGetMemPool, struct cuda_pool **to, int ordinal)
{
    BEGIN(ordinal);
    NEED(ordinal >= 0 && to && (*to = current_of(ordinal)));
    return CUDA_OK;
}

API(cuDeviceSetMemPool, int ordinal, struct cuda_pool *pool)
{
    BEGIN(ordinal);
    NEED(ordinal >= 0 && pool && pool->ordinal == ordinal);
    current[ordinal] = pool;
    return CUDA_OK;
}

/* The properties begin with three enums, then a location's type and its id: the ordinal. */
API(cuMemPoolCreate, struct cuda_pool **to, const int *properties)
{
    NEED(to && properties && properties[3] >= 0);
    BEGIN(properties[3]);
    *to = cuda_pool_make(properties[3]);
    return *to ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

API(cuMemPoolDestroy, struct cuda_pool *pool)
{
    BEGIN(-1);
    NEED(pool && pool != usual[pool->ordinal]);
    if (current[pool->ordinal] == pool)
        current[pool->ordinal] = NULL;
    cuda_pool_destroy(pool);
    return CUDA_OK;
}

API(cuMemPoolSetAccess, struct cuda_pool *pool, const void *map, size_t n) { BEGIN(-1); return CUDA_OK; }

API(cuMemPoolTrimTo, struct cuda_pool *pool, size_t keep)
{
    NEED(pool);
    BEGIN(pool->ordinal);
    cuda_pool_trim(pool, keep);
    return CUDA_OK;
}

/* High watermarks can only be set to zero, and what there is now cannot be set. */
API(cuMemPoolSetAttribute, struct cuda_pool *pool, int attribute, const void *value)
{
    BEGIN(-1);
    NEED(pool && value);
    if (attribute >= REUSE && attribute <= REUSES) {
        pool->reuse[attribute - REUSE] = *(const int *)value;
        return CUDA_OK;
    }
    uint64_t size = *(const uint64_t *)value;
    switch (attribute) {
    case THRESHOLD: pool->threshold = size; return CUDA_OK;
    case RESERVED_HIGH: NEED(!size); pool->reserved_high = 0; return CUDA_OK;
    case USED_HIGH: NEED(!size); pool->used_high = 0; return CUDA_OK;
    default: return CUDA_INVALID_VALUE;
    }
}

API(cuMemPoolGetAttribute, struct cuda_pool *pool, int attribute, void *to)
{
    BEGIN(-1);
    NEED(pool && to);
    if (attribute >= REUSE && attribute <= REUSES) {
        *(int *)to = pool->reuse[attribute - REUSE];
        return CUDA_OK;
    }
    switch (attribute) {
    case THRESHOLD: *(uint64_t *)to = pool->threshold; return CUDA_OK;
    case RESERVED: *(uint64_t *)to = pool->reserved; return CUDA_OK;
    case RESERVED_HIGH: *(uint64_t *)to = pool->reserved_high; return CUDA_OK;
    case USED: *(uint64_t *)to = pool->used; return CUDA_OK;
    case USED_HIGH: *(uint64_t *)to = pool->used_high; return CUDA_OK;
    default: return CUDA_INVALID_VALUE;
    }
}

API(cuMemAllocFromPoolAsync, CUdeviceptr *to, size_t size, struct cuda_pool *pool, CUstream stream)
{
    NEED(pool);
    BEGIN(pool->ordinal);
    return cuda_allocate_from(pool, to, size);
}

API(cuMemAllocAsync, CUdeviceptr *to, size_t size, CUstream stream)
{
    BEGIN_CURRENT(context);
    struct cuda_pool *pool = current_of(context->ordinal);
    NEED(pool);
    return cuda_allocate_from(pool, to, size);
}
