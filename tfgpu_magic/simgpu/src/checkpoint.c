/* checkpoint.c: what a checkpoint does to the machine's account: a process's rows go and come back; and what it minds
 * that a process did: NCCL, an NVML that was unloaded. */
#include "machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

atomic_uint sim_marks;

int sim_driver(const struct sim_machine *machine)
{
    return atoi(machine->driver);
}

/* --- rows --- */

uint64_t sim_held(struct sim_machine *machine, int device)
{
    sim_lock(machine);
    const struct sim_row *row = sim_own_row(machine, device);
    uint64_t held = row ? row->held : 0;
    sim_unlock(machine);
    return held;
}

uint64_t sim_let_go(struct sim_machine *machine, int device)
{
    sim_lock(machine);
    struct sim_row *row = sim_own_row(machine, device);
    uint64_t held = row ? row->held : 0;
    if (row) {
        row->restored = false;
        sim_remove_row(machine, row);
    }
    sim_unlock(machine);
    return held;
}

bool sim_take_back(struct sim_machine *machine, int device, uint64_t bytes)
{
    bool fits = !bytes || sim_charge(machine, device, bytes);
    sim_lock(machine);
    struct sim_row *row = sim_own_row(machine, device);
    if (row)
        row->restored = true;
    uint64_t room = sim_room(machine, row ? row->cgroup : sim_own_cgroup(machine), device);
    sim_unlock(machine);
    if (!fits && room)
        sim_charge(machine, device, room);
    return fits;
}

void sim_unlist_self(struct sim_machine *machine)
{
    sim_lock(machine);
    for (int i = 0; i < machine->devices; i++) {
        struct sim_row *row = sim_own_row(machine, i);
        if (row)
            row->kind = SIM_UNLISTED;
    }
    sim_unlock(machine);
}

/* --- managed memory --- */

void *sim_map_uvm(size_t size)
{
    char name[4096];
    const char *path = getenv(SIM_ENVIRONMENT);
    snprintf(name, sizeof name, "%s" SIM_UVM, path ? path : "");
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return MAP_FAILED;
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    close(fd);
    return map;
}
