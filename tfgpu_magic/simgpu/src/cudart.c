/* cudart.c: the stand-in for libcudart.so.12, over the stand-in driver (the real one asks the driver for tables that
 * are not documented). Error codes are the driver's, which the runtime shares. */
#include "machine.h"
#include "standin.h"

#include <stdio.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;

extern int cuInit(unsigned), cuDriverGetVersion(int *), cuDeviceGetCount(int *);
extern int cuDeviceGetName(char *, int, int), cuDeviceGetAttribute(int *, int, int), cuDeviceTotalMem_v2(size_t *, int);
extern int cuDeviceGetUuid_v2(unsigned char *, int), cuDeviceGetPCIBusId(char *, int, int);
extern int cuGetErrorName(int, const char **), cuGetErrorString(int, const char **);
extern int cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuCtxGetDevice(int *), cuCtxSynchronize(void);
extern int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuMemGetInfo_v2(size_t *, size_t *);
extern int cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *);
extern int cuMemcpy(uint64_t, uint64_t, size_t), cuMemsetD8_v2(uint64_t, uint8_t, size_t);
extern int cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *), cuStreamQuery(void *);
extern int cuStreamSynchronize(void *), cuStreamWaitEvent(void *, void *, unsigned);
extern int cuEventCreate(void **, unsigned), cuEventDestroy_v2(void *);
extern int cuEventRecord(void *, void *), cuEventQuery(void *), cuEventSynchronize(void *);
extern int cuEventElapsedTime(float *, void *, void *);
extern int cuLaunchKernel(void *), cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static __thread int last_error;

static int told(int code)
{
    if (code)
        last_error = code;
    return code;
}

/* --- devices --- */

API(cudaRuntimeGetVersion, int *to) { *to = 12080; return 0; }
API(cudaDriverGetVersion, int *to) { return told(cuDriverGetVersion(to)); }

API(cudaGetDriverEntryPointByVersion, const char *name, void **to, unsigned version, uint64_t flags, int *found)
{
    return told(cuGetProcAddress_v2(name, to, (int)version, flags, found));
}

API(cudaGetDeviceCount, int *to)
{
    *to = 0;
    int wrong = cuInit(0);
    return told(wrong ? wrong : cuDeviceGetCount(to));
}

/* The device of the driver's current context; a thread that has none is on device 0. */
API(cudaGetDevice, int *to)
{
    int wrong = cuInit(0);
    if (!wrong && cuCtxGetDevice(to) != 0)
        *to = 0;
    return told(wrong);
}

API(cudaSetDevice, int ordinal)
{
    static _Atomic(void *) retained[SIM_GPUS];
    int wrong = cuInit(0), count = 0;
    if (!wrong)
        wrong = cuDeviceGetCount(&count);
    if (!wrong && (ordinal < 0 || ordinal >= count))
        wrong = 101;
    void *context = wrong ? NULL : retained[ordinal];
    if (!wrong && !context) {
        wrong = cuDevicePrimaryCtxRetain(&context, ordinal);
        if (!wrong)
            retained[ordinal] = context;
    }
    return told(wrong ? wrong : cuCtxSetCurrent(context));
}

/* The runtime makes the context of device 0 when a thread first needs one. */
static int ready(void)
{
    int ordinal;
    return cuCtxGetDevice(&ordinal) == 0 ? 0 : cudaSetDevice(0);
}

API(cudaDeviceGetAttribute, int *to, int attribute, int ordinal)
{
    return told(cuDeviceGetAttribute(to, attribute, ordinal));
}

API(cudaDeviceGetPCIBusId, char *to, int size, int ordinal) { return told(cuDeviceGetPCIBusId(to, size, ordinal)); }
API(cudaDeviceSynchronize, void) { int wrong = ready(); return told(wrong ? wrong : cuCtxSynchronize()); }
API(cudaDeviceSetSharedMemConfig, int config) { return 0; }
API(cudaDeviceGetStreamPriorityRange, int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }

/* A field's offset in CUDA 12's struct, of 1032 bytes, and in CUDA 13's; Eigen divides by some of the fields. */
#if SOVERSION < 13
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#define AT(twelve, thirteen) twelve
#else
#define AT(twelve, thirteen) thirteen
#endif

