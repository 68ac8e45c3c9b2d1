/* cuda.h: the part of the CUDA driver's interface that the stand-in implements, and its files' common state. */
#ifndef TFGPU_CUDA_H
#define TFGPU_CUDA_H

#include "machine.h"
#include "standin.h"

#include <sys/socket.h>
#include <sys/un.h>

enum {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_INITIALIZED = 3,
    CUDA_UNAVAILABLE = 46,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_OPERATING_SYSTEM = 304,
    CUDA_ILLEGAL_STATE = 401,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_LAUNCH_FAILED = 719,
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
    int bus[CUDA_DEVICES];          /* the one whose bus id is told: that of cuInit, even after a restore to another */
    int broken;                     /* the error of every call since the contexts died; 0 while they live */
    struct cuda_context primary[CUDA_DEVICES];
};
extern struct cuda_process cuda;
extern struct sim_machine *cuda_machine;
extern __thread CUcontext cuda_current; /* the context that this thread is in; NULL for none */

/* cuda_gate.c: the lock of this process, which its calls pass, and which a checkpoint closes when none is inside. */
enum cuda_gate { GATE_OPEN, GATE_LOCKED, GATE_AWAY };
/* Passes the gate, once it is open if it `waits` for that. Returns what it is: open if it was passed. */
enum cuda_gate cuda_enter(bool waits);
void cuda_leave(void);
/* Locks the gate when all calls have left; returns false, and leaves it open, if they do not in time (0: no limit). */
bool cuda_lock(unsigned timeout_ms);
/* Opens or locks the gate while nobody is inside, or says that the memory is away. */
void cuda_set_gate(enum cuda_gate);

/* Checks a call of `function` on a device (by ordinal; -1: on none), and passes the gate, which `cuda_end` leaves.
 * Returns 0, or the error code to return. */
int cuda_begin(const char *function, int ordinal);
/* The same for calls on the current context, which is stored in `*context`. */
int cuda_begin_current(const char *function, CUcontext *context);
/* The same for calls that do not pass the gate: those on the thread's own state, and those on other processes. */
int cuda_begin_beside(const char *function, int ordinal);
/* The same for waits for a stream or a device, which the driver forgot to lock: while the process is locked they return
 * at once (CUDA_LOCKED), and while its memory is away they crash. */
enum { CUDA_LOCKED = -1 };
int cuda_begin_wait(const char *function, int ordinal);

static inline void cuda_end(const int *begun)
{
    if (*begun == CUDA_OK)
        cuda_leave();
}

/* cuda_device.c: the 16 bytes of a device's UUID. */
void cuda_uuid(unsigned char to[16], const struct sim_device *);

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

/* Tells whether the block is memory of a device, and not of the host. */
static inline bool cuda_on_device(const struct cuda_block *block)
{
    return block->kind <= MEMORY_MAPPED;
}

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

/* cuda_memory.c. Maps memory, and charges it to the process if it is the device's. */
int cuda_allocate(CUdeviceptr *to, size_t size, int ordinal, enum cuda_kind);
int cuda_allocate_from(struct cuda_pool *, CUdeviceptr *to, size_t size);
/* Enters a block that was mapped elsewhere. */
int cuda_remember(struct cuda_block);
/* Finds the block that holds an address, and optionally removes it if it begins there. */
bool cuda_find(CUdeviceptr at, struct cuda_block *found, bool take);
/* Tells whether there is a block of a kind; and makes what lies on devices readable, or unreadable. */
bool cuda_has(enum cuda_kind);
void cuda_show(bool readable);
/* Frees all memory of an ordinal; and the memory, charged to no process, that stands for its modules' globals. */
void cuda_free_all(int ordinal);
int cuda_globals(CUdeviceptr *to, size_t *size, int ordinal);
/* Drops a reference of physical memory, and with the last one the memory; and takes it out of a range of addresses. */
void cuda_release(struct cuda_physical *);
void cuda_unmap(const struct cuda_block *);

/* What another process may ask about this one. */
enum cuda_call { CALL_STATE, CALL_THREAD, CALL_LOCK, CALL_CHECKPOINT, CALL_RESTORE, CALL_UNLOCK, CALL_COMPLETE };
struct cuda_pair { unsigned char from[16], to[16]; }; /* UUIDs of GPUs */
struct cuda_request {
    enum cuda_call call;
    bool custom;            /* of a checkpoint and a restore: the caller copies, and says when it has */
    unsigned timeout_ms;    /* of a lock; 0: none */
    unsigned pairs;         /* of a restore to other GPUs; 0: to its own */
    struct cuda_pair pair[CUDA_DEVICES];
};

/* A range of this process's device memory. */
struct cuda_extent { CUdeviceptr at; size_t size; int device; };
/* cuda_memory.c. Stores the ranges there are, as many as there is room for; returns how many. And empties them all. */
unsigned cuda_extents(struct cuda_extent *, unsigned room);
void cuda_drop(void);

/* cuda_away.c. Moves this locked process's memory to the host, and back. Return 0 or the error; `*fatal` is set when no
 * later call can mend it. Where the caller copies, that is only begun; the others end it, or take it back. */
int cuda_move_out(const struct cuda_request *, bool *fatal);
int cuda_move_back(const struct cuda_request *, bool *fatal);
void cuda_moved_out(void);
void cuda_moved_back(void);
void cuda_not_back(void);
/* Ends the process by a signal after a time, as the driver's own faults do, and a partner with it (0: none). */
void cuda_die(uint64_t after_ns, int number);

/* cuda_restore.c: a thread of this process serves the calls of others about it; it hears by a socket of this name. */
struct cuda_answer { int outcome, value; };
struct cuda_address { socklen_t length; struct sockaddr_un socket; };
struct cuda_address cuda_address(const struct sim_machine *, pid_t, uint64_t start);
bool cuda_serve(void);

/* cuda_ask.c. Asks another process; its socket stays open where it is wanted. And waits for an answer there. */
int cuda_ask(pid_t, const struct cuda_request *, int *value, int *socket);
int cuda_hear(int from, pid_t, struct cuda_answer *);
/* cuda_custom.c: begins a checkpoint or restore whose caller copies. */
int cuda_begin_custom(pid_t, const struct cuda_request *, void **to);

#define ENDS __attribute__((cleanup(cuda_end)))
#define BEGIN(ordinal)                                  \
    ENDS int begun_ = cuda_begin(__func__, ordinal);    \
    if (begun_)                                         \
        return begun_
#define BEGIN_CURRENT(context)                                  \
    CUcontext context = NULL;                                   \
    ENDS int begun_ = cuda_begin_current(__func__, &context);   \
    if (begun_)                                                 \
        return begun_
#define BEGIN_BESIDE(ordinal)                               \
    int begun_ = cuda_begin_beside(__func__, ordinal);      \
    if (begun_)                                             \
        return begun_
#define BEGIN_WAIT(ordinal)                                 \
    ENDS int begun_ = cuda_begin_wait(__func__, ordinal);   \
    if (begun_)                                             \
        return begun_ == CUDA_LOCKED ? CUDA_OK : begun_
#define NEED(condition)                             \
    if (!(condition))                               \
        return CUDA_INVALID_VALUE

#endif
