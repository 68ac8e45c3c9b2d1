/* control.c: Python's interface: makes a machine, reports its state as one line of JSON, and sets its faults. */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Makes the state file of a machine without GPUs. Returns it mapped, or NULL with errno. */
SIM_EXPORT struct sim_machine *tfgpusim_create(const char *path, uint64_t context)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    struct sim_machine *machine = MAP_FAILED;
    if (ftruncate(fd, sizeof *machine) == 0)
        machine = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (machine == MAP_FAILED)
        return NULL;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&machine->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    machine->context = context;
    machine->layout = sizeof *machine;
    return machine;
}

static void make_uuid(char *text, size_t size, const char *prefix)
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != sizeof b)
        memset(b, 0x5a, sizeof b);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    snprintf(text, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix, b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* Adds a GPU, cut into `instances` MIG instances unless that is 0. All GPUs must be added before another process maps
 * the file. Returns its index, or -1 when there are too many. */
SIM_EXPORT int tfgpusim_add_gpu(struct sim_machine *machine, const char *name, uint64_t total, uint64_t reserved,
                                int multiprocessors, int clock_khz, int major, int minor, int mode, int instances)
{
    /* A GPU goes before the instances of earlier ones, so those move up. */
    int at = machine->gpus;
    if (at >= SIM_GPUS || instances > SIM_INSTANCES || machine->devices + 1 + instances > SIM_DEVICES)
        return -1;
    struct sim_device *gpu = &machine->device[at];
    memmove(gpu + 1, gpu, (size_t)(machine->devices - at) * sizeof *gpu);
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->name, sizeof gpu->name, "%s", name);
    make_uuid(gpu->uuid, sizeof gpu->uuid, "GPU");
    snprintf(gpu->pci, sizeof gpu->pci, "0000:%02x:00.0", at + 1);
    gpu->total = total;
    gpu->reserved = reserved;
    gpu->parent = -1;
    gpu->instances = instances;
    gpu->multiprocessors = multiprocessors;
    gpu->clock_khz = clock_khz;
    gpu->major = major;
    gpu->minor = minor;
    gpu->mode = mode;
    gpu->utilisation = gpu->celsius = gpu->milliwatts = SIM_UNSET;
    machine->gpus++;
    machine->devices++;
    for (int i = 0; i < instances; i++) {
        struct sim_device *part = &machine->device[machine->devices++];
        *part = *gpu;
        snprintf(part->name, sizeof part->name, "%.60s MIG 1/%d", name, instances);
        make_uuid(part->uuid, sizeof part->uuid, "MIG");
        part->parent = at;
        part->instance = i + 1; /* as on a real GPU: instance 0 would be the whole of it */
        part->instances = 0;
        part->total = total / (unsigned)instances & ~(uint64_t)0xfffff;
        part->reserved = reserved / (unsigned)instances & ~(uint64_t)0xfffff;
        part->multiprocessors = multiprocessors / instances;
    }
    return at;
}

SIM_EXPORT struct sim_machine *tfgpusim_open(const char *path)
{
    return sim_map(path);
}

SIM_EXPORT void tfgpusim_close(struct sim_machine *machine)
{
    munmap(machine, sizeof *machine);
}

/* Adds a row that stays until it is removed. Returns its number, 0 when there is no room. */
SIM_EXPORT unsigned tfgpusim_add_row(struct sim_machine *machine, int pid, int device, uint64_t held, char kind)
{
    sim_lock(machine);
    struct sim_row *row = sim_add_row(machine, pid, device, held, kind, true);
    unsigned id = row ? row->id : 0;
    sim_unlock(machine);
    return id;
}

/* Removes the row, or with a new size changes it (`held` above 0). Returns whether it was there. */
SIM_EXPORT int tfgpusim_change_row(struct sim_machine *machine, unsigned id, uint64_t held)
{
    int found = 0;
    sim_lock(machine);
    for (unsigned i = 0; i < machine->rows_end && !found; i++) {
        struct sim_row *row = &machine->row[i];
        if (row->kind == SIM_EMPTY || row->id != id)
            continue;
        found = 1;
        row->held = held;
        if (!held)
            sim_remove_row(machine, row);
    }
    sim_unlock(machine);
    return found;
}

/* Sets a fault: `function` returns `code` (unless 0), or hangs (unless 0). One function and device has one fault; both
 * 0 end it. Returns 0 when there are too many. */
SIM_EXPORT int tfgpusim_fault(struct sim_machine *machine, const char *function, int device, int code, uint64_t hang_ns)
{
    int done = 1;
    sim_lock(machine);
    unsigned count = atomic_load(&machine->fault_count), at = 0;
    while (at < count && (machine->faults[at].device != device || strcmp(machine->faults[at].function, function) != 0))
        at++;
    if (!code && !hang_ns) {
        if (at < count) {
            machine->faults[at] = machine->faults[count - 1];
            atomic_store(&machine->fault_count, count - 1);
        }
    } else if (at < SIM_FAULTS) {
        snprintf(machine->faults[at].function, SIM_NAME, "%s", function);
        machine->faults[at].device = device;
        machine->faults[at].code = code;
        machine->faults[at].hang_ns = hang_ns;
        if (at == count)
            atomic_store(&machine->fault_count, count + 1);
    } else {
        done = 0;
    }
    sim_unlock(machine);
    return done;
}

