/* fft.c: the stand-in for libcufft.so.11: plans that need no room and transform nothing. */
#include "launch.h"

#include <stddef.h>

API(cufftCreate, int *plan)
{
    static _Atomic int last;
    *plan = ++last;
    return 0;
}

static int give_size(size_t *to)
{
    if (to)
        *to = 0;
    return 0;
}

API(cufftMakePlan1d, int plan, int x, int type, int batch, size_t *to) { return give_size(to); }
API(cufftMakePlan2d, int plan, int x, int y, int type, size_t *to) { return give_size(to); }
API(cufftMakePlan3d, int plan, int x, int y, int z, int type, size_t *to) { return give_size(to); }
API(cufftGetSize, int plan, size_t *to) { return give_size(to); }

API(cufftMakePlanMany, int plan, int rank, void *n, void *in, int stride, int distance, void *out, int out_stride,
    int out_distance, int type, int batch, size_t *to)
{
    return give_size(to);
}

API(cufftMakePlanMany64, int plan, int rank, void *n, void *in, long long stride, long long distance, void *out,
    long long out_stride, long long out_distance, int type, long long batch, size_t *to)
{
    return give_size(to);
}

API(cufftGetVersion, int *to) { *to = 11300; return 0; }

#define DOES_NOTHING(name) API(name, void) { return 0; }
DOES_NOTHING(cufftDestroy)
DOES_NOTHING(cufftSetStream)
DOES_NOTHING(cufftSetAutoAllocation)
DOES_NOTHING(cufftSetWorkArea)
LAUNCHES(cufftExecC2C)
LAUNCHES(cufftExecC2R)
LAUNCHES(cufftExecR2C)
LAUNCHES(cufftExecZ2Z)
LAUNCHES(cufftExecZ2D)
LAUNCHES(cufftExecD2Z)
