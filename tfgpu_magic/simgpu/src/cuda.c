/* cuda.c: the stand-in for libcuda.so.1: the process's state, the checks of every call, and errors. */
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

struct cuda_process cuda;
struct sim_machine *cuda_machine;

__thread CUcontext cuda_current;

/* --- the checks of every call --- */

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
    int wrong = cuda_begin(function, cuda_current ? cuda_current->ordinal : -1);
    if (wrong)
        return wrong;
    *context = cuda_current;
    return *context ? CUDA_OK : CUDA_INVALID_CONTEXT;
}

int cuda_launched(CUcontext context)
{
    sim_launched(cuda_machine, cuda.device[context->ordinal]);
    return CUDA_OK;
}

/* --- what the library is --- */

API(cuDriverGetVersion, int *to) { NEED(to); *to = 12080; return CUDA_OK; }

API(cuGetProcAddress_v2, const char *name, void **to, int version, uint64_t flags, int *found)
{
    NEED(name && to);
    enum { FOUND, NOT_FOUND };
    Dl_info here;
    char newer[128];
    snprintf(newer, sizeof newer, "%s_v2", name);
    void *own = dladdr(&cuda, &here) ? dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    *to = own ? dlsym(own, newer) : NULL;
    if (own && !*to)
        *to = dlsym(own, name);
    if (found)
        *found = *to ? FOUND : NOT_FOUND;
    return *to ? CUDA_OK : CUDA_NOT_FOUND;
}

/* --- errors --- */

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
