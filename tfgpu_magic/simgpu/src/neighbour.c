/* neighbour.c: a real process that holds GPU memory, to share a simulated machine with.
 *
  * It reads lines from its standard input and answers each with one, "ok" or what is wrong; it ends with its input, so
  * it never outlives the process that started it:
 *     start GPU BYTES UID     hold BYTES in all, context included, on NVML's GPU; then run as that user (-1: stay)
 *     resize BYTES
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern int cuInit(unsigned);
extern int cuDeviceGetByPCIBusId(int *, const char *);
extern int cuDevicePrimaryCtxRetain(void **, int);
extern int cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(uint64_t *, size_t);
extern int cuMemFree_v2(uint64_t);

static struct sim_machine *machine;
static uint64_t block, held;

/* Holds exactly `bytes`; on failure what it held before. */
static const char *hold(unsigned long long bytes)
{
    if (bytes < machine->context)
        return "less than the context that every process on a GPU has";
    uint64_t wanted = (bytes - machine->context) & ~(uint64_t)4095, old = held;
    if (block)
        cuMemFree_v2(block);
    block = held = 0;
    if (!wanted)
        return NULL;
    if (cuMemAlloc_v2(&block, wanted) == 0) {
        held = wanted;
        return NULL;
    }
    block = 0;
    if (old && cuMemAlloc_v2(&block, old) == 0)
        held = old;
    return "out of memory";
}

static const char *start(int gpu, unsigned long long bytes, long uid)
{
    void *context;
    int ordinal;
    if (!machine || gpu < 0 || gpu >= machine->devices)
        return "no such GPU";
    setenv("CUDA_VISIBLE_DEVICES", machine->device[gpu].uuid, 1); /* whatever the variables say, this one */
    if (cuInit(0) || cuDeviceGetByPCIBusId(&ordinal, machine->device[gpu].pci))
        return "the GPU does not answer";
    if (cuDevicePrimaryCtxRetain(&context, ordinal))
        return "out of memory";
    cuCtxSetCurrent(context);
    const char *wrong = hold(bytes);
    if (wrong)
        return wrong;
    if (uid >= 0 && (setgid((gid_t)uid) != 0 || setuid((uid_t)uid) != 0))
        return "cannot change the user";
    if (uid >= 0)
        prctl(PR_SET_DUMPABLE, 1); /* or /proc shows the process as root's */
    return NULL;
}

int main(int count, char **arguments)
{
    char line[128];
    const char *name = count && arguments[0] ? strrchr(arguments[0], '/') : NULL;
    prctl(PR_SET_NAME, name ? name + 1 : arguments[0]);
    machine = sim_here();
    while (fgets(line, sizeof line, stdin)) {
        int gpu;
        unsigned long long bytes;
        long uid;
        const char *wrong = "what?";
        if (sscanf(line, "start %d %llu %ld", &gpu, &bytes, &uid) == 3)
            wrong = start(gpu, bytes, uid);
        else if (sscanf(line, "resize %llu", &bytes) == 1)
            wrong = hold(bytes);
        puts(wrong ? wrong : "ok");
        fflush(stdout);
    }
    return 0;
}
