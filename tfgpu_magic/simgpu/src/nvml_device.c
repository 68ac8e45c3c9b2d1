/* nvml_device.c: the properties of a device, and the part of a GPU that a MIG instance is. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

API(nvmlDeviceGetName, nvmlDevice d, char *to, unsigned size) { BEGIN_DEVICE(d); return nvml_text(to, size, d->name); }
API(nvmlDeviceGetUUID, nvmlDevice d, char *to, unsigned size) { BEGIN_DEVICE(d); return nvml_text(to, size, d->uuid); }

API(nvmlDeviceGetIndex, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    if (d->parent >= 0)
        *to = (unsigned)(d->instance - 1);
    else
        *to = (unsigned)nvml_index(d);
    return NVML_OK;
}

API(nvmlDeviceGetMinorNumber, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    *to = (unsigned)(d->parent >= 0 ? d->parent : nvml_index(d));
    return NVML_OK;
}

struct pci_info {
    char short_id[16];
    unsigned domain, bus, slot, device_id, subsystem_id;
    char id[32];
};

/* The first version ended with the subsystem and 16 reserved bytes: only the later ones have the long id. */
static int give_pci(nvmlDevice d, struct pci_info *to, bool with_id)
{
    NEED(to);
    memset(to, 0, with_id ? sizeof *to : offsetof(struct pci_info, id));
    memcpy(to->short_id, d->pci, strnlen(d->pci, sizeof to->short_id - 1));
    sscanf(d->pci, "%x:%x:%x", &to->domain, &to->bus, &to->slot);
    to->device_id = 0xffff10de; /* NVIDIA's vendor number under a product that does not exist */
    if (with_id)
        snprintf(to->id, sizeof to->id, "0000%s", d->pci);
    return NVML_OK;
}

API(nvmlDeviceGetPciInfo, nvmlDevice d, struct pci_info *to) { BEGIN_DEVICE(d); return give_pci(d, to, false); }
API(nvmlDeviceGetPciInfo_v2, nvmlDevice d, struct pci_info *to) { BEGIN_DEVICE(d); return give_pci(d, to, false); }
API(nvmlDeviceGetPciInfo_v3, nvmlDevice d, struct pci_info *to) { BEGIN_DEVICE(d); return give_pci(d, to, true); }

API(nvmlDeviceGetCudaComputeCapability, nvmlDevice d, int *major, int *minor)
{
    BEGIN_DEVICE(d);
    NEED(major && minor);
    *major = d->major;
    *minor = d->minor;
    return NVML_OK;
}

API(nvmlDeviceGetNumGpuCores, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    /* FP32 lanes of a multiprocessor, from the CUDA programming guide's table of compute capabilities. */
    bool narrow = d->major == 7 || (d->major == 8 && d->minor == 0) || (d->major == 6 && d->minor == 0);
    *to = (unsigned)d->multiprocessors * (narrow ? 64 : 128);
    return NVML_OK;
}

/* --- MIG --- */

API(nvmlDeviceGetMigMode, nvmlDevice d, unsigned *current, unsigned *pending)
{
    BEGIN_DEVICE(d);
    NEED(current && pending);
    *current = *pending = d->instances > 0;
    return NVML_OK;
}

API(nvmlDeviceIsMigDeviceHandle, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    *to = d->parent >= 0;
    return NVML_OK;
}

API(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    *to = SIM_INSTANCES;
    return NVML_OK;
}

API(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice d, nvmlDevice *to)
{
    BEGIN_DEVICE(d);
    NEED(to && d->parent >= 0);
    *to = &nvml_machine->device[d->parent];
    return NVML_OK;
}

API(nvmlDeviceGetGpuInstanceId, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to && d->parent >= 0);
    *to = (unsigned)d->instance;
    return NVML_OK;
}

API(nvmlDeviceGetComputeInstanceId, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    NEED(to && d->parent >= 0);
    *to = 0;
    return NVML_OK;
}

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices;
    unsigned long long memory_mib;
};

static int give_attributes(nvmlDevice d, struct attributes *to)
{
    NEED(to);
    if (d->parent < 0)
        return NVML_NOT_SUPPORTED; /* as a real one answers for a whole GPU */
    *to = (struct attributes){.multiprocessors = (unsigned)d->multiprocessors, .copy_engines = 1, .gpu_slices = 1,
                              .compute_slices = 1, .memory_mib = d->total >> 20};
    return NVML_OK;
}

API(nvmlDeviceGetAttributes, nvmlDevice d, struct attributes *to) { BEGIN_DEVICE(d); return give_attributes(d, to); }
API(nvmlDeviceGetAttributes_v2, nvmlDevice d, struct attributes *to) { BEGIN_DEVICE(d); return give_attributes(d, to); }
