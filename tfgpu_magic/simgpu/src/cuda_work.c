/* cuda_work.c: streams, events, modules, kernels: everything is done at once, and a kernel does nothing at all. */
#include "cuda.h"

#include <stdlib.h>
#include <time.h>

struct cuda_stream { CUcontext context; int priority; };
struct cuda_event { struct timespec time; int ordinal; };
struct module { int unused; };
struct function { int unused; };

static struct module some_module;
static struct function some_function;

/* --- streams --- */

/* 0, 1 and 2 are names of the default streams: nothing was made for them. */
static bool made(CUstream s)
{
    return (uintptr_t)s > 2;
}

static int ordinal_of(CUstream s)
{
    return made(s) ? s->context->ordinal : -1;
}

/* The device whose work is in a stream: of a default one, the current context's. */
static int works_on(CUstream s)
{
    return made(s) ? s->context->ordinal : cuda_current ? cuda_current->ordinal : -1;
}

static int make_stream(CUstream *to, CUcontext context, int priority)
{
    NEED(to && (*to = malloc(sizeof **to)));
    **to = (struct cuda_stream){context, priority};
    return CUDA_OK;
}

API(cuStreamCreate, CUstream *to, unsigned flags) { BEGIN_CURRENT(c); return make_stream(to, c, 0); }

API(cuStreamCreateWithPriority, CUstream *to, unsigned flags, int priority)
{
    BEGIN_CURRENT(c);
    return make_stream(to, c, priority);
}

API(cuStreamDestroy_v2, CUstream s)
{
    BEGIN(-1);
    if (made(s))
        free(s);
    return CUDA_OK;
}

API(cuStreamSynchronize, CUstream s) { BEGIN(ordinal_of(s)); cuda_waited(works_on(s)); return CUDA_OK; }
API(cuStreamQuery, CUstream s) { BEGIN(ordinal_of(s)); return CUDA_OK; }
API(cuStreamWaitEvent, CUstream s, CUevent e, unsigned flags) { BEGIN(-1); return CUDA_OK; }
API(cuStreamGetPriority, CUstream s, int *to) { BEGIN(-1); NEED(to); *to = made(s) ? s->priority : 0; return CUDA_OK; }

API(cuStreamGetCtx, CUstream s, CUcontext *to)
{
    BEGIN_CURRENT(c);
    NEED(to);
    *to = made(s) ? s->context : c;
    return CUDA_OK;
}

API(cuStreamAttachMemAsync, CUstream s, CUdeviceptr at, size_t n, unsigned f) { BEGIN(-1); return CUDA_OK; }

API(cuStreamAddCallback, CUstream s, void (*call)(CUstream, int, void *), void *data, unsigned flags)
{
    BEGIN(-1);
    NEED(call);
    call(s, CUDA_OK, data);
    return CUDA_OK;
}

API(cuLaunchHostFunc, CUstream s, void (*call)(void *), void *data)
{
    BEGIN(-1);
    NEED(call);
    call(data);
    return CUDA_OK;
}

/* TensorFlow may wait on the device for a value that the host or another stream writes. */
API(cuStreamWriteValue32_v2, CUstream s, CUdeviceptr at, uint32_t value, unsigned f)
{
    BEGIN(-1);
    NEED(at);
    *(volatile uint32_t *)at = value;
    return CUDA_OK;
}

API(cuStreamWaitValue32_v2, CUstream s, CUdeviceptr at, uint32_t value, unsigned f) { BEGIN(-1); return CUDA_OK; }

/* --- events --- */

API(cuEventCreate, CUevent *to, unsigned flags)
{
    BEGIN_CURRENT(context);
    NEED(to && (*to = calloc(1, sizeof **to)));
    (*to)->ordinal = context->ordinal;
    return CUDA_OK;
}

static int record(CUevent event)
{
    NEED(event);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return CUDA_OK;
}

API(cuEventRecord, CUevent event, CUstream s)
{
    BEGIN(ordinal_of(s));
    return record(event);
}

API(cuEventRecordWithFlags, CUevent event, CUstream s, unsigned f)
{
    BEGIN(ordinal_of(s));
    return record(event);
}

