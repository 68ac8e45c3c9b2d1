/* cuda_visible.c: which devices a process sees and in what order: CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES, by the
 * rules of the CUDA programming guide's chapter on environment variables. */
#include "cuda.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "Fastest first" is the driver's own guess; here multiprocessors times clock, then memory. */
static bool faster(const struct sim_device *a, const struct sim_device *b)
{
    uint64_t speed_a = (uint64_t)a->multiprocessors * (uint64_t)a->clock_khz;
    uint64_t speed_b = (uint64_t)b->multiprocessors * (uint64_t)b->clock_khz;
    return speed_a != speed_b ? speed_a > speed_b : a->total > b->total;
}

/* All GPUs that work, in CUDA's order. */
static int ordered(const struct sim_machine *machine, int gpu[CUDA_DEVICES])
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    int count = 0;
    for (int i = 0; i < machine->gpus; i++) {
        if (sim_lost(machine, i))
            continue;
        int at = count++;
        for (; !by_bus && at > 0 && faster(&machine->device[i], &machine->device[gpu[at - 1]]); at--)
            gpu[at] = gpu[at - 1];
        gpu[at] = i;
    }
    return count;
}

/* The first MIG instance of a GPU; the GPU itself when MIG is off. */
static int usable(const struct sim_machine *machine, int gpu)
{
    for (int i = machine->gpus; machine->device[gpu].instances && i < machine->devices; i++)
        if (machine->device[i].parent == gpu)
            return i;
    return gpu;
}

/* Returns the device that one entry of the list names, or -1. */
static int named(const struct sim_machine *machine, const int *gpu, int count, const char *entry)
{
    size_t length = strlen(entry);
    if (length > 4 && (strncasecmp(entry, "GPU-", 4) == 0 || strncasecmp(entry, "MIG-", 4) == 0)) {
        int found = -1;
        for (int i = 0; i < machine->devices; i++) {
            if (strncasecmp(machine->device[i].uuid, entry, length) != 0 || sim_lost(machine, i))
                continue;
            if (found >= 0)
                return -1; /* a prefix of two */
            found = i;
        }
        return found < 0 ? -1 : usable(machine, found);
    }
    char *end;
    long index = strtol(entry, &end, 10);
    return end == entry || *end || index < 0 || index >= count ? -1 : usable(machine, gpu[index]);
}

int cuda_visible(const struct sim_machine *machine, int device[CUDA_DEVICES])
{
    int gpu[CUDA_DEVICES], count = ordered(machine, gpu), seen = 0;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) {
        /* A GPU in MIG mode is seen only when there is no other, and then as its first instance. */
        for (int i = 0; i < count; i++)
            if (!machine->device[gpu[i]].instances)
                device[seen++] = gpu[i];
        if (!seen && count)
            device[seen++] = usable(machine, gpu[0]);
        return seen;
    }
    char copy[4096], *rest = copy, *entry;
    strncpy(copy, list, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    while ((entry = strsep(&rest, ","))) {
        while (isspace((unsigned char)*entry))
            entry++;
        for (size_t end = strlen(entry); end && isspace((unsigned char)entry[end - 1]);)
            entry[--end] = 0;
        int found = named(machine, gpu, count, entry);
        if (found < 0)
            break; /* what comes after the first bad entry is not seen */
        for (int i = 0; i < seen; i++)
            if (device[i] == found)
                return 0; /* a device named twice makes all of them invisible */
        bool instance = machine->device[found].parent >= 0;
        if (instance && seen)
            break;
        device[seen++] = found;
        if (instance || seen == CUDA_DEVICES)
            break; /* a process can use one MIG instance */
    }
    return seen;
}
