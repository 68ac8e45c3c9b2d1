/* cuda_context.c: contexts, each of which takes memory of its device, and each thread's current one. */
#include "cuda.h"

#include <stdlib.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of cuda.primary's retains */

static int activate(CUcontext context)
{
    if (sim_denied(cuda_machine, cuda.device[context->ordinal]))
        return CUDA_UNAVAILABLE;
    bool fits = sim_charge(cuda_machine, cuda.device[context->ordinal], cuda_machine->context);
    return fits ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

static void deactivate(CUcontext context)
{
    cuda_free_all(context->ordinal);
    sim_discharge(cuda_machine, cuda.device[context->ordinal], cuda_machine->context);
}

API(cuDevicePrimaryCtxRetain, CUcontext *to, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && ordinal >= 0);
    CUcontext context = &cuda.primary[ordinal];
    pthread_mutex_lock(&guard);
    int outcome = context->retains ? CUDA_OK : activate(context);
    if (!outcome) {
        context->retains++;
        *to = context;
    }
    pthread_mutex_unlock(&guard);
    return outcome;
}

static int release(int ordinal, bool all)
{
    NEED(ordinal >= 0);
    CUcontext context = &cuda.primary[ordinal];
    pthread_mutex_lock(&guard);
    bool active = context->retains > 0;
    if (active)
        context->retains = all ? 0 : context->retains - 1;
    if (active && !context->retains)
        deactivate(context);
    pthread_mutex_unlock(&guard);
    return active || all ? CUDA_OK : CUDA_INVALID_CONTEXT;
}

API(cuDevicePrimaryCtxRelease, int ordinal) { BEGIN(ordinal); return release(ordinal, false); }
API(cuDevicePrimaryCtxRelease_v2, int ordinal) { BEGIN(ordinal); return release(ordinal, false); }
API(cuDevicePrimaryCtxReset, int ordinal) { BEGIN(ordinal); return release(ordinal, true); }
API(cuDevicePrimaryCtxReset_v2, int ordinal) { BEGIN(ordinal); return release(ordinal, true); }

API(cuDevicePrimaryCtxGetState, int ordinal, unsigned *flags, int *active)
{
    BEGIN(ordinal);
    NEED(flags && active && ordinal >= 0);
    *flags = cuda.primary[ordinal].flags;
    *active = cuda.primary[ordinal].retains > 0;
    return CUDA_OK;
}

static int set_flags(int ordinal, unsigned flags)
{
    NEED(ordinal >= 0);
    cuda.primary[ordinal].flags = flags;
    return CUDA_OK;
}

API(cuDevicePrimaryCtxSetFlags, int ordinal, unsigned flags) { BEGIN(ordinal); return set_flags(ordinal, flags); }
API(cuDevicePrimaryCtxSetFlags_v2, int ordinal, unsigned flags) { BEGIN(ordinal); return set_flags(ordinal, flags); }

/* --- each thread's stack of them, whose top is the current one --- */

enum { STACK = 32 };
static __thread CUcontext stack[STACK];
static __thread int depth;

static int push(CUcontext context)
{
    if (depth == STACK)
        return CUDA_UNKNOWN;
    stack[depth++] = cuda_current = context;
    return CUDA_OK;
}

static void pop(void)
{
    if (depth)
        depth--;
    cuda_current = depth ? stack[depth - 1] : NULL;
}

API(cuCtxCreate_v2, CUcontext *to, unsigned flags, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && ordinal >= 0);
    CUcontext context = calloc(1, sizeof *context);
    NEED(context);
    *context = (struct cuda_context){.ordinal = ordinal, .flags = flags, .retains = 1};
    int outcome = activate(context);
    if (outcome)
        free(context);
    else
        push(*to = context);
    return outcome;
}

API(cuCtxDestroy_v2, CUcontext context)
{
    BEGIN(-1);
    NEED(context && !context->primary);
    /* Its memory is not distinguished from the primary context's: only the context itself is freed. */
    sim_discharge(cuda_machine, cuda.device[context->ordinal], cuda_machine->context);
    if (cuda_current == context)
        pop();
    free(context);
    return CUDA_OK;
}

API(cuCtxSetCurrent, CUcontext context)
{
    BEGIN(-1);
    pop();
    return context ? push(context) : CUDA_OK;
}

API(cuCtxGetCurrent, CUcontext *to) { BEGIN(-1); NEED(to); *to = cuda_current; return CUDA_OK; }
API(cuCtxPushCurrent_v2, CUcontext context) { BEGIN(-1); NEED(context); return push(context); }

API(cuCtxPopCurrent_v2, CUcontext *to)
{
    BEGIN(-1);
    if (!depth)
        return CUDA_INVALID_CONTEXT;
    if (to)
        *to = cuda_current;
    pop();
    return CUDA_OK;
}

API(cuCtxGetDevice, int *to) { BEGIN_CURRENT(context); NEED(to); *to = context->ordinal; return CUDA_OK; }
API(cuCtxGetFlags, unsigned *to) { BEGIN_CURRENT(context); NEED(to); *to = context->flags; return CUDA_OK; }
API(cuCtxGetApiVersion, CUcontext context, unsigned *to) { BEGIN(-1); NEED(to); *to = 3020; return CUDA_OK; }

API(cuCtxGetStreamPriorityRange, int *least, int *greatest)
{
    BEGIN(-1);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_OK;
}

API(cuCtxSynchronize, void) { BEGIN_CURRENT(context); cuda_waited(context->ordinal); return CUDA_OK; }
API(cuCtxEnablePeerAccess, CUcontext peer, unsigned flags) { BEGIN(-1); return CUDA_NOT_SUPPORTED; }
API(cuCtxSetLimit, int limit, size_t value) { BEGIN(-1); return CUDA_OK; }
API(cuCtxGetLimit, size_t *to, int limit) { BEGIN(-1); NEED(to); *to = 0; return CUDA_OK; }