API(cuEventQuery, CUevent event) { BEGIN(-1); return CUDA_OK; }

API(cuEventSynchronize, CUevent event)
{
    BEGIN(-1);
    NEED(event);
    cuda_waited(event->ordinal);
    return CUDA_OK;
}

API(cuEventDestroy_v2, CUevent event) { BEGIN(-1); free(event); return CUDA_OK; }

static int elapsed(float *ms, CUevent first, CUevent last)
{
    NEED(ms && first && last);
    *ms = (float)(last->time.tv_sec - first->time.tv_sec) * 1e3f;
    *ms += (float)(last->time.tv_nsec - first->time.tv_nsec) / 1e6f;
    return CUDA_OK;
}

API(cuEventElapsedTime, float *ms, CUevent first, CUevent last) { BEGIN(-1); return elapsed(ms, first, last); }
API(cuEventElapsedTime_v2, float *ms, CUevent first, CUevent last) { BEGIN(-1); return elapsed(ms, first, last); }

/* --- modules and kernels --- */

static int give_module(struct module **to)
{
    NEED(to);
    *to = &some_module;
    return CUDA_OK;
}

API(cuModuleLoadData, struct module **to, const void *image) { BEGIN_CURRENT(c); return give_module(to); }
API(cuModuleLoadFatBinary, struct module **to, const void *image) { BEGIN_CURRENT(c); return give_module(to); }

API(cuModuleLoadDataEx, struct module **to, const void *image, unsigned n, const int *option, void **value)
{
    BEGIN_CURRENT(context);
    return give_module(to);
}

API(cuModuleUnload, struct module *module) { BEGIN(-1); return CUDA_OK; }

API(cuModuleGetFunction, struct function **to, struct module *module, const char *name)
{
    BEGIN(-1);
    NEED(to);
    *to = &some_function;
    return CUDA_OK;
}

/* All globals are the same megabyte: no kernel reads what is written there. */
API(cuModuleGetGlobal_v2, CUdeviceptr *to, size_t *size, struct module *module, const char *name)
{
    BEGIN_CURRENT(context);
    CUdeviceptr at;
    size_t bytes;
    int outcome = cuda_globals(&at, &bytes, context->ordinal);
    if (!outcome && to)
        *to = at;
    if (!outcome && size)
        *size = bytes;
    return outcome;
}

API(cuFuncGetAttribute, int *to, int attribute, struct function *f)
{
    BEGIN(-1);
    NEED(to);
    static const int values[] = {[0] = 1024, [4] = 32, [5] = 80, [6] = 80}; /* threads, registers, versions */
    *to = attribute >= 0 && attribute <= 6 ? values[attribute] : 0;
    return CUDA_OK;
}

API(cuFuncSetAttribute, struct function *f, int attribute, int value) { BEGIN(-1); return CUDA_OK; }
API(cuFuncSetCacheConfig, struct function *f, int config) { BEGIN(-1); return CUDA_OK; }
API(cuFuncGetModule, struct module **to, struct function *f) { BEGIN(-1); return give_module(to); }

/* The caller clears the stack, so a launch needs to name only its first arguments. */
API(cuLaunchKernel, struct function *f) { BEGIN_CURRENT(c); return cuda_launched(c); }
API(cuLaunchKernelEx, const void *config, struct function *f) { BEGIN_CURRENT(c); return cuda_launched(c); }
API(cuLaunchCooperativeKernel, struct function *f) { BEGIN_CURRENT(c); return cuda_launched(c); }

API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *to, struct function *f, int threads, size_t shared)
{
    BEGIN(-1);
    NEED(to && threads > 0);
    *to = threads > 1024 ? 1 : 2048 / threads > 32 ? 32 : 2048 / threads;
    return CUDA_OK;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *to, struct function *f, int threads,
    size_t shared, unsigned flags)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(to, f, threads, shared);
}

API(cuOccupancyMaxPotentialBlockSize, int *grid, int *block, struct function *f, void *shared_of, size_t shared,
    int limit)
{
    BEGIN(-1);
    NEED(grid && block);
    *grid = 32;
    *block = 1024;
    return CUDA_OK;
}
