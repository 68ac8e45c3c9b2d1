/* machine.h: the state that all processes on one simulated GPU machine share, and every call that reads or changes it.
 * Only the C files have this layout: Python drives the machine through the tfgpusim_ calls of control.c. */
#ifndef TFGPU_MACHINE_H
#define TFGPU_MACHINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_ENVIRONMENT "TFGPU_SIMGPU"

enum {
    SIM_GPUS = 64,
    SIM_INSTANCES = 7,                              /* MIG instances on one GPU, at most */
    SIM_DEVICES = SIM_GPUS * (1 + SIM_INSTANCES),   /* the GPUs first, all MIG instances after them */
    SIM_ROWS = 8192,
    SIM_CGROUPS = 512,
    SIM_PATH = 256,
    SIM_FAULTS = 64,
    SIM_FUNCTIONS = 256,
    SIM_NAME = 96,
    SIM_UNSET = -1,
};

/* The list that a row is in; a process that computes and draws has a row of each kind. */
enum sim_kind { SIM_EMPTY = 0, SIM_COMPUTE = 'C', SIM_GRAPHICS = 'G', SIM_MPS = 'M' };

/* Faults of the whole machine, as bits. */
enum sim_flag { SIM_HIDE_MEMORY = 1, SIM_HOST_PIDS = 2, SIM_NO_DRIVER = 4 };

/* Which processes may have a context on a GPU, by the numbers of NVML and CUDA (CU_COMPUTEMODE_...): 1 is history. */
enum sim_mode { SIM_SHARED = 0, SIM_PROHIBITED = 2, SIM_EXCLUSIVE = 3 };

struct sim_device {
    char name[SIM_NAME];
    char uuid[48];
    char pci[20];               /* 0000:01:00.0 */
    uint64_t total, reserved;   /* bytes; processes share total - reserved */
    int parent;                 /* the GPU that a MIG instance is a part of; -1 for a GPU */
    int instance;               /* the MIG instance's number on its GPU */
    int instances;              /* how many MIG instances a GPU is cut into; 0 when MIG is off */
    int multiprocessors, clock_khz, major, minor;
    int mode;                   /* enum sim_mode */
    atomic_int utilisation, celsius, milliwatts;    /* what NVML tells; SIM_UNSET: as the processes are; no sensor */
    atomic_bool lost;
};

struct sim_row {
    uint64_t held, start;       /* bytes; the process's start time, so that a reused pid is not taken for it */
    uint64_t launched_us;       /* when it last launched a kernel, since the epoch; 0: never */
    int utilisation;            /* what NVML tells of it; SIM_UNSET: by its launches */
    pid_t pid;
    int device;
    int cgroup;                 /* the process's when it got the row, as an index; -1: unknown */
    unsigned id;
    char kind;                  /* enum sim_kind */
    bool pinned;                /* stays until it is removed, whatever its pid does */
    bool echo;                  /* its pid's memory is already counted by another row on the device */
};

/* A cgroup that is limited or that a process on a GPU is in, or one above such a one. */
#define SIM_NO_LIMIT UINT64_MAX
struct sim_cgroup {
    char folder[SIM_PATH];
    uint64_t inode;             /* the folder's: who removes it and makes it anew has another one */
    int parent;                 /* an index; -1 for the root */
    bool used_before;
    uint64_t soft[SIM_GPUS], hard[SIM_GPUS];
};

struct sim_fault {
    char function[SIM_NAME];
    int device;                 /* -1: any */
    int code;
    uint64_t hang_ns;
};

struct sim_machine {
    uint64_t layout;            /* sizeof(struct sim_machine): a file of another build is refused */
    char driver[32];            /* its version: 580.00.00 */
    atomic_bool dmem;           /* whether cgroups are limited by the kernel's dmem controller, or by the driver */
    pthread_mutex_t lock;       /* robust: its owner may be killed */
    uint64_t context;           /* bytes that a CUDA context costs */
    int gpus, devices;
    unsigned rows_end;          /* no row in use at or after it */
    unsigned next_id;
    atomic_uint flags;
    atomic_uint fault_count;
    atomic_bool limits;         /* whether a cgroup ever had one */
    _Atomic uint64_t prune_ns;  /* when dead processes' rows are to be dropped again */
    struct sim_fault faults[SIM_FAULTS];
    struct { char name[SIM_NAME]; _Atomic uint64_t calls; } functions[SIM_FUNCTIONS];
    struct sim_device device[SIM_DEVICES];
    uint16_t row_on[SIM_ROWS];  /* each row's device + 1, or 0: with many rows a search reads these alone */
    struct sim_row row[SIM_ROWS];
    struct sim_cgroup cgroup[SIM_CGROUPS];
};