/* Sets what NVML tells of a device: percent, degrees, milliwatts. SIM_UNSET is what a device is made with. */
SIM_EXPORT void tfgpusim_sense(struct sim_machine *machine, int device, int utilisation, int celsius, int milliwatts)
{
    atomic_store(&machine->device[device].utilisation, utilisation);
    atomic_store(&machine->device[device].celsius, celsius);
    atomic_store(&machine->device[device].milliwatts, milliwatts);
}

/* Sets what NVML tells of the utilisation by a pid; SIM_UNSET: what follows from its launches. */
SIM_EXPORT void tfgpusim_use(struct sim_machine *machine, int pid, int utilisation)
{
    sim_lock(machine);
    for (unsigned i = 0; i < machine->rows_end; i++)
        if (machine->row[i].kind != SIM_EMPTY && machine->row[i].pid == pid)
            machine->row[i].utilisation = utilisation;
    sim_unlock(machine);
}

SIM_EXPORT void tfgpusim_flag(struct sim_machine *machine, unsigned flag, int on)
{
    if (on)
        atomic_fetch_or(&machine->flags, flag);
    else
        atomic_fetch_and(&machine->flags, ~flag);
}

SIM_EXPORT void tfgpusim_driver(struct sim_machine *machine, const char *version, int dmem)
{
    snprintf(machine->driver, sizeof machine->driver, "%s", version);
    atomic_store(&machine->dmem, dmem != 0);
}

SIM_EXPORT void tfgpusim_lose(struct sim_machine *machine, int device, int lost)
{
    atomic_store(&machine->device[device].lost, lost != 0);
}

SIM_EXPORT void tfgpusim_clear_faults(struct sim_machine *machine)
{
    sim_lock(machine);
    atomic_store(&machine->fault_count, 0);
    sim_unlock(machine);
    atomic_store(&machine->flags, 0);
    for (int i = 0; i < machine->devices; i++)
        atomic_store(&machine->device[i].lost, false);
}

struct text { char *at; size_t size, length; };

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *text, const char *format, ...)
{
    size_t left = text->length < text->size ? text->size - text->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(left ? text->at + text->length : NULL, left, format, arguments);
    va_end(arguments);
    text->length += written > 0 ? (size_t)written : 0;
}

/* Writes the whole machine as JSON: devices, rows, calls. Returns its full length, so that the caller
 * can try again with a larger buffer. Names need no escapes: they are made here or checked in Python. */
SIM_EXPORT size_t tfgpusim_report(struct sim_machine *machine, char *buffer, size_t size)
{
    struct text text = {buffer, size, 0};
    sim_prune(machine, true);
    sim_lock(machine);
    say(&text, "{\"devices\":[");
    for (int i = 0; i < machine->devices; i++) {
        const struct sim_device *d = &machine->device[i];
        say(&text,
            "%s{\"name\":\"%s\",\"uuid\":\"%s\",\"pci\":\"%s\",\"total\":%llu,\"reserved\":%llu,\"used\":%llu,"
            "\"parent\":%d,\"instance\":%d,\"instances\":%d,\"multiprocessors\":%d,\"major\":%d,\"minor\":%d,"
            "\"lost\":%s}",
            i ? "," : "", d->name, d->uuid, d->pci, (unsigned long long)d->total, (unsigned long long)d->reserved,
            (unsigned long long)sim_used(machine, i), d->parent, d->instance, d->instances, d->multiprocessors,
            d->major, d->minor, sim_lost(machine, i) ? "true" : "false");
    }
    say(&text, "],\"rows\":[");
    const char *comma = "";
    for (unsigned i = 0; i < machine->rows_end; i++) {
        const struct sim_row *row = &machine->row[i];
        if (row->kind == SIM_EMPTY)
            continue;
        say(&text, "%s{\"pid\":%d,\"device\":%d,\"held\":%llu,\"kind\":\"%c\",\"echo\":%s}", comma, (int)row->pid,
            row->device, (unsigned long long)row->held, row->kind, row->echo ? "true" : "false");
        comma = ",";
    }
    say(&text, "],\"calls\":{");
    for (int i = 0; i < SIM_FUNCTIONS && machine->functions[i].name[0]; i++)
        say(&text, "%s\"%s\":%llu", i ? "," : "", machine->functions[i].name,
            (unsigned long long)atomic_load(&machine->functions[i].calls));
    say(&text, "}}");
    sim_unlock(machine);
    return text.length;
}
