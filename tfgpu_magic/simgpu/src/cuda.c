/* cuda.c: the stand-in for libcuda.so.1: starting it, devices, contexts. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cuda_process cuda;
struct sim_machine *cuda_machine;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of cuda.primary's retains, and of starting */

enum { STACK = 32 };
static __thread CUcontext stack[STACK];
static __thread int depth;

/* --- starting, and what every call asks first --- */

int cuda_begin(const char *function, int ordinal)
{
    if (cuda.pid != getpid())
        return CUDA_NOT_INITIALIZED;
    if (ordinal >= cuda.count || ordinal < -1)
        return CUDA_INVALID_DEVICE;
    int device = ordinal < 0 ? -1 : cuda.device[ordinal];
    int fault = sim_fault_of(cuda_machine, function, device);
    if (fault)
        return fault;
    return device >= 0 && sim_lost(cuda_machine, device) ? CUDA_UNKNOWN : CUDA_OK;
}

int cuda_begin_current(const char *function, CUcontext *context)
{
    int wrong = cuda_begin(function, -1);
    if (wrong)
        return wrong;
    *context = depth ? stack[depth - 1] : NULL;
    if (!*context)
        return CUDA_INVALID_CONTEXT;
    return cuda_begin(function, (*context)->ordinal);
}

static int start(void)
{
    cuda_machine = sim_here();
    if (!cuda_machine)
        return CUDA_NO_DEVICE;
    int fault = sim_fault_of(cuda_machine, "cuInit", -1);
    if (fault)
        return fault;
    if (atomic_load(&cuda_machine->flags) & SIM_NO_DRIVER)
        return CUDA_NO_DEVICE;
    int count = cuda_visible(cuda_machine, cuda.device);
    if (!count)
        return CUDA_NO_DEVICE;
    for (int i = 0; i < count; i++)
        cuda.primary[i] = (struct cuda_context){.ordinal = i, .primary = true};
    cuda.count = count;
    sim_forget_self(cuda_machine);
    cuda.pid = getpid();
    return CUDA_OK;
}

API(cuInit, unsigned flags)
{
    static pid_t tried;
    static int outcome;
    NEED(!flags);
    if (tried && tried != getpid())
        return CUDA_NOT_INITIALIZED; /* forked after cuInit */
    pthread_mutex_lock(&guard);
    if (!tried) {
        outcome = start(); /* once: what is visible is settled by the first call */
        tried = getpid();
    }
    pthread_mutex_unlock(&guard);
    return outcome;
}

API(cuDriverGetVersion, int *to) { NEED(to); *to = 12080; return CUDA_OK; }

static const struct { int code; const char *name, *text; } errors[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int describe(int code, bool by_name, const char **to)
{
    NEED(to);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *to = by_name ? errors[i].name : errors[i].text;
            return CUDA_OK;
        }
    *to = NULL;
    return CUDA_INVALID_VALUE;
}

API(cuGetErrorName, int code, const char **to) { return describe(code, true, to); }
API(cuGetErrorString, int code, const char **to) { return describe(code, false, to); }

/* --- devices --- */

static struct sim_device *about(int ordinal)
{
    return &cuda_machine->device[cuda.device[ordinal]];
}

API(cuDeviceGetCount, int *to) { BEGIN(-1); NEED(to); *to = cuda.count; return CUDA_OK; }

API(cuDeviceGet, int *to, int ordinal)
{
    BEGIN(-1);
    NEED(to);
    if (ordinal < 0 || ordinal >= cuda.count)
        return CUDA_INVALID_DEVICE;
    *to = ordinal;
    return CUDA_OK;
}

API(cuDeviceGetName, char *to, int size, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && size > 0 && ordinal >= 0);
    snprintf(to, (size_t)size, "%s", about(ordinal)->name);
    return CUDA_OK;
}

static int give_uuid(unsigned char to[16], const struct sim_device *device)
{
    NEED(to);
    int at = 0;
    for (const char *digit = device->uuid + 4; *digit && at < 16; digit++)
        if (*digit != '-') {
            unsigned byte = 0;
            sscanf(digit++, "%2x", &byte);
            to[at++] = (unsigned char)byte;
        }
    return CUDA_OK;
}

/* The first version gives the UUID of the whole GPU, the second that of the MIG instance: without MIG both are one. */
API(cuDeviceGetUuid, unsigned char *to, int ordinal)
{
    BEGIN(ordinal);
    NEED(ordinal >= 0);
    int parent = about(ordinal)->parent;
    return give_uuid(to, parent < 0 ? about(ordinal) : &cuda_machine->device[parent]);
}

API(cuDeviceGetUuid_v2, unsigned char *to, int ordinal)
{
    BEGIN(ordinal);
    NEED(ordinal >= 0);
    return give_uuid(to, about(ordinal));
}

