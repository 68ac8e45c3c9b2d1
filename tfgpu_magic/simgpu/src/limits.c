/* limits.c: what a process can still get of a device: what is free, within the limits by cgroup of driver 615. The
 * cgroups are the machine's own (version 2), with the processes in them; only that the driver reads them is simulated.
 * Source: NVIDIA, "MPS v3 Memory Partitioning". */
#include "machine.h"

#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { CGROUP2 = 0x63677270 }; /* the file system's magic */

/* What of a limit nobody can have beside contexts: `machine/driver/limits.py` says why it is so much. */
static const uint64_t drivers_part = 240ULL << 20;

/* Returns the inode of a cgroup's folder, which no other one ever has; 0 when it is none. */
static uint64_t inode_of(const char *folder)
{
    struct statfs kind;
    struct stat about;
    return statfs(folder, &kind) == 0 && kind.f_type == CGROUP2 && stat(folder, &about) == 0 ? about.st_ino : 0;
}

static bool above(char *folder)
{
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
    return slash && slash > folder;
}

int sim_cgroup_at(struct sim_machine *machine, const char *folder)
{
    char parent[SIM_PATH];
    uint64_t inode = inode_of(folder);
    int at;
    if (!inode || strlen(folder) >= sizeof parent)
        return -1;
    for (at = 0; at < SIM_CGROUPS && machine->cgroup[at].inode; at++)
        if (machine->cgroup[at].inode == inode)
            return at;
    for (int gone = 0; gone < at; gone++)
        if (inode_of(machine->cgroup[gone].folder) != machine->cgroup[gone].inode)
            at = gone; /* it was removed, and its limits with it */
    if (at == SIM_CGROUPS)
        return -1;
    strcpy(parent, folder);
    struct sim_cgroup *cgroup = &machine->cgroup[at];
    strcpy(cgroup->folder, folder);
    cgroup->inode = inode;
    cgroup->used_before = false;
    memset(cgroup->soft, 0, sizeof cgroup->soft);
    memset(cgroup->hard, 0xff, sizeof cgroup->hard);
    cgroup->parent = above(parent) ? sim_cgroup_at(machine, parent) : -1;
    return at;
}

/* Stores the folder of this process's cgroup; returns false where it cannot be seen. */
static bool own_folder(char folder[SIM_PATH])
{
    char line[SIM_PATH] = "", *name = NULL;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !name && fgets(line, sizeof line, file))
        if (strncmp(line, "0::", 3) == 0)
            name = strtok(line + 3, "\n");
    if (file)
        fclose(file);
    FILE *mounts = name ? setmntent("/proc/self/mounts", "re") : NULL;
    bool found = false;
    for (struct mntent *mount; mounts && !found && (mount = getmntent(mounts));)
        found = strcmp(mount->mnt_type, "cgroup2") == 0 &&
                snprintf(folder, SIM_PATH, "%s%s", mount->mnt_dir, strcmp(name, "/") ? name : "") < SIM_PATH &&
                inode_of(folder);
    if (mounts)
        endmntent(mounts);
    return found;
}

/* Returns the index of this process's cgroup, as `sim_cgroup_at`. */
static int own_cgroup(struct sim_machine *machine)
{
    char folder[SIM_PATH];
    return own_folder(folder) ? sim_cgroup_at(machine, folder) : -1;
}

static bool limited(const struct sim_machine *machine, int cgroup, int device)
{
    return device < machine->gpus && machine->cgroup[cgroup].hard[device] != SIM_NO_LIMIT;
}

uint64_t sim_used_in(struct sim_machine *machine, int cgroup, int device)
{
    bool dmem = machine->dmem;
    uint64_t used = 0;
    for (const struct sim_row *row = NULL; (row = sim_next_row(machine, device, row));) {
        int at = row->echo ? -1 : row->cgroup;
        while (at >= 0 && at != cgroup && (dmem || !limited(machine, at, device)))
            at = machine->cgroup[at].parent; /* with dmem limits nest; else the nearest one is all there is */
        used += at == cgroup ? row->held : 0;
    }
    return used;
}

/* Returns the bytes that a process in a cgroup can still get on a device. */
static uint64_t room_in(struct sim_machine *machine, int cgroup, int device)
{
    uint64_t room = sim_capacity(&machine->device[device]) - sim_used(machine, device);
    for (int at = cgroup; at >= 0; at = machine->cgroup[at].parent) {
        if (!limited(machine, at, device))
            continue;
        uint64_t most = machine->cgroup[at].hard[device], used = sim_used_in(machine, at, device) + drivers_part;
        uint64_t left = used < most ? most - used : 0;
        room = left < room ? left : room;
        if (!machine->dmem)
            break;
    }
    return room;
}

bool sim_charge(struct sim_machine *machine, int device, uint64_t bytes)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        sim_lock(machine);
        struct sim_row *row = sim_own_row(machine, device);
        int cgroup = row ? row->cgroup : own_cgroup(machine);
        bool fits = bytes <= room_in(machine, cgroup, device);
        if (fits && row) {
            row->held += bytes;
        } else if (fits && (row = sim_add_row(machine, getpid(), device, bytes, SIM_COMPUTE, false))) {
            row->cgroup = cgroup;
            if (cgroup >= 0)
                machine->cgroup[cgroup].used_before = true;
        } else {
            fits = false;
        }
        sim_unlock(machine);
        if (fits)
            return true;
        sim_prune(machine, true); /* rows of dead processes may take the room */
    }
    return false;
}

struct sim_memory sim_memory_seen(struct sim_machine *machine, int device)
{
    const struct sim_device *about = &machine->device[device];
    sim_lock(machine);
    uint64_t used = sim_used(machine, device), free_bytes = sim_capacity(about) - used;
    struct sim_memory seen = {about->total, about->reserved, used, free_bytes};
    int cgroup = atomic_load(&machine->limits) ? own_cgroup(machine) : -1;
    if (cgroup >= 0 && limited(machine, cgroup, device) && machine->cgroup[cgroup].hard[device] < about->total) {
        uint64_t hard = machine->cgroup[cgroup].hard[device], own = sim_used_in(machine, cgroup, device);
        uint64_t left = own < hard ? hard - own : 0;
        seen = (struct sim_memory){hard, 0, own, left < free_bytes ? left : free_bytes};
    }
    sim_unlock(machine);
    return seen;
}
