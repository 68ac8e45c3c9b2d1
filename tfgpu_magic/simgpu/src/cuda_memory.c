/* cuda_memory.c: device and host memory: allocations are charged to the machine and mapped without being reserved, so
 * that 80 GiB cost nothing until touched. */
#include "cuda.h"

#include <stdlib.h>
#include <sys/mman.h>

enum kind { DEVICE, MANAGED, GLOBALS, HOST, REGISTERED };

struct block {
    CUdeviceptr at;
    size_t size;
    int ordinal;
    enum kind kind;
    uint64_t id;
};

/* TensorFlow allocates few and large blocks, so a list is enough. */
static struct block *blocks;
static size_t count, room;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static int remember(struct block block)
{
    static uint64_t last_id;
    pthread_mutex_lock(&guard);
    if (count == room) {
        size_t more = room ? 2 * room : 64;
        struct block *larger = realloc(blocks, more * sizeof *blocks);
        if (larger) {
            blocks = larger;
            room = more;
        }
    }
    bool fits = count < room;
    if (fits) {
        block.id = ++last_id;
        blocks[count++] = block;
    }
    pthread_mutex_unlock(&guard);
    return fits ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

/* Finds the block that holds an address, and optionally removes it if it begins there. */
static bool find(CUdeviceptr at, struct block *found, bool take)
{
    bool known = false;
    pthread_mutex_lock(&guard);
    for (size_t i = count; i-- > 0 && !known;)
        if (take ? at == blocks[i].at : at - blocks[i].at < blocks[i].size) {
            *found = blocks[i];
            known = true;
            if (take)
                blocks[i] = blocks[--count];
        }
    pthread_mutex_unlock(&guard);
    return known;
}

static size_t rounded(size_t size)
{
    return (size + 4095) & ~(size_t)4095;
}

static int allocate(CUdeviceptr *to, size_t size, int ordinal, enum kind kind)
{
    NEED(to && size);
    if (size > (size_t)1 << 46)
        return CUDA_OUT_OF_MEMORY;
    size = rounded(size);
    bool charged = kind == DEVICE || kind == MANAGED;
    if (charged && !sim_charge(cuda_machine, cuda.device[ordinal], size))
        return CUDA_OUT_OF_MEMORY;
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct block block = {.at = (CUdeviceptr)map, .size = size, .ordinal = ordinal, .kind = kind};
    if (map != MAP_FAILED && remember(block) == CUDA_OK) {
        *to = block.at;
        return CUDA_OK;
    }
    if (map != MAP_FAILED)
        munmap(map, size);
    if (charged)
        sim_discharge(cuda_machine, cuda.device[ordinal], size);
    return CUDA_OUT_OF_MEMORY;
}

static void let_go(const struct block *block)
{
    if (block->kind != REGISTERED)
        munmap((void *)block->at, block->size);
    if (block->kind == DEVICE || block->kind == MANAGED)
        sim_discharge(cuda_machine, cuda.device[block->ordinal], block->size);
}

static int release(CUdeviceptr at)
{
    struct block block;
    if (!at)
        return CUDA_OK;
    NEED(find(at, &block, true));
    let_go(&block);
    return CUDA_OK;
}

void cuda_free_all(int ordinal)
{
    pthread_mutex_lock(&guard);
    for (size_t i = count; i-- > 0;)
        if (blocks[i].ordinal == ordinal) {
            let_go(&blocks[i]);
            blocks[i] = blocks[--count];
        }
    pthread_mutex_unlock(&guard);
}

int cuda_globals(CUdeviceptr *to, size_t *size, int ordinal)
{
    bool known = false;
    *size = 1 << 20;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < count && !known; i++)
        if ((known = blocks[i].kind == GLOBALS && blocks[i].ordinal == ordinal))
            *to = blocks[i].at;
    pthread_mutex_unlock(&guard);
    return known ? CUDA_OK : allocate(to, *size, ordinal, GLOBALS);
}

/* --- device memory --- */

API(cuMemAlloc_v2, CUdeviceptr *to, size_t size) { BEGIN_CURRENT(c); return allocate(to, size, c->ordinal, DEVICE); }

API(cuMemAllocAsync, CUdeviceptr *to, size_t size, CUstream s)
{
    BEGIN_CURRENT(c);
    return allocate(to, size, c->ordinal, DEVICE);
}

