/* cuda.c: the stand-in for libcuda.so.1: the process's state, the checks of every call, and errors. */
#include "cuda.h"

#include <signal.h>
#include <unistd.h>

struct cuda_process cuda;
struct sim_machine *cuda_machine;

__thread CUcontext cuda_current;

/* --- the checks of every call --- */

static int valid(int ordinal)
{
    if (cuda.pid != getpid())
        return CUDA_NOT_INITIALIZED;
    return ordinal >= cuda.count || ordinal < -1 ? CUDA_INVALID_DEVICE : CUDA_OK;
}

static int fault_of(const char *function, int ordinal)
{
    if (cuda.broken)
        return cuda.broken;
    int device = ordinal < 0 ? -1 : cuda.device[ordinal];
    int fault = sim_fault_of(cuda_machine, function, device);
    if (fault)
        return fault;
    return device >= 0 && sim_lost(cuda_machine, device) ? CUDA_UNKNOWN : CUDA_OK;
}

/* What begins inside the gate, and fails, must leave it. */
static int inside(int outcome)
{
    if (outcome)
        cuda_leave();
    return outcome;
}

int cuda_begin(const char *function, int ordinal)
{
    int wrong = valid(ordinal);
    if (wrong)
        return wrong;
    cuda_enter(true);
    return inside(fault_of(function, ordinal));
}

int cuda_begin_current(const char *function, CUcontext *context)
{
    int wrong = cuda_begin(function, cuda_current ? cuda_current->ordinal : -1);
    if (wrong)
        return wrong;
    *context = cuda_current;
    return inside(*context ? CUDA_OK : CUDA_INVALID_CONTEXT);
}

int cuda_launched(CUcontext context)
{
    sim_launched(cuda_machine, cuda.device[context->ordinal]);
    return CUDA_OK;
}

int cuda_begin_beside(const char *function, int ordinal)
{
    int wrong = valid(ordinal);
    return wrong ? wrong : fault_of(function, ordinal);
}

int cuda_begin_wait(const char *function, int ordinal)
{
    int wrong = valid(ordinal);
    if (wrong)
        return wrong;
    switch (cuda_enter(false)) {
    case GATE_AWAY: raise(SIGSEGV); return CUDA_UNKNOWN;
    case GATE_LOCKED: return CUDA_LOCKED;
    default: return inside(fault_of(function, ordinal));
    }
}

/* --- errors --- */

API(cuDriverGetVersion, int *to) { NEED(to); *to = sim_here() && sim_driver(sim_here()) >= 615 ? 13040 : 12080; return CUDA_OK; }

static const struct { int code; const char *name, *text; } errors[] = {
    {CUDA_OK, "CUDA_SUCCESS", "no error"},
    {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
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
