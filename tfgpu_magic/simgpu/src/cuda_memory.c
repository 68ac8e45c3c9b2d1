/* cuda_memory.c: device and host memory: allocations are charged to the machine and mapped without being reserved, so
 * that 80 GiB cost nothing until touched. */
#include "cuda.h"

#include <stdlib.h>
#include <sys/mman.h>

/* TensorFlow allocates few and large blocks, so a list is enough; from pools many, of which it frees the last first. */
static struct cuda_block *blocks;
static size_t count, room;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

int cuda_remember(struct cuda_block block)
{
    static uint64_t last_id;
    pthread_mutex_lock(&guard);
    if (count == room) {
        size_t more = room ? 2 * room : 64;
        struct cuda_block *larger = realloc(blocks, more * sizeof *blocks);
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

bool cuda_find(CUdeviceptr at, struct cuda_block *found, bool take)
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

static bool is_charged(const struct cuda_block *block)
{
    return block->kind == MEMORY_DEVICE || block->kind == MEMORY_MANAGED;
}

static bool charge(const struct cuda_block *block)
{
    if (block->pool)
        return cuda_pool_take(block->pool, block->size);
    return !is_charged(block) || cuda_charge(block->ordinal, block->size);
}

static void discharge(const struct cuda_block *block)
{
    if (block->pool)
        cuda_pool_return(block->pool, block->size);
    else if (is_charged(block))
        cuda_discharge(block->ordinal, block->size);
}

static int allocate(CUdeviceptr *to, struct cuda_block block)
{
    NEED(to && block.size);
    if (block.size > (size_t)1 << 46)
        return CUDA_OUT_OF_MEMORY;
    block.size = rounded(block.size);
    if (!charge(&block))
        return CUDA_OUT_OF_MEMORY;
    void *map = mmap(NULL, block.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    block.at = (CUdeviceptr)map;
    if (map != MAP_FAILED && cuda_remember(block) == CUDA_OK) {
        *to = block.at;
        return CUDA_OK;
    }
    if (map != MAP_FAILED)
        munmap(map, block.size);
    discharge(&block);
    return CUDA_OUT_OF_MEMORY;
}

static int allocate_plain(CUdeviceptr *to, size_t size, int ordinal, enum cuda_kind kind)
{
    return allocate(to, (struct cuda_block){.size = size, .ordinal = ordinal, .kind = kind});
}

int cuda_allocate_from(struct cuda_pool *pool, CUdeviceptr *to, size_t size)
{
    struct cuda_block block = {.size = size, .ordinal = pool->ordinal, .kind = MEMORY_DEVICE, .pool = pool};
    return allocate(to, block);
}

void cuda_release(struct cuda_physical *physical)
{
    if (atomic_fetch_sub(&physical->references, 1) > 1)
        return;
    cuda_discharge(physical->ordinal, physical->size);
    free(physical);
}

void cuda_unmap(const struct cuda_block *block)
{
    madvise((void *)block->at, block->size, MADV_DONTNEED);
    cuda_release(block->physical);
}

static void let_go(const struct cuda_block *block)
{
    if (block->kind == MEMORY_MAPPED) {
        cuda_unmap(block);
        return;
    }
    if (block->kind != MEMORY_REGISTERED)
        munmap((void *)block->at, block->size);
    discharge(block);
}

static int release(CUdeviceptr at)
{
    struct cuda_block block;
    if (!at)
        return CUDA_OK;
    NEED(cuda_find(at, &block, true));
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
    cuda_empty_pools(ordinal);
}

int cuda_globals(CUdeviceptr *to, size_t *size, int ordinal)
{
    bool known = false;
    *size = 1 << 20;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < count && !known; i++)
        if ((known = blocks[i].kind == MEMORY_GLOBALS && blocks[i].ordinal == ordinal))
            *to = blocks[i].at;
    pthread_mutex_unlock(&guard);
    return known ? CUDA_OK : allocate_plain(to, *size, ordinal, MEMORY_GLOBALS);
}

/* --- device memory --- */

API(cuMemAlloc_v2, CUdeviceptr *to, size_t size)
{
    BEGIN_CURRENT(c);
    return allocate_plain(to, size, c->ordinal, MEMORY_DEVICE);
}

API(cuMemAllocManaged, CUdeviceptr *to, size_t size, unsigned f)
{
    BEGIN_CURRENT(c);
    return allocate_plain(to, size, c->ordinal, MEMORY_MANAGED);
}

API(cuMemAllocPitch_v2, CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element)
{
    BEGIN_CURRENT(context);
    NEED(pitch && height && width < (size_t)1 << 40);
    *pitch = (width + 511) & ~(size_t)511;
    return allocate_plain(to, *pitch * height, context->ordinal, MEMORY_DEVICE);
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
    struct sim_memory seen = sim_memory_seen(cuda_machine, device);
    *total = seen.total - seen.reserved;
    *free_bytes = seen.free;
    return CUDA_OK;
}

API(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
    BEGIN_CURRENT(context);
    struct cuda_block block;
    if (!cuda_find(at, &block, false))
        return CUDA_NOT_FOUND;
    if (base)
        *base = block.at;
    if (size)
        *size = block.size;
    return CUDA_OK;
}

/* --- host memory --- */

API(cuMemHostAlloc, void **to, size_t size, unsigned f)
{
    BEGIN_CURRENT(c);
    return allocate_plain((CUdeviceptr *)to, size, c->ordinal, MEMORY_HOST);
}

API(cuMemAllocHost_v2, void **to, size_t size)
{
    BEGIN_CURRENT(c);
    return allocate_plain((CUdeviceptr *)to, size, c->ordinal, MEMORY_HOST);
}

API(cuMemFreeHost, void *at) { BEGIN(-1); return release((CUdeviceptr)at); }

API(cuMemHostRegister_v2, void *at, size_t size, unsigned flags)
{
    BEGIN_CURRENT(context);
    NEED(at && size);
    struct cuda_block block = {
        .at = (CUdeviceptr)at, .size = size, .ordinal = context->ordinal, .kind = MEMORY_REGISTERED,
    };
    return cuda_remember(block);
}

API(cuMemHostUnregister, void *at) { BEGIN(-1); return release((CUdeviceptr)at); }

API(cuMemHostGetDevicePointer_v2, CUdeviceptr *to, void *at, unsigned flags)
{
    BEGIN(-1);
    NEED(to && at);
    *to = (CUdeviceptr)at;
    return CUDA_OK;
}
