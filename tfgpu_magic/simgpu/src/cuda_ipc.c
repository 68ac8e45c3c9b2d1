/* cuda_ipc.c: memory of a device that another process uses too. It gets addresses, and not the contents: what matters
 * here is that a checkpoint of either cannot be. */
#include "cuda.h"

#include <sys/mman.h>
#include <unistd.h>

struct handle { pid_t exporter; int device; size_t size; char unused[48]; }; /* CUipcMemHandle: 64 bytes, by value */
_Static_assert(sizeof(struct handle) == 64, "as large as a CUipcMemHandle");

API(cuIpcGetMemHandle, struct handle *to, CUdeviceptr at)
{
    BEGIN(-1);
    struct cuda_block block;
    NEED(to && cuda_find(at, &block, false) && block.kind == MEMORY_DEVICE);
    *to = (struct handle){.exporter = getpid(), .device = cuda.device[block.ordinal], .size = block.size};
    return CUDA_OK;
}

API(cuIpcOpenMemHandle_v2, CUdeviceptr *to, struct handle handle, unsigned flags)
{
    BEGIN_CURRENT(context);
    NEED(to && handle.exporter != getpid() && handle.device == cuda.device[context->ordinal]);
    void *map = mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct cuda_block block = {
        .at = *to = (CUdeviceptr)map, .size = handle.size, .ordinal = context->ordinal, .kind = MEMORY_IMPORTED,
        .exporter = handle.exporter,
    };
    bool shared = map != MAP_FAILED && sim_share(cuda_machine, handle.exporter);
    return shared ? cuda_remember(block) : CUDA_OUT_OF_MEMORY;
}

API(cuIpcCloseMemHandle, CUdeviceptr at)
{
    BEGIN(-1);
    struct cuda_block block;
    NEED(cuda_find(at, &block, true) && block.kind == MEMORY_IMPORTED);
    munmap((void *)block.at, block.size);
    sim_unshare(cuda_machine, block.exporter);
    return CUDA_OK;
}
