/* machine.c: the shared state file, its lock, and the rows of what each process holds. */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A launch sooner after another one is not recorded: training launches thousands a second. */
static const uint64_t LAUNCH_EVERY_US = 10u * 1000;
static const uint64_t RUNS_FOR_US = 1000u * 1000;

/* Reading /proc for hundreds of processes takes milliseconds: too long for every NVML call. */
static const uint64_t PRUNE_EVERY_NS = 20u * 1000 * 1000;
static const uint64_t LONGEST_PAUSE_NS = 500u * 1000 * 1000;

struct sim_machine *sim_map(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *map = MAP_FAILED;
    if (fstat(fd, &about) == 0 && (size_t)about.st_size == sizeof(struct sim_machine))
        map = mmap(NULL, sizeof(struct sim_machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) {
        errno = EINVAL;
        return NULL;
    }
    struct sim_machine *machine = map;
    if (machine->layout != sizeof(struct sim_machine)) {
        munmap(map, sizeof(struct sim_machine));
        errno = EINVAL;
        return NULL;
    }
    return machine;
}

static struct sim_machine *here;

static void find_here(void)
{
    const char *path = getenv(SIM_ENVIRONMENT);
    here = path && *path ? sim_map(path) : NULL;
}

struct sim_machine *sim_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_here);
    return here;
}

