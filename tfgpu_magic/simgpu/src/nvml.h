/* nvml.h: the part of NVML's interface that the stand-in implements, and the checks of every call. */
#ifndef TFGPU_NVML_H
#define TFGPU_NVML_H

#include "machine.h"
#include "standin.h"

enum {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_GPU_IS_LOST = 15,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_UNKNOWN = 999,
};

typedef struct sim_device *nvmlDevice;

extern struct sim_machine *nvml_machine;

/* Counts a call, and returns 0 or its error code. `device` is NULL for calls on the system. */
int nvml_begin(const char *function, atomic_int *slot, bool about_device, nvmlDevice device);
/* The same for a device that a call is about to return: its faults, and whether it is lost. */
int nvml_reach(const char *function, int index);
/* Returns a text, if the buffer has room for it. */
int nvml_text(char *to, unsigned size, const char *text);

static inline int nvml_index(nvmlDevice device)
{
    return (int)(device - nvml_machine->device);
}

#define BEGIN(about_device, device)                                     \
    static atomic_int slot_;                                            \
    int begun_ = nvml_begin(__func__, &slot_, about_device, device);    \
    if (begun_)                                                         \
        return begun_
#define BEGIN_SYSTEM() BEGIN(false, NULL)
#define BEGIN_DEVICE(device) BEGIN(true, device)
#define NEED(condition)                                                 \
    if (!(condition))                                                   \
        return NVML_INVALID_ARGUMENT

#endif
