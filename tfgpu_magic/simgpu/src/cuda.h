/* cuda.h: the part of the CUDA driver's interface that the stand-in implements, and its files' common state. */
#ifndef TFGPU_CUDA_H
#define TFGPU_CUDA_H

#include "machine.h"
#include "standin.h"

enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_UNAVAILABLE = 46,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_UNKNOWN = 999,
};

enum { CUDA_DEVICES = SIM_GPUS };

struct cuda_context {
    int ordinal;        /* CUDA's number of the device */
    bool primary;
    int retains;        /* of a primary context; 0 is inactive */
    unsigned flags;
};
typedef struct cuda_context *CUcontext;

typedef uint64_t CUdeviceptr;
typedef struct cuda_stream *CUstream;
typedef struct cuda_event *CUevent;

/* This process's CUDA state: empty before cuInit, and in its forked children. */
struct cuda_process {
    pid_t pid;                      /* the process that called cuInit; 0 before */
    int count;
    int device[CUDA_DEVICES];       /* by ordinal: the machine's device */
    struct cuda_context primary[CUDA_DEVICES];
};
extern struct cuda_process cuda;
extern struct sim_machine *cuda_machine;
extern __thread CUcontext cuda_current; /* the context that this thread is in; NULL for none */

/* Checks a call of `function` on a device (by ordinal; -1: on none). Returns 0, or the error code to return. */
int cuda_begin(const char *function, int ordinal);
/* The same for calls on the current context, which is stored in `*context`. */
int cuda_begin_current(const char *function, CUcontext *context);

/* Records that a kernel is launched in a context, which is all that launching does. Returns CUDA_OK. */
int cuda_launched(CUcontext);

/* cuda_visible.c: the machine's devices that this process sees, in CUDA's order. Returns how many. */
int cuda_visible(const struct sim_machine *, int device[CUDA_DEVICES]);

/* Physical memory of virtual memory management, which is mapped to ranges of addresses. */
struct cuda_physical {
    size_t size;
    int ordinal;
    atomic_int references; /* its handle, and its mappings */
};

/* A memory pool: what it reserves is charged to the process, whether that is in use or not. */
struct cuda_pool {
    int ordinal;
    bool destroyed;                         /* it ends with its last allocation */
    int reuse[3];                           /* stored, and nothing follows from it: no work ever has to wait */
    uint64_t threshold;                     /* what it keeps reserved when a wait finds more */
    uint64_t reserved, used;
    uint64_t freed;                         /* of what is not in use: by work that nobody has waited for yet */
    uint64_t reserved_high, used_high;
    struct cuda_pool *next;
};

/* A range of addresses that this process was given. */
enum cuda_kind {
    MEMORY_DEVICE, MEMORY_MANAGED, MEMORY_GLOBALS, MEMORY_MAPPED,
    MEMORY_HOST, MEMORY_REGISTERED,
};
struct cuda_block {
    CUdeviceptr at;
    size_t size;
    int ordinal;
    enum cuda_kind kind;
    uint64_t id;
    struct cuda_physical *physical; /* what is mapped there */
    struct cuda_pool *pool;         /* where it comes from; NULL is plain memory */
};

/* cuda_account.c: the driver's account of this process. Returns false when the device is full. */
bool cuda_charge(int ordinal, uint64_t bytes);
void cuda_discharge(int ordinal, uint64_t bytes);
/* Makes a pool that has nothing; ends one, with its last allocation if there are any. */
struct cuda_pool *cuda_pool_make(int ordinal);
void cuda_pool_destroy(struct cuda_pool *);
/* Takes a pool's memory into use, and the device's where that is too little; returns it; gives back what is unused. */
bool cuda_pool_take(struct cuda_pool *, uint64_t bytes);
void cuda_pool_return(struct cuda_pool *, uint64_t bytes);
void cuda_pool_trim(struct cuda_pool *, uint64_t keep);
/* Somebody has waited for the work of a device: pools know what is free, and give back what passes their threshold. */
void cuda_waited(int ordinal);
/* The device's context ends: pools reserve nothing that is not in use. */
void cuda_empty_pools(int ordinal);

/* cuda_memory.c. Maps memory of a pool. */
int cuda_allocate_from(struct cuda_pool *, CUdeviceptr *to, size_t size);
/* Enters a block that was mapped elsewhere. */
int cuda_remember(struct cuda_block);
/* Finds the block that holds an address, and optionally removes it if it begins there. */
bool cuda_find(CUdeviceptr at, struct cuda_block *found, bool take);
/* Frees all memory of an ordinal; and the memory, charged to no process, that stands for its modules' globals. */
void cuda_free_all(int ordinal);
int cuda_globals(CUdeviceptr *to, size_t *size, int ordinal);
/* Drops a reference of physical memory, and with the last one the memory; and takes it out of a range of addresses. */
void cuda_release(struct cuda_physical *);
void cuda_unmap(const struct cuda_block *);

#define BEGIN(ordinal)                              \
    int begun_ = cuda_begin(__func__, ordinal);     \
    if (begun_)                                     \
        return begun_
#define BEGIN_CURRENT(context)                              \
    CUcontext context = NULL;                               \
    int begun_ = cuda_begin_current(__func__, &context);    \
    if (begun_)                                             \
        return begun_
#define NEED(condition)                             \
    if (!(condition))                               \
        return CUDA_INVALID_VALUE

#endif
