/* nvml_figures.c: NVML's figures: memory, processes, utilisation, and those that a simulated GPU does not have. */
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- memory --- */

struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

API(nvmlDeviceGetMemoryInfo, nvmlDevice d, struct memory_v1 *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    sim_prune(nvml_machine, false);
    sim_lock(nvml_machine);
    uint64_t free_bytes = sim_capacity(d) - sim_used(nvml_machine, nvml_index(d));
    sim_unlock(nvml_machine);
    *to = (struct memory_v1){d->total, free_bytes, d->total - free_bytes};
    return NVML_OK;
}

/* Only this version tells those in a limited cgroup of their limit. */
API(nvmlDeviceGetMemoryInfo_v2, nvmlDevice d, struct memory_v2 *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    const unsigned version = 2u << 24 | sizeof *to;
    if (to->version != version)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    sim_prune(nvml_machine, false);
    struct sim_memory seen = sim_memory_seen(nvml_machine, nvml_index(d));
    *to = (struct memory_v2){version, seen.total, seen.reserved, seen.free, seen.used};
    return NVML_OK;
}

API(nvmlDeviceGetBAR1MemoryInfo, nvmlDevice d, struct memory_v1 *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    *to = (struct memory_v1){256u << 20, 255u << 20, 1u << 20};
    return NVML_OK;
}

/* --- limits by cgroup --- */

struct limits { const char *folder; unsigned long long soft, hard, used; }; /* without the last one when they are set */

/* Finds a cgroup by its folder, with the lock held. Returns 0 or an error code. */
static int find_cgroup(nvmlDevice d, const char *name, int *cgroup)
{
    char *folder = realpath(name, NULL);
    *cgroup = folder ? sim_cgroup_at(nvml_machine, folder) : -1;
    free(folder);
    if (*cgroup < 0)
        return NVML_NOT_FOUND;
    bool virgin = !nvml_machine->cgroup[*cgroup].used_before && !nvml_machine->dmem;
    nvml_machine->cgroup[*cgroup].used_before = true;
    return virgin ? NVML_NOT_SUPPORTED : NVML_OK;
}

/* Tells whether the driver has them. */
static bool has_limits(void)
{
    return atoi(nvml_machine->driver) >= 615;
}

API(nvmlDeviceSetMemoryLimits_v1, nvmlDevice d, const struct limits *from)
{
    BEGIN_DEVICE(d);
    int cgroup, device = nvml_index(d);
    if (!has_limits())
        return NVML_FUNCTION_NOT_FOUND;
    NEED(from && from->folder && from->soft <= from->hard && d->parent < 0);
    if (geteuid() != 0)
        return NVML_NO_PERMISSION;
    sim_lock(nvml_machine);
    int outcome = find_cgroup(d, from->folder, &cgroup);
    if (outcome == NVML_OK) {
        nvml_machine->cgroup[cgroup].soft[device] = from->soft;
        nvml_machine->cgroup[cgroup].hard[device] = from->hard;
        atomic_store(&nvml_machine->limits, true);
    }
    sim_unlock(nvml_machine);
    return outcome;
}

API(nvmlDeviceGetMemoryLimits_v1, nvmlDevice d, struct limits *to)
{
    BEGIN_DEVICE(d);
    int cgroup, device = nvml_index(d);
    if (!has_limits())
        return NVML_FUNCTION_NOT_FOUND;
    NEED(to && to->folder && d->parent < 0);
    sim_prune(nvml_machine, false);
    sim_lock(nvml_machine);
    int outcome = find_cgroup(d, to->folder, &cgroup);
    if (outcome == NVML_OK) {
        to->soft = nvml_machine->cgroup[cgroup].soft[device];
        to->hard = nvml_machine->cgroup[cgroup].hard[device];
        to->used = sim_used_in(nvml_machine, cgroup, device);
    }
    sim_unlock(nvml_machine);
    return outcome;
}

/* --- processes --- */