API(cuMemAllocManaged, CUdeviceptr *to, size_t size, unsigned f)
{
    BEGIN_CURRENT(c);
    return allocate(to, size, c->ordinal, MANAGED);
}

API(cuMemAllocPitch_v2, CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element)
{
    BEGIN_CURRENT(context);
    NEED(pitch && height && width < (size_t)1 << 40);
    *pitch = (width + 511) & ~(size_t)511;
    return allocate(to, *pitch * height, context->ordinal, DEVICE);
}

/* Freeing works on a lost GPU too: TensorFlow must be able to leave. */
API(cuMemFree_v2, CUdeviceptr at) { BEGIN(-1); return release(at); }
API(cuMemFreeAsync, CUdeviceptr at, CUstream s) { BEGIN(-1); return release(at); }

API(cuMemGetInfo_v2, size_t *free_bytes, size_t *total)
{
    BEGIN_CURRENT(context);
    NEED(free_bytes && total);
    int device = cuda.device[context->ordinal];
    sim_prune(cuda_machine, false);
    sim_lock(cuda_machine);
    *total = sim_capacity(&cuda_machine->device[device]);
    *free_bytes = *total - sim_used(cuda_machine, device);
    sim_unlock(cuda_machine);
    return CUDA_OK;
}

API(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
    BEGIN_CURRENT(context);
    struct block block;
    if (!find(at, &block, false))
        return CUDA_NOT_FOUND;
    if (base)
        *base = block.at;
    if (size)
        *size = block.size;
    return CUDA_OK;
}

/* --- pools: TF_GPU_ALLOCATOR=cuda_malloc_async; nothing is kept back, so the threshold is only stored --- */

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
    *to = attribute == 4 ? pool->threshold : 0;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; attribute > 4 && i < count; i++)
        if (blocks[i].ordinal == pool->ordinal && blocks[i].kind == DEVICE)
            *to += blocks[i].size;
    pthread_mutex_unlock(&guard);
    return CUDA_OK;
}

API(cuMemAllocFromPoolAsync, CUdeviceptr *to, size_t size, struct pool *pool, CUstream stream)
{
    NEED(pool);
    BEGIN(pool->ordinal);
    return allocate(to, size, pool->ordinal, DEVICE);
}

/* --- host memory --- */

API(cuMemHostAlloc, void **to, size_t size, unsigned f)
{
    BEGIN_CURRENT(c);
    return allocate((CUdeviceptr *)to, size, c->ordinal, HOST);
}

API(cuMemAllocHost_v2, void **to, size_t size)
{
    BEGIN_CURRENT(c);
    return allocate((CUdeviceptr *)to, size, c->ordinal, HOST);
}

API(cuMemFreeHost, void *at) { BEGIN(-1); return release((CUdeviceptr)at); }

API(cuMemHostRegister_v2, void *at, size_t size, unsigned flags)
{
    BEGIN_CURRENT(context);
    NEED(at && size);
    struct block block = {.at = (CUdeviceptr)at, .size = size, .ordinal = context->ordinal, .kind = REGISTERED};
    return remember(block);
}

API(cuMemHostUnregister, void *at) { BEGIN(-1); return release((CUdeviceptr)at); }

API(cuMemHostGetDevicePointer_v2, CUdeviceptr *to, void *at, unsigned flags)
{
    BEGIN(-1);
    NEED(to && at);
    *to = (CUdeviceptr)at;
    return CUDA_OK;
}

/* --- what a pointer is: without it copies between logical GPUs abort --- */

static int describe(void *to, int attribute, CUdeviceptr at)
{
    struct block block;
    if (!find(at, &block, false))
        return CUDA_INVALID_VALUE;
    bool device = block.kind <= GLOBALS;
    switch (attribute) {
    case 1: *(CUcontext *)to = &cuda.primary[block.ordinal]; break;
    case 2: *(unsigned *)to = device ? 2 : 1; break;
    case 3: *(CUdeviceptr *)to = at; break;
    case 4: *(void **)to = device ? NULL : (void *)at; break;
    case 6: *(int *)to = 0; break;
    case 7: *(uint64_t *)to = block.id; break;
    case 8: *(int *)to = block.kind == MANAGED; break;
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
