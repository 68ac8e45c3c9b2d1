/* cuda_custom.c: checkpoints to storage of the caller's own (driver 615): another process's device memory is mapped here
 * until the caller, who copies it, says that it has. As the stand-in's device memory is the other one's host memory, it
 * is copied here and back; pages of zeros stay unmapped.
 * Source: CUDA Driver API 13.4, "CUDA Checkpointing"; what becomes of one whose caller dies is inferred. */
#include "cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, CHUNK = 1 << 20, EXTENTS = 4096 };

struct per_device { CUdeviceptr at; size_t size; CUstream stream; };
struct custom_info { struct operation *handle; struct per_device *device; unsigned devices; };
struct operation {
    int socket;                 /* to the other process, for which the operation ends with it */
    pid_t pid;
    bool back;
    struct custom_info info;
    struct per_device device[CUDA_DEVICES];
    unsigned extents;
    struct cuda_extent extent[EXTENTS];
    char *here[EXTENTS];        /* where each is mapped in this process */
};

/* Tells whether a caller may trace a process where only ancestors may (Yama's ptrace_scope 1). */
static bool may_trace(pid_t pid)
{
    if (!cuda_machine->setting[SIM_PTRACE_SCOPE])
        return true;
    while (pid > 1 && pid != getpid()) {
        char path[32], text[512] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        FILE *file = fopen(path, "re");
        if (!file)
            return false;
        size_t size = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[size] = 0;
        char *end = strrchr(text, ')');
        if (!end || sscanf(end, ") %*c %d", &pid) != 1)
            return false;
    }
    return pid == getpid();
}

static int ordinal_of(int device)
{
    for (int i = 0; i < cuda.count; i++)
        if (cuda.device[i] == device)
            return i;
    return -1;
}

/* Maps room for what lies on each device, one range a device. */
static int map(struct operation *one)
{
    for (int i = 0; i < cuda.count; i++) {
        size_t size = 0;
        for (unsigned k = 0; k < one->extents; k++)
            size += one->extent[k].device == cuda.device[i] ? one->extent[k].size : 0;
        if (!size)
            continue;
        if (!cuda.primary[i].retains)
            return CUDA_INVALID_CONTEXT;
        struct per_device *to = &one->device[one->info.devices];
        int outcome = cuda_allocate(&to->at, size, i, MEMORY_GLOBALS); /* the other process is charged for it */
        if (outcome)
            return outcome;
        to->size = size;
        one->info.devices++;
        char *next = (char *)to->at;
        for (unsigned k = 0; k < one->extents; k++)
            if (one->extent[k].device == cuda.device[i]) {
                one->here[k] = next;
                next += one->extent[k].size;
            }
    }
    for (unsigned k = 0; k < one->extents; k++)
        if (ordinal_of(one->extent[k].device) < 0)
            return CUDA_INVALID_DEVICE;
    return CUDA_OK;
}

/* Copies what is no zero, in runs of pages, here or `back`. */
static bool copy(const struct operation *one, unsigned k)
{
    static const char zeros[PAGE];
    char *bounce = malloc(CHUNK), *here = one->here[k], *there = (char *)one->extent[k].at;
    bool fine = bounce != NULL;
    for (size_t done = 0; fine && done < one->extent[k].size; done += CHUNK) {
        size_t size = one->extent[k].size - done < CHUNK ? one->extent[k].size - done : CHUNK;
        struct iovec remote = {there + done, size}, local = {bounce, size};
        if (!one->back)
            fine = process_vm_readv(one->pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
        for (size_t at = 0; fine && at < size; at += PAGE) {
            char *page = here + done + at;
            if (memcmp(one->back ? page : bounce + at, zeros, PAGE) == 0)
                continue;
            struct iovec from = {page, PAGE}, to = {there + done + at, PAGE};
            if (one->back)
                fine = process_vm_writev(one->pid, &from, 1, &to, 1, 0) == PAGE;
            else
                memcpy(page, bounce + at, PAGE);
        }
    }
    free(bounce);
    return fine;
}

static bool copy_all(const struct operation *one)
{
    for (unsigned k = 0; k < one->extents; k++)
        if (!copy(one, k))
            return false;
    return true;
}

static void end(struct operation *one)
{
    struct cuda_block block;
    for (unsigned i = 0; i < one->info.devices; i++)
        if (cuda_find(one->device[i].at, &block, true))
            munmap((void *)block.at, block.size);
    close(one->socket);
    free(one);
}

int cuda_begin_custom(pid_t pid, const struct cuda_request *request, void **to)
{
    if (sim_driver(cuda_machine) < 615)
        return CUDA_INVALID_VALUE; /* to older drivers the argument is reserved */
    if (!may_trace(pid))
        return CUDA_OPERATING_SYSTEM;
    struct operation *one = calloc(1, sizeof *one);
    NEED(one);
    one->pid = pid;
    one->back = request->call == CALL_RESTORE;
    int outcome = cuda_ask(pid, request, NULL, &one->socket);
    if (outcome) {
        free(one);
        return outcome;
    }
    ssize_t size = recv(one->socket, one->extent, sizeof one->extent, 0);
    one->extents = size > 0 ? (unsigned)size / sizeof *one->extent : 0;
    outcome = map(one);
    if (!outcome && !one->back && !copy_all(one))
        outcome = CUDA_OPERATING_SYSTEM;
    if (outcome) {
        end(one);
        return outcome;
    }
    one->info.handle = one;
    one->info.device = one->device;
    *to = &one->info;
    return CUDA_OK;
}

API(cuCheckpointOperationComplete, struct operation *one)
{
    BEGIN_BESIDE(-1);
    NEED(one);
    if (sim_driver(cuda_machine) < 615)
        return CUDA_NOT_SUPPORTED;
    int outcome = CUDA_OPERATING_SYSTEM;
    struct cuda_request done = {.call = CALL_COMPLETE};
    struct cuda_answer said;
    if ((!one->back || copy_all(one)) && send(one->socket, &done, sizeof done, MSG_NOSIGNAL) > 0)
        outcome = cuda_hear(one->socket, one->pid, &said);
    end(one);
    return outcome;
}

API(cuGetProcAddress_v2, const char *name, void **to, int version, uint64_t flags, int *found)
{
    NEED(name && to);
    enum { FOUND, NOT_FOUND, TOO_OLD };
    Dl_info here;
    char newer[128];
    snprintf(newer, sizeof newer, "%s_v2", name);
    void *own = dladdr(&cuda, &here) ? dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    *to = own ? dlsym(own, newer) : NULL;
    if (own && !*to)
        *to = dlsym(own, name);
    bool late = strcmp(name, "cuCheckpointOperationComplete") == 0;
    if (late && (version < 13040 || !sim_here() || sim_driver(sim_here()) < 615))
        *to = NULL;
    if (found)
        *found = *to ? FOUND : late && version < 13040 ? TOO_OLD : NOT_FOUND;
    return *to ? CUDA_OK : CUDA_NOT_FOUND;
}
