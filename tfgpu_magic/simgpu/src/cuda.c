/* cuda.c: the stand-in for libcuda.so.1: initialisation, the checks of every call, and errors. */
#include "cuda.h"

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
    int wrong = cuda_begin(function, -1);
    if (wrong)
        return wrong;
    *context = cuda_current;
    if (!*context)
        return CUDA_INVALID_CONTEXT;
    return cuda_begin(function, (*context)->ordinal);
}

int cuda_launched(CUcontext context)
{
    sim_launched(cuda_machine, cuda.device[context->ordinal]);
    return CUDA_OK;
}

/* --- starting --- */

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
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static pid_t tried;
    static int outcome;
    NEED(!flags);
    if (tried && tried != getpid())
        return CUDA_NOT_INITIALIZED; /* forked after cuInit */
    pthread_mutex_lock(&guard);
    if (!tried) {
        outcome = start(); /* once: the first call decides what is visible */
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