API(cudaGetDeviceProperties, char *to, int ordinal)
{
    static const struct { short offset, attribute; } fields[] = {
        {304, 12}, {308, 10}, {320, 1}, {324, 2}, {328, 3}, {332, 4}, {336, 5}, {340, 6}, {344, 7}, {348, 13},
        {360, 75}, {364, 76}, {AT(388, 384), 16}, {AT(616, 596), 38}, {AT(624, 604), 39},
    };
    static const struct { short offset, attribute; } sizes[] = {{296, 8}, {AT(640, 624), 81}};
    memset(to, 0, AT(1032, 1008));
    int wrong = cuDeviceGetName(to, 256, ordinal);
    if (wrong)
        return told(wrong);
    cuDeviceGetUuid_v2((unsigned char *)to + 256, ordinal);
    cuDeviceTotalMem_v2((size_t *)(to + 288), ordinal);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        cuDeviceGetAttribute((int *)(to + fields[i].offset), fields[i].attribute, ordinal);
    char pci[32] = ""; /* PyTorch asks NVML for the GPU with it */
    cuDeviceGetPCIBusId(pci, sizeof pci, ordinal);
    unsigned *place = (unsigned *)(to + AT(584, 568));
    sscanf(pci, "%x:%x:%x", place + 2, place, place + 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int value = 0;
        cuDeviceGetAttribute(&value, sizes[i].attribute, ordinal);
        *(size_t *)(to + sizes[i].offset) = (size_t)value;
    }
    return 0;
}

/* --- errors --- */

static const char *text_of(int code, int (*find)(int, const char **))
{
    const char *text = NULL;
    return find(code, &text) == 0 && text ? text : "unrecognized error code";
}

EXPORT const char *cudaGetErrorName(int code) { return text_of(code, cuGetErrorName); }
EXPORT const char *cudaGetErrorString(int code) { return text_of(code, cuGetErrorString); }
API(cudaPeekAtLastError, void) { return last_error; }
API(cudaGetLastError, void) { int code = last_error; last_error = 0; return code; }

/* --- memory --- */

API(cudaMalloc, uint64_t *to, size_t size)
{
    int wrong = ready();
    return told(wrong ? wrong : cuMemAlloc_v2(to, size));
}

API(cudaFree, uint64_t at) { int wrong = ready(); return told(wrong ? wrong : cuMemFree_v2(at)); }

API(cudaMallocHost, void **to, size_t size)
{
    int wrong = ready();
    return told(wrong ? wrong : cuMemHostAlloc(to, size, 0));
}

API(cudaHostAlloc, void **to, size_t size, unsigned f)
{
    int wrong = ready();
    return told(wrong ? wrong : cuMemHostAlloc(to, size, f));
}

API(cudaFreeHost, void *at) { return told(cuMemFreeHost(at)); }
API(cudaHostGetFlags, unsigned *to, void *at) { *to = 0; return 0; }

API(cudaMemGetInfo, size_t *free_bytes, size_t *total)
{
    int wrong = ready();
    return told(wrong ? wrong : cuMemGetInfo_v2(free_bytes, total));
}

API(cudaMemcpy, void *to, const void *from, size_t size, int kind)
{
    return told(cuMemcpy((uint64_t)to, (uint64_t)from, size));
}

API(cudaMemcpyAsync, void *to, const void *from, size_t size, int kind, void *s)
{
    return cudaMemcpy(to, from, size, kind);
}

API(cudaMemset, uint64_t at, int value, size_t size)
{
    int wrong = ready();
    return told(wrong ? wrong : cuMemsetD8_v2(at, (uint8_t)value, size));
}

API(cudaMemsetAsync, uint64_t at, int value, size_t size, void *s) { return cudaMemset(at, value, size); }

API(cudaMemset2DAsync, uint64_t at, size_t pitch, int value, size_t width, size_t height, void *stream)
{
    int wrong = 0;
    for (size_t row = 0; row < height && !wrong; row++)
        wrong = cudaMemsetAsync(at + row * pitch, value, width, stream);
    return wrong;
}