struct process_v1 { unsigned pid; unsigned long long used; };
struct process_v2 { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

static int list(nvmlDevice d, char kind, unsigned *count, void *to, bool first_version)
{
    NEED(count && (to || !*count));
    int device = nvml_index(d);
    unsigned room = to ? *count : 0, found = 0;
    bool hide = atomic_load(&nvml_machine->flags) & SIM_HIDE_MEMORY;
    sim_prune(nvml_machine, false);
    sim_lock(nvml_machine);
    for (const struct sim_row *row = NULL; (row = sim_next_row(nvml_machine, device, row));) {
        const struct sim_device *where = &nvml_machine->device[row->device];
        if (row->kind != kind)
            continue;
        if (found < room) {
            unsigned pid = (unsigned)sim_shown_pid(nvml_machine, row->pid);
            unsigned long long used = hide ? ~0ull : row->held;
            unsigned instance = where->parent < 0 ? ~0u : (unsigned)where->instance;
            unsigned compute_instance = where->parent < 0 ? ~0u : 0;
            if (first_version)
                ((struct process_v1 *)to)[found] = (struct process_v1){pid, used};
            else
                ((struct process_v2 *)to)[found] = (struct process_v2){pid, used, instance, compute_instance};
        }
        found++;
    }
    sim_unlock(nvml_machine);
    *count = found;
    return found > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

#define LIST(name, kind, first_version)                 \
    API(name, nvmlDevice d, unsigned *count, void *to)  \
    {                                                   \
        BEGIN_DEVICE(d);                                \
        return list(d, kind, count, to, first_version); \
    }
#define LISTS(name, kind)           \
    LIST(name, kind, true)          \
    LIST(name##_v2, kind, false)    \
    LIST(name##_v3, kind, false)

LISTS(nvmlDeviceGetComputeRunningProcesses, SIM_COMPUTE)
LISTS(nvmlDeviceGetGraphicsRunningProcesses, SIM_GRAPHICS)
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, SIM_MPS)

/* --- utilisation: by the kernels that are launched, or as the machine is told --- */

static bool has_utilisation(nvmlDevice d)
{
    return !d->instances && d->parent < 0; /* MIG has none */
}

struct utilization { unsigned gpu, memory; };

API(nvmlDeviceGetUtilizationRates, nvmlDevice d, struct utilization *to)
{
    BEGIN_DEVICE(d);
    NEED(to);
    int told = atomic_load(&d->utilisation), device = nvml_index(d);
    unsigned most = told == SIM_UNSET ? 0 : (unsigned)told;
    uint64_t now = sim_now_us();
    sim_lock(nvml_machine);
    for (const struct sim_row *row = NULL; told == SIM_UNSET && (row = sim_next_row(nvml_machine, device, row));) {
        unsigned percent = sim_utilisation(row, now);
        most = percent > most ? percent : most;
    }
    sim_unlock(nvml_machine);
    *to = (struct utilization){most, 0};
    return has_utilisation(d) ? NVML_OK : NVML_NOT_SUPPORTED;
}

struct process_utilization {
    unsigned pid;
    unsigned long long time_us;
    unsigned multiprocessors, memory, encoder, decoder;
};

static const uint64_t SAMPLES_KEPT_US = 60u * 1000 * 1000;

/* One sample for each process that has run kernels since a time, in the last minute. */
API(nvmlDeviceGetProcessUtilization, nvmlDevice d, struct process_utilization *to, unsigned *count,
    unsigned long long since)
{
    BEGIN_DEVICE(d);
    NEED(count);
    unsigned room = to ? *count : 0, found = 0;
    int device = nvml_index(d);
    uint64_t now = sim_now_us();
    if (!has_utilisation(d))
        return NVML_NOT_SUPPORTED;
    sim_prune(nvml_machine, false);
    sim_lock(nvml_machine);
    for (const struct sim_row *row = NULL; (row = sim_next_row(nvml_machine, device, row));) {
        bool told = row->utilisation != SIM_UNSET;
        uint64_t at = told ? now : row->launched_us;
        unsigned percent = sim_utilisation(row, told ? now : at); /* as it was at that time */
        if (row->echo || !percent || at <= since || now - at > SAMPLES_KEPT_US)
            continue;
        if (found < room)
            to[found] = (struct process_utilization){(unsigned)sim_shown_pid(nvml_machine, row->pid), at, percent,
                                                     0, 0, 0};
        found++;
    }
    sim_unlock(nvml_machine);
    *count = found;
    return !found ? NVML_NOT_FOUND : found > room ? NVML_INSUFFICIENT_SIZE : NVML_OK;
}

/* --- sensors and clocks --- */

static int give(unsigned *to, unsigned value)
{
    NEED(to);
    *to = value;
    return NVML_OK;
}

static int give_two(unsigned *to, unsigned value, unsigned *also, unsigned value_also)
{
    NEED(to && also);
    *to = value;
    *also = value_also;
    return NVML_OK;
}

static int give_sensor(unsigned *to, int value)
{
    NEED(to);
    *to = (unsigned)value;
    return value == SIM_UNSET ? NVML_NOT_SUPPORTED : NVML_OK;
}

API(nvmlDeviceGetTemperature, nvmlDevice d, int sensor, unsigned *to)
{
    BEGIN_DEVICE(d);
    return give_sensor(to, atomic_load(&d->celsius));
}

API(nvmlDeviceGetPowerUsage, nvmlDevice d, unsigned *to)
{
    BEGIN_DEVICE(d);
    return give_sensor(to, atomic_load(&d->milliwatts));
}

API(nvmlDeviceGetEncoderUtilization, nvmlDevice d, unsigned *to, unsigned *period)
{
    BEGIN_DEVICE(d);
    return give_two(to, 0, period, 100000);
}

API(nvmlDeviceGetDecoderUtilization, nvmlDevice d, unsigned *to, unsigned *period)
{
    BEGIN_DEVICE(d);
    return give_two(to, 0, period, 100000);
}

API(nvmlDeviceGetPersistenceMode, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 1); }
API(nvmlDeviceGetComputeMode, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, (unsigned)d->mode); }
API(nvmlDeviceGetPerformanceState, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 0); }
API(nvmlDeviceGetDisplayMode, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 0); }
API(nvmlDeviceGetDisplayActive, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 0); }