API(cuDeviceGetPCIBusId, char *to, int size, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && size > 0 && ordinal >= 0);
    snprintf(to, (size_t)size, "%s", about(ordinal)->pci);
    return CUDA_OK;
}

API(cuDeviceGetByPCIBusId, int *to, const char *pci)
{
    BEGIN(-1);
    NEED(to && pci);
    for (int i = 0; i < cuda.count; i++)
        if (strcasecmp(about(i)->pci, pci) == 0) {
            *to = i;
            return CUDA_OK;
        }
    return CUDA_INVALID_DEVICE;
}

API(cuDeviceTotalMem_v2, size_t *to, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && ordinal >= 0);
    *to = sim_capacity(about(ordinal));
    return CUDA_OK;
}

API(cuDeviceComputeCapability, int *major, int *minor, int ordinal)
{
    BEGIN(ordinal);
    NEED(major && minor && ordinal >= 0);
    *major = about(ordinal)->major;
    *minor = about(ordinal)->minor;
    return CUDA_OK;
}

/* What does not differ between GPUs, by CUdevice_attribute; what is not here is 0. */
static const int attributes[128] = {
    [1] = 1024, [2] = 1024, [3] = 1024, [4] = 64,               /* threads in a block, its dimensions */
    [5] = 0x7fffffff, [6] = 65535, [7] = 65535,                 /* a grid's dimensions */
    [8] = 48 << 10, [81] = 164 << 10, [97] = 163 << 10,         /* shared memory of a block, a SM, one that opts in */
    [9] = 64 << 10, [10] = 32, [12] = 65536, [82] = 65536,      /* constants, warp, registers */
    [15] = 1, [19] = 1, [31] = 1, [40] = 3, [41] = 1,           /* overlaps, mapped host memory, one address space */
    [36] = 1215000, [37] = 4096, [38] = 40 << 20, [39] = 2048,  /* memory clock and bus, L2, threads of a SM */
    [78] = 1, [106] = 32, [115] = 1,                            /* stream priorities, blocks of a SM, memory pools */
};

API(cuDeviceGetAttribute, int *to, int attribute, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && attribute > 0 && ordinal >= 0);
    const struct sim_device *device = about(ordinal);
    unsigned domain = 0, bus = 0, slot = 0;
    sscanf(device->pci, "%x:%x:%x", &domain, &bus, &slot);
    switch (attribute) {
    case 13: *to = device->clock_khz; break;
    case 16: *to = device->multiprocessors; break;
    case 33: *to = (int)bus; break;
    case 34: *to = (int)slot; break;
    case 50: *to = (int)domain; break;
    case 75: *to = device->major; break;
    case 76: *to = device->minor; break;
    default: *to = attribute < 128 ? attributes[attribute] : 0;
    }
    return CUDA_OK;
}

API(cuDeviceCanAccessPeer, int *to, int ordinal, int peer)
{
    BEGIN(ordinal);
    NEED(to && peer >= 0 && peer < cuda.count);
    *to = 0;
    return CUDA_OK;
}

/* --- contexts --- */

static int activate(CUcontext context)
{
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

static int push(CUcontext context)
{
    if (depth == STACK)
        return CUDA_UNKNOWN;
    stack[depth++] = context;
    return CUDA_OK;
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
    /* Its memory is told from the primary context's by nobody: only the context itself is given back. */
    sim_discharge(cuda_machine, cuda.device[context->ordinal], cuda_machine->context);
    if (depth && stack[depth - 1] == context)
        depth--;
    free(context);
    return CUDA_OK;
}

API(cuCtxSetCurrent, CUcontext context)
{
    BEGIN(-1);
    if (depth)
        depth--;
    return context ? push(context) : CUDA_OK;
}

API(cuCtxGetCurrent, CUcontext *to) { BEGIN(-1); NEED(to); *to = depth ? stack[depth - 1] : NULL; return CUDA_OK; }
API(cuCtxPushCurrent_v2, CUcontext context) { BEGIN(-1); NEED(context); return push(context); }

API(cuCtxPopCurrent_v2, CUcontext *to)
{
    BEGIN(-1);
    if (!depth)
        return CUDA_INVALID_CONTEXT;
    depth--;
    if (to)
        *to = stack[depth];
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

API(cuCtxSynchronize, void) { BEGIN_CURRENT(context); return CUDA_OK; }
API(cuCtxEnablePeerAccess, CUcontext peer, unsigned flags) { BEGIN(-1); return CUDA_NOT_SUPPORTED; }
API(cuCtxSetLimit, int limit, size_t value) { BEGIN(-1); return CUDA_OK; }
API(cuCtxGetLimit, size_t *to, int limit) { BEGIN(-1); NEED(to); *to = 0; return CUDA_OK; }