/* No kernel ever reads a symbol. */
API(cudaMemcpyToSymbol, const void *symbol, const void *from, size_t n, size_t o, int k) { return 0; }

/* --- streams and events --- */

API(cudaStreamCreate, void **to) { int wrong = ready(); return told(wrong ? wrong : cuStreamCreate(to, 0)); }

API(cudaStreamCreateWithFlags, void **to, unsigned flags)
{
    int wrong = ready();
    return told(wrong ? wrong : cuStreamCreate(to, flags));
}

API(cudaStreamDestroy, void *s) { return told(cuStreamDestroy_v2(s)); }
API(cudaStreamQuery, void *s) { return told(cuStreamQuery(s)); }
API(cudaStreamSynchronize, void *s) { return told(cuStreamSynchronize(s)); }
API(cudaStreamWaitEvent, void *s, void *e, unsigned flags) { return told(cuStreamWaitEvent(s, e, flags)); }
API(cudaStreamIsCapturing, void *s, int *to) { *to = 0; return 0; }

API(cudaEventCreateWithFlags, void **to, unsigned flags)
{
    int wrong = ready();
    return told(wrong ? wrong : cuEventCreate(to, flags));
}

API(cudaEventCreate, void **to) { return cudaEventCreateWithFlags(to, 0); }
API(cudaEventDestroy, void *e) { return told(cuEventDestroy_v2(e)); }
API(cudaEventRecord, void *e, void *s) { return told(cuEventRecord(e, s)); }
API(cudaEventQuery, void *e) { return told(cuEventQuery(e)); }
API(cudaEventSynchronize, void *e) { return told(cuEventSynchronize(e)); }
API(cudaEventElapsedTime, float *ms, void *first, void *last) { return told(cuEventElapsedTime(ms, first, last)); }

/* --- kernels: registered, launched, and doing nothing --- */

static int launch_nothing(void)
{
    int wrong = ready();
    return told(wrong ? wrong : cuLaunchKernel(NULL));
}

API(cudaLaunchKernel, const void *f, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream)
{
    return launch_nothing();
}

API(cudaLaunchKernelExC, const void *config, const void *f, void **arguments) { return launch_nothing(); }
API(cudaFuncSetAttribute, const void *f, int attribute, int value) { return 0; }
API(cudaFuncSetCacheConfig, const void *f, int config) { return 0; }

/* XLA launches kernels of its own library through the driver, and needs the driver's handle: any will do. */
API(cudaGetFuncBySymbol, void **to, const void *symbol) { *to = (void *)symbol; return 0; }

struct function_attributes {
    size_t shared, constant, local;
    int max_threads, registers, ptx_version, binary_version;
};

API(cudaFuncGetAttributes, struct function_attributes *to, const void *f)
{
    *to = (struct function_attributes){.max_threads = 1024, .registers = 32, .ptx_version = 80, .binary_version = 80};
    return 0;
}

API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *to, const void *f, int threads, size_t shared,
    unsigned flags)
{
    *to = threads <= 0 || threads > 1024 ? 1 : 2048 / threads > 32 ? 32 : 2048 / threads;
    return 0;
}

API(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *to, const void *f, int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to, f, threads, shared, 0);
}

/* The functions that nvcc's code for the host calls around main and each launch. */
static void *module;
EXPORT void **__cudaRegisterFatBinary(void *image) { return &module; }
EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { }
EXPORT void __cudaUnregisterFatBinary(void **handle) { }
EXPORT void __cudaRegisterFunction(void **handle) { }
EXPORT void __cudaRegisterVar(void **handle) { }
EXPORT void __cudaRegisterManagedVar(void **handle) { }
EXPORT char __cudaInitModule(void **handle) { return 0; }

static __thread struct { dim3 grid, block; size_t shared; void *stream; } launch;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    launch.grid = grid;
    launch.block = block;
    launch.shared = shared;
    launch.stream = stream;
    return 0;
}

API(__cudaPopCallConfiguration, dim3 *grid, dim3 *block, size_t *shared, void **stream)
{
    *grid = launch.grid;
    *block = launch.block;
    *shared = launch.shared;
    *stream = launch.stream;
    return 0;
}
