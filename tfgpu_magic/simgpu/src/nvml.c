/* nvml.c: the stand-in for libnvidia-ml.so.1: initialisation, the system, and finding devices. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct sim_machine *nvml_machine;
static atomic_int users;

static bool present(void)
{
    return nvml_machine && !(atomic_load(&nvml_machine->flags) & SIM_NO_DRIVER);
}

/* Checked by nvmlInit too, which must precede all other calls. */
static int start(const char *function, atomic_int *slot)
{
    nvml_machine = sim_here();
    if (!nvml_machine)
        return NVML_DRIVER_NOT_LOADED;
    sim_count(nvml_machine, function, slot);
    int fault = sim_fault_of(nvml_machine, function, -1);
    if (fault)
        return fault;
    if (!present())
        return NVML_DRIVER_NOT_LOADED;
    sim_prune(nvml_machine, true); /* what has ended before a driver is opened is nowhere in what it says */
    atomic_fetch_add(&users, 1);
    return NVML_OK;
}

int nvml_reach(const char *function, int index)
{
    int fault = sim_fault_of(nvml_machine, function, index);
    return fault ? fault : sim_lost(nvml_machine, index) ? NVML_GPU_IS_LOST : NVML_OK;
}

int nvml_begin(const char *function, atomic_int *slot, bool about_device, nvmlDevice device)
{
    if (!nvml_machine || atomic_load(&users) <= 0)
        return NVML_UNINITIALIZED;
    sim_count(nvml_machine, function, slot);
    if (!about_device)
        return present() ? sim_fault_of(nvml_machine, function, -1) : NVML_DRIVER_NOT_LOADED;
    if (!present())
        return NVML_DRIVER_NOT_LOADED;
    if (device < nvml_machine->device || device >= nvml_machine->device + nvml_machine->devices)
        return NVML_INVALID_ARGUMENT;
    return nvml_reach(function, nvml_index(device));
}

#define START                  \
    {                          \
        static atomic_int slot; \
        return start(__func__, &slot); \
    }
API(nvmlInit, void) START
API(nvmlInit_v2, void) START
API(nvmlInitWithFlags, unsigned flags) { START }

API(nvmlShutdown, void)
{
    if (atomic_load(&users) <= 0)
        return NVML_UNINITIALIZED;
    static atomic_int slot;
    sim_count(nvml_machine, __func__, &slot);
    atomic_fetch_sub(&users, 1);
    return NVML_OK;
}

EXPORT const char *nvmlErrorString(int code)
{
    static const struct { int code; const char *text; } texts[] = {
        {NVML_OK, "Success"}, {NVML_UNINITIALIZED, "Uninitialized"}, {NVML_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_NOT_SUPPORTED, "Not Supported"}, {NVML_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_NOT_FOUND, "Not Found"}, {NVML_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_DRIVER_NOT_LOADED, "Driver Not Loaded"}, {NVML_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_GPU_IS_LOST, "GPU is lost"},
        {16, "GPU requires reset"}, {18, "Driver/library version mismatch"}, {NVML_UNKNOWN, "Unknown Error"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return texts[i].text;
    return "Simulated error";
}

int nvml_text(char *to, unsigned size, const char *text)
{
    NEED(to);
    if (strlen(text) >= size)
        return NVML_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_OK;
}

/* --- the system --- */

API(nvmlSystemGetDriverVersion, char *to, unsigned size)
{
    BEGIN_SYSTEM();
    return nvml_text(to, size, nvml_machine->driver);
}

API(nvmlSystemGetNVMLVersion, char *to, unsigned size)
{
    BEGIN_SYSTEM();
    char text[sizeof nvml_machine->driver + 3];
    snprintf(text, sizeof text, "12.%s", nvml_machine->driver);
    return nvml_text(to, size, text);
}

API(nvmlSystemGetCudaDriverVersion, int *to) { BEGIN_SYSTEM(); NEED(to); *to = 12080; return NVML_OK; }
API(nvmlSystemGetCudaDriverVersion_v2, int *to) { BEGIN_SYSTEM(); NEED(to); *to = 12080; return NVML_OK; }
API(nvmlDeviceGetCount, unsigned *to) { BEGIN_SYSTEM(); NEED(to); *to = (unsigned)nvml_machine->gpus; return NVML_OK; }

API(nvmlDeviceGetCount_v2, unsigned *to)
{
    BEGIN_SYSTEM();
    NEED(to);
    *to = (unsigned)nvml_machine->gpus;
    return NVML_OK;
}

API(nvmlSystemGetProcessName, unsigned pid, char *to, unsigned size)
{
    BEGIN_SYSTEM();
    NEED(to && size);
    char path[40];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_NOT_FOUND;
    size_t length = fread(to, 1, size - 1, file); /* ends at the first NUL: the program's name */
    to[length] = 0;
    fclose(file);
    return NVML_OK;
}

/* --- handles --- */

static int give_handle(const char *function, int index, nvmlDevice *to)
{
    int unreachable = nvml_reach(function, index);
    if (!unreachable)
        *to = &nvml_machine->device[index];
    return unreachable;
}

static int by_index(const char *function, unsigned index, nvmlDevice *to)
{
    NEED(to && index < (unsigned)nvml_machine->gpus);
    return give_handle(function, (int)index, to);
}

static int by_pci(const char *function, const char *text, nvmlDevice *to)
{
    unsigned domain, bus, slot;
    NEED(to && text && sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3);
    for (int i = 0; i < nvml_machine->gpus; i++) {
        unsigned d, b, s;
        if (sscanf(nvml_machine->device[i].pci, "%x:%x:%x", &d, &b, &s) == 3 && d == domain && b == bus && s == slot)
            return give_handle(function, i, to);
    }
    return NVML_NOT_FOUND;
}

API(nvmlDeviceGetHandleByIndex, unsigned index, nvmlDevice *to)
{
    BEGIN_SYSTEM();
    return by_index(__func__, index, to);
}

API(nvmlDeviceGetHandleByIndex_v2, unsigned index, nvmlDevice *to)
{
    BEGIN_SYSTEM();
    return by_index(__func__, index, to);
}

API(nvmlDeviceGetHandleByPciBusId, const char *pci, nvmlDevice *to)
{
    BEGIN_SYSTEM();
    return by_pci(__func__, pci, to);
}

API(nvmlDeviceGetHandleByPciBusId_v2, const char *pci, nvmlDevice *to)
{
    BEGIN_SYSTEM();
    return by_pci(__func__, pci, to);
}

API(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice *to)
{
    BEGIN_SYSTEM();
    NEED(uuid && to);
    for (int i = 0; i < nvml_machine->devices; i++)
        if (strcasecmp(nvml_machine->device[i].uuid, uuid) == 0)
            return give_handle(__func__, i, to);
    return NVML_NOT_FOUND;
}

API(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice d, unsigned index, nvmlDevice *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    for (int i = nvml_machine->gpus; i < nvml_machine->devices; i++)
        if (nvml_machine->device[i].parent == nvml_index(d) && nvml_machine->device[i].instance == (int)index + 1)
            return give_handle(__func__, i, to);
    return NVML_NOT_FOUND;
}