/* --- machine.c: the file, the lock, the rows --- */

/* Maps the state file at `path`; NULL with errno when it is not one. */
SIM_EXPORT struct sim_machine *sim_map(const char *path);
/* Returns the machine that the environment names, mapped once; NULL when there is none. */
SIM_EXPORT struct sim_machine *sim_here(void);
SIM_EXPORT void sim_lock(struct sim_machine *);
SIM_EXPORT void sim_unlock(struct sim_machine *);
/* Drops the rows of dead processes; unless forced, at most once in a while. Call it without the lock. */
SIM_EXPORT void sim_prune(struct sim_machine *, bool force);
/* Return the bytes that processes can share, and those that they hold now. Call the second with the lock held. */
SIM_EXPORT uint64_t sim_capacity(const struct sim_device *);
SIM_EXPORT uint64_t sim_used(struct sim_machine *, int device);
/* Takes bytes on the device from this process. */
SIM_EXPORT void sim_discharge(struct sim_machine *, int device, uint64_t bytes);
/* Records that this process launches a kernel on the device. */
SIM_EXPORT void sim_launched(struct sim_machine *, int device);
/* Return the time in microseconds since the epoch, and the percent of the last moment in which a process's kernels ran:
 * all of a second after each launch, since no kernel takes any time. */
SIM_EXPORT uint64_t sim_now_us(void);
SIM_EXPORT unsigned sim_utilisation(const struct sim_row *, uint64_t now_us);
/* Drops what this pid held: a program that replaced itself by exec starts with nothing. */
SIM_EXPORT void sim_forget_self(struct sim_machine *);
/* Returns the first row on a device and its MIG instances after `last` (NULL: of all), or NULL. Call it with the lock
 * held. */
SIM_EXPORT struct sim_row *sim_next_row(struct sim_machine *, int device, const struct sim_row *last);
/* Returns this process's row on the device, or NULL. Call it with the lock held. */
struct sim_row *sim_own_row(struct sim_machine *, int device);
/* Returns a new row, or NULL when all are taken; pinned ones are made up, the others are what a process really has.
 * Call it with the lock held. */
SIM_EXPORT struct sim_row *sim_add_row(struct sim_machine *, pid_t, int device, uint64_t held, char kind, bool pinned);
SIM_EXPORT void sim_remove_row(struct sim_machine *, struct sim_row *);

/* Tells whether the device's compute mode keeps this process from having a context there now. */
SIM_EXPORT bool sim_denied(struct sim_machine *, int device);

/* --- limits.c: what a process can still get. Call the first two with the lock held --- */

/* Returns the index of the cgroup with a folder; -1 when there is none, or no room for more. */
SIM_EXPORT int sim_cgroup_at(struct sim_machine *, const char *folder);
/* Returns the bytes that count against a cgroup's limit on a device. */
SIM_EXPORT uint64_t sim_used_in(struct sim_machine *, int cgroup, int device);
/* Gives this process `bytes` more on the device; returns false when it or a limit is full. */
SIM_EXPORT bool sim_charge(struct sim_machine *, int device, uint64_t bytes);
/* Returns a device's memory as this process is told: where its own cgroup is limited, as if it were the whole. */
struct sim_memory { uint64_t total, reserved, used, free; };
SIM_EXPORT struct sim_memory sim_memory_seen(struct sim_machine *, int device);

/* --- faults.c: deliberate faults --- */

/* Waits as long as a fault makes this call of `function` hang, and returns the code that it must return, or 0. */
SIM_EXPORT int sim_fault_of(struct sim_machine *, const char *function, int device);
/* Counts a call; `*slot` is the caller's own and starts as 0. */
SIM_EXPORT void sim_count(struct sim_machine *, const char *function, atomic_int *slot);
/* Tells whether the device, or the GPU that it is a part of, is lost. */
SIM_EXPORT bool sim_lost(const struct sim_machine *, int device);
/* Returns the pid that NVML shows for a pid: itself, or while pids are of another namespace one that is not here. */
SIM_EXPORT pid_t sim_shown_pid(const struct sim_machine *, pid_t);

#endif
