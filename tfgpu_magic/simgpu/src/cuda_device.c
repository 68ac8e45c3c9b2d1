/* cuda_device.c: the devices that a process sees: how many, their names, sizes and attributes. */
#include "cuda.h"

#include <stdio.h>
#include <string.h>

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

static void uuid(unsigned char to[16], const struct sim_device *device)
{
    int at = 0;
    for (const char *digit = device->uuid + 4; *digit && at < 16; digit++)
        if (*digit != '-') {
            unsigned byte = 0;
            sscanf(digit++, "%2x", &byte);
            to[at++] = (unsigned char)byte;
        }
}

/* The first version gives the UUID of the whole GPU, the second that of the MIG instance: without MIG both are one. */
API(cuDeviceGetUuid, unsigned char *to, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && ordinal >= 0);
    int parent = about(ordinal)->parent;
    uuid(to, parent < 0 ? about(ordinal) : &cuda_machine->device[parent]);
    return CUDA_OK;
}

API(cuDeviceGetUuid_v2, unsigned char *to, int ordinal)
{
    BEGIN(ordinal);
    NEED(to && ordinal >= 0);
    uuid(to, about(ordinal));
    return CUDA_OK;
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

/* Attributes that are the same for all GPUs, by CUdevice_attribute; all others are 0. */
static const int attributes[128] = {
    [1] = 1024, [2] = 1024, [3] = 1024, [4] = 64,               /* threads in a block, its dimensions */
    [5] = 0x7fffffff, [6] = 65535, [7] = 65535,                 /* a grid's dimensions */
    [8] = 48 << 10, [81] = 164 << 10, [97] = 163 << 10,         /* shared memory of a block, a SM, one that opts in */
    [9] = 64 << 10, [10] = 32, [12] = 65536, [82] = 65536,      /* constants, warp, registers */
    [15] = 1, [19] = 1, [31] = 1, [40] = 3, [41] = 1,           /* overlaps, mapped host memory, one address space */
    [36] = 1215000, [37] = 4096, [38] = 40 << 20, [39] = 2048,  /* memory clock and bus, L2, threads of a SM */
    [78] = 1, [106] = 32, [102] = 1, [115] = 1,                 /* stream priorities, blocks of a SM, VMM, pools */
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
    case 20: *to = device->mode; break;
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
