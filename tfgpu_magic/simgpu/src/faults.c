/* faults.c: deliberate faults: error codes, hangs, lost GPUs, foreign pids; and the count of calls. */
#include "machine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A fault named without a version applies to all versions: nvmlDeviceGetMemoryInfo also means ..._v2, and nvmlInit also
 * the name by which pynvml calls it. */
static bool names(const char *fault, const char *function)
{
    size_t length = strlen(fault);
    if (strncmp(fault, function, length) != 0)
        return false;
    const char *rest = function + length;
    return !*rest || strncmp(rest, "_v", 2) == 0 || strcmp(rest, "WithFlags") == 0;
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the code that a function is made to return, and for how long it is made to hang. */
static int fault_of(struct sim_machine *machine, const char *function, int device, uint64_t *hang_ns)
{
    int code = 0, parent = device < 0 ? -1 : machine->device[device].parent;
    *hang_ns = 0;
    sim_lock(machine);
    for (unsigned i = 0; i < atomic_load(&machine->fault_count); i++) {
        const struct sim_fault *fault = &machine->faults[i];
        if (fault->device >= 0 && fault->device != device && fault->device != parent)
            continue;
        if (!names(fault->function, function))
            continue;
        if (fault->code)
            code = fault->code;
        if (fault->hang_ns)
            *hang_ns = fault->hang_ns;
    }
    sim_unlock(machine);
    return code;
}

int sim_fault_of(struct sim_machine *machine, const char *function, int device)
{
    if (!atomic_load_explicit(&machine->fault_count, memory_order_relaxed))
        return 0;
    uint64_t hang_ns;
    int code = fault_of(machine, function, device, &hang_ns);
    for (uint64_t until_ns = clock_ns() + hang_ns; hang_ns && clock_ns() < until_ns;) {
        usleep(20000);
        fault_of(machine, function, device, &hang_ns); /* it may be ended meanwhile */
    }
    return code;
}

void sim_count(struct sim_machine *machine, const char *function, atomic_int *slot)
{
    int at = atomic_load_explicit(slot, memory_order_relaxed) - 1;
    if (at < 0) {
        sim_lock(machine);
        for (at = 0; at < SIM_FUNCTIONS - 1 && machine->functions[at].name[0]; at++)
            if (strcmp(machine->functions[at].name, function) == 0)
                break;
        if (!machine->functions[at].name[0])
            snprintf(machine->functions[at].name, SIM_NAME, "%s", function);
        sim_unlock(machine);
        atomic_store(slot, at + 1);
    }
    atomic_fetch_add(&machine->functions[at].calls, 1);
}

bool sim_lost(const struct sim_machine *machine, int device)
{
    const struct sim_device *about = &machine->device[device];
    return about->lost || (about->parent >= 0 && machine->device[about->parent].lost);
}

static pid_t pid_max(void)
{
    static atomic_int answer;
    if (!answer) {
        int read = 32768;
        FILE *file = fopen("/proc/sys/kernel/pid_max", "re");
        if (file) {
            if (fscanf(file, "%d", &read) != 1)
                read = 32768;
            fclose(file);
        }
        answer = read;
    }
    return answer;
}

enum { HOST_PIDS_FROM = 1 << 21 }; /* half of PID_MAX_LIMIT */

pid_t sim_shown_pid(const struct sim_machine *machine, pid_t pid)
{
    if (!(atomic_load(&machine->flags) & SIM_HOST_PIDS))
        return pid;
    /* Pids above this namespace's largest do not exist, where there is room below Linux's own bound. */
    if (pid_max() <= HOST_PIDS_FROM)
        return pid_max() + pid;
    /* The mirror image in the range of pids differs for each pid; step down past those that exist here. */
    pid_t shown = pid_max() - pid;
    while (shown > 1 && (shown == pid || kill(shown, 0) == 0 || errno != ESRCH))
        shown--;
    return shown > 1 ? shown : pid_max() - 1;
}