void sim_lock(struct sim_machine *machine)
{
    /* Every change under the lock leaves readable rows, so that a killed owner's state needs no repair. */
    if (pthread_mutex_lock(&machine->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&machine->lock);
}

void sim_unlock(struct sim_machine *machine)
{
    pthread_mutex_unlock(&machine->lock);
}

/* --- processes --- */

/* Returns a process's start time, in clock ticks since boot; 0 when there is no such process or it is a zombie. */
static uint64_t start_time(pid_t pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0)
        return 0;
    text[size] = 0;
    /* The name, in parentheses, may hold anything: count after the last one. State is field 3, the start 22. */
    char *field = strrchr(text, ')');
    if (!field || field[1] != ' ' || field[2] == 'Z' || field[2] == 'X')
        return 0;
    for (int number = 2; field && number < 22; number++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

static uint64_t own_start_time(void)
{
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static pid_t pid;
    static uint64_t start;
    pthread_mutex_lock(&guard);
    if (pid != getpid()) {
        pid = getpid();
        start = start_time(pid);
    }
    uint64_t answer = start;
    pthread_mutex_unlock(&guard);
    return answer;
}

static bool dead(pid_t pid, uint64_t start)
{
    uint64_t now = start_time(pid);
    /* Where /proc hides other users' processes, a forbidden signal still shows that one exists. */
    if (!now && pid > 0 && kill(pid, 0) != 0 && errno == EPERM)
        return false;
    return now != start;
}

enum { AT_ONCE = 128 };
struct process { pid_t pid; uint64_t start; };

/* Stores dead processes that have rows, as many as there is room for; returns how many. */
static unsigned find_dead(const struct sim_machine *machine, struct process found[AT_ONCE])
{
    struct process last = {0};
    unsigned count = 0, rows = machine->rows_end < SIM_ROWS ? machine->rows_end : SIM_ROWS;
    for (unsigned i = 0; i < rows && count < AT_ONCE; i++) {
        struct sim_row row = machine->row[i];
        if (row.kind == SIM_EMPTY || row.pinned || (row.pid == last.pid && row.start == last.start))
            continue;
        last = (struct process){row.pid, row.start};
        if (dead(row.pid, row.start))
            found[count++] = last;
    }
    return count;
}

static uint64_t clock_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void sim_prune(struct sim_machine *machine, bool force)
{
    struct process found[AT_ONCE];
    uint64_t start = clock_ns();
    unsigned count;
    if (!force && start < atomic_load(&machine->prune_ns))
        return;
    atomic_store(&machine->prune_ns, start + PRUNE_EVERY_NS);
    do {
        /* Read /proc without the lock; a row that changes meanwhile is only dropped if it is still the dead one's. */
        count = find_dead(machine, found);
        sim_lock(machine);
        for (unsigned i = 0; count && i < machine->rows_end; i++)
            for (unsigned k = 0; k < count; k++) {
                struct sim_row *row = &machine->row[i];
                if (row->kind != SIM_EMPTY && !row->pinned && row->pid == found[k].pid && row->start == found[k].start)
                    sim_remove_row(machine, row);
            }
        sim_unlock(machine);
    } while (count == AT_ONCE);
    uint64_t end = clock_ns(), pause = 20 * (end - start); /* so that it is a twentieth of the time */
    atomic_store(&machine->prune_ns, end + PRUNE_EVERY_NS + (pause < LONGEST_PAUSE_NS ? pause : LONGEST_PAUSE_NS));
}

/* --- rows --- */

struct sim_row *sim_add_row(struct sim_machine *machine, pid_t pid, int device, uint64_t held, char kind, bool pinned)
{
    struct sim_row *free_row = NULL;
    bool echo = false;
    for (unsigned i = 0; i < SIM_ROWS && (i < machine->rows_end || !free_row); i++) {
        struct sim_row *row = &machine->row[i];
        if (row->kind == SIM_EMPTY)
            free_row = free_row ? free_row : row;
        else if (row->pid == pid && row->device == device && !pinned)
            row->echo = true; /* a made-up row yields to the process's real one */
        else if (row->pid == pid && row->device == device)
            echo = true;
    }
    if (!free_row)
        return NULL;
    free_row->pid = pid;
    free_row->start = pinned ? 0 : own_start_time();
    free_row->device = device;
    free_row->cgroup = -1;
    free_row->held = held;
    free_row->launched_us = 0;
    free_row->utilisation = SIM_UNSET;
    free_row->pinned = pinned;
    free_row->echo = echo;
    free_row->id = ++machine->next_id;
    if (machine->rows_end <= (unsigned)(free_row - machine->row))
        machine->rows_end = (unsigned)(free_row - machine->row) + 1;
    machine->row_on[free_row - machine->row] = (uint16_t)(device + 1);
    free_row->kind = kind;
    return free_row;
}

void sim_remove_row(struct sim_machine *machine, struct sim_row *row)
{
    row->kind = SIM_EMPTY;
    machine->row_on[row - machine->row] = 0;
    while (machine->rows_end > 0 && machine->row[machine->rows_end - 1].kind == SIM_EMPTY)
        machine->rows_end--;
}

struct sim_row *sim_next_row(struct sim_machine *machine, int device, const struct sim_row *last)
{
    for (unsigned i = last ? (unsigned)(last - machine->row) + 1 : 0; i < machine->rows_end; i++) {
        int on = machine->row_on[i] - 1;
        if ((on == device || (on >= machine->gpus && machine->device[on].parent == device)) &&
            machine->row[i].kind != SIM_EMPTY)
            return &machine->row[i];
    }
    return NULL;
}

struct sim_row *sim_own_row(struct sim_machine *machine, int device)
{
    pid_t pid = getpid();
    uint64_t start = own_start_time();
    for (struct sim_row *row = NULL; (row = sim_next_row(machine, device, row));) {
        if (row->kind == SIM_COMPUTE && !row->pinned && row->pid == pid && row->start == start && row->device == device)
            return row;
    }
    return NULL;
}

uint64_t sim_capacity(const struct sim_device *device)
{
    return device->total - device->reserved;
}

uint64_t sim_used(struct sim_machine *machine, int device)
{
    uint64_t used = 0, capacity = sim_capacity(&machine->device[device]);
    for (const struct sim_row *row = NULL; (row = sim_next_row(machine, device, row));)
        if (!row->echo)
            used = row->held > capacity - used ? capacity : used + row->held;
    return used;
}

void sim_discharge(struct sim_machine *machine, int device, uint64_t bytes)
{
    sim_lock(machine);
    struct sim_row *row = sim_own_row(machine, device);
    if (row) {
        row->held -= bytes < row->held ? bytes : row->held;
        if (!row->held)
            sim_remove_row(machine, row);
    }
    sim_unlock(machine);
}

bool sim_denied(struct sim_machine *machine, int device)
{
    int mode = machine->device[device].mode;
    if (mode != SIM_EXCLUSIVE)
        return mode == SIM_PROHIBITED;
    sim_prune(machine, true);
    bool found = false;
    sim_lock(machine);
    for (unsigned i = 0; i < machine->rows_end && !found; i++) {
        const struct sim_row *row = &machine->row[i];
        found = row->kind != SIM_EMPTY && row->kind != SIM_GRAPHICS && row->device == device && row->pid != getpid();
    }
    sim_unlock(machine);
    return found;
}

/* --- utilisation --- */

uint64_t sim_now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_nsec / 1000;
}

void sim_launched(struct sim_machine *machine, int device)
{
    static _Atomic uint64_t last[SIM_DEVICES];
    uint64_t now = sim_now_us();
    if (now - atomic_load_explicit(&last[device], memory_order_relaxed) < LAUNCH_EVERY_US)
        return;
    atomic_store_explicit(&last[device], now, memory_order_relaxed);
    sim_lock(machine);
    struct sim_row *row = sim_own_row(machine, device);
    if (row)
        row->launched_us = now;
    sim_unlock(machine);
}

unsigned sim_utilisation(const struct sim_row *row, uint64_t now_us)
{
    if (row->utilisation != SIM_UNSET)
        return (unsigned)row->utilisation;
    return row->launched_us && now_us - row->launched_us < RUNS_FOR_US ? 100 : 0;
}

void sim_forget_self(struct sim_machine *machine)
{
    pid_t pid = getpid();
    sim_lock(machine);
    for (unsigned i = 0; i < machine->rows_end; i++)
        if (machine->row[i].kind != SIM_EMPTY && !machine->row[i].pinned && machine->row[i].pid == pid)
            sim_remove_row(machine, &machine->row[i]);
    sim_unlock(machine);
}