API(nvmlDeviceGetClockInfo, nvmlDevice d, unsigned kind, unsigned *to)
{
    BEGIN_DEVICE(d);
    return give(to, (unsigned)d->clock_khz / 1000);
}

API(nvmlDeviceGetMaxClockInfo, nvmlDevice d, unsigned kind, unsigned *to)
{
    BEGIN_DEVICE(d);
    return give(to, (unsigned)d->clock_khz / 1000);
}

/* PCIe 4.0 with 16 lanes: TensorFlow complains without. */
API(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 4); }
API(nvmlDeviceGetCurrPcieLinkWidth, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 16); }
API(nvmlDeviceGetMaxPcieLinkGeneration, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 4); }
API(nvmlDeviceGetMaxPcieLinkWidth, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 16); }
API(nvmlDeviceGetPcieSpeed, nvmlDevice d, unsigned *to) { BEGIN_DEVICE(d); return give(to, 16000); }

/* No fan, no ECC, no link: the tools show N/A. nvmlDeviceGetConfComputeMemSizeInfo and
 * nvmlDeviceGetRunningProcessDetailList are left out both: with one of them nvitop reads another struct. */
#define UNSUPPORTED(name) \
    API(name, nvmlDevice d) { BEGIN_DEVICE(d); return NVML_NOT_SUPPORTED; }
UNSUPPORTED(nvmlDeviceGetTemperatureV)
UNSUPPORTED(nvmlDeviceGetTemperatureThreshold)
UNSUPPORTED(nvmlDeviceGetFanSpeed)
UNSUPPORTED(nvmlDeviceGetFanSpeed_v2)
UNSUPPORTED(nvmlDeviceGetNumFans)
UNSUPPORTED(nvmlDeviceGetPowerManagementLimit)
UNSUPPORTED(nvmlDeviceGetEnforcedPowerLimit)
UNSUPPORTED(nvmlDeviceGetTotalEnergyConsumption)
UNSUPPORTED(nvmlDeviceGetTotalEccErrors)
UNSUPPORTED(nvmlDeviceGetMemoryErrorCounter)
UNSUPPORTED(nvmlDeviceGetEccMode)
UNSUPPORTED(nvmlDeviceGetSerial)
UNSUPPORTED(nvmlDeviceGetDriverModel)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
UNSUPPORTED(nvmlDeviceGetPcieThroughput)
UNSUPPORTED(nvmlDeviceGetFieldValues)
UNSUPPORTED(nvmlDeviceGetProcessesUtilizationInfo)
UNSUPPORTED(nvmlDeviceGetCurrentClocksThrottleReasons)
UNSUPPORTED(nvmlDeviceGetCurrentClocksEventReasons)
UNSUPPORTED(nvmlDeviceGetNvLinkState)
UNSUPPORTED(nvmlDeviceGetNvLinkVersion)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfo)
UNSUPPORTED(nvmlDeviceGetGpuFabricInfoV)
UNSUPPORTED(nvmlDeviceGetPlatformInfo)
UNSUPPORTED(nvmlDeviceGetP2PStatus)
UNSUPPORTED(nvmlDeviceGetTopologyCommonAncestor)
