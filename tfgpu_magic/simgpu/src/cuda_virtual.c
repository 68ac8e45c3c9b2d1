/* cuda_virtual.c: virtual memory management, XLA's way to memory since 2026: addresses are reserved, physical memory is
 * made (and charged to the process), and mapped there. */
#include "cuda.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { GRANULARITY = 2 << 20, ON_DEVICE = 1 };

/* What the stand-in reads of CUmemAllocationProp. */
struct properties { int type, handle_types, location_type, location; };

API(cuMemGetAllocationGranularity, size_t *to, const struct properties *properties, int option)
{
    BEGIN(-1);
    NEED(to);
    *to = GRANULARITY;
    return CUDA_OK;
}

/* --- physical memory --- */

API(cuMemCreate, struct cuda_physical **to, size_t size, const struct properties *properties, unsigned long long flags)
{
    NEED(to && properties && size && size % GRANULARITY == 0);
    if (properties->location_type != ON_DEVICE)
        return CUDA_NOT_SUPPORTED;
    BEGIN(properties->location);
    struct cuda_physical *physical = malloc(sizeof *physical);
    NEED(physical);
    *physical = (struct cuda_physical){.size = size, .ordinal = properties->location, .references = 1};
    if (!cuda_charge(physical->ordinal, size)) {
        free(physical);
        return CUDA_OUT_OF_MEMORY;
    }
    *to = physical;
    return CUDA_OK;
}

API(cuMemRelease, struct cuda_physical *physical)
{
    BEGIN(-1);
    NEED(physical);
    cuda_release(physical);
    return CUDA_OK;
}

API(cuMemRetainAllocationHandle, struct cuda_physical **to, void *at)
{
    BEGIN(-1);
    struct cuda_block block;
    NEED(to && cuda_find((CUdeviceptr)at, &block, false) && block.kind == MEMORY_MAPPED);
    atomic_fetch_add(&block.physical->references, 1);
    *to = block.physical;
    return CUDA_OK;
}

/* --- addresses --- */

/* Maps more than asked for, and gives back what lies before and after the aligned part. */
API(cuMemAddressReserve, CUdeviceptr *to, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    BEGIN(-1);
    NEED(to && size && size % GRANULARITY == 0 && (alignment & (alignment - 1)) == 0);
    if (alignment < GRANULARITY)
        alignment = GRANULARITY;
    size_t all = size + alignment;
    char *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return CUDA_OUT_OF_MEMORY;
    char *aligned = (char *)(((CUdeviceptr)map + alignment - 1) & ~(CUdeviceptr)(alignment - 1));
    if (aligned > map)
        munmap(map, (size_t)(aligned - map));
    munmap(aligned + size, (size_t)(map + all - (aligned + size)));
    *to = (CUdeviceptr)aligned;
    return CUDA_OK;
}

API(cuMemAddressFree, CUdeviceptr at, size_t size)
{
    BEGIN(-1);
    return munmap((void *)at, size) ? CUDA_INVALID_VALUE : CUDA_OK;
}

API(cuMemMap, CUdeviceptr at, size_t size, size_t offset, struct cuda_physical *physical, unsigned long long flags)
{
    BEGIN(-1);
    NEED(at && physical && size && offset + size <= physical->size);
    struct cuda_block block = {
        .at = at, .size = size, .ordinal = physical->ordinal, .kind = MEMORY_MAPPED, .physical = physical,
    };
    int outcome = cuda_remember(block);
    if (!outcome)
        atomic_fetch_add(&physical->references, 1);
    return outcome;
}

API(cuMemUnmap, CUdeviceptr at, size_t size)
{
    BEGIN(-1);
    struct cuda_block block;
    for (CUdeviceptr next = at; next < at + size; next += block.size) {
        NEED(cuda_find(next, &block, true) && block.kind == MEMORY_MAPPED);
        cuda_unmap(&block);
    }
    return CUDA_OK;
}

API(cuMemSetAccess, CUdeviceptr at, size_t size, const void *access, size_t count) { BEGIN(-1); return CUDA_OK; }
