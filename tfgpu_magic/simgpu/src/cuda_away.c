/* cuda_away.c: this process's memory goes to the host and comes back: the account, the time that it takes, the host
 * memory that it costs, and what the driver cannot move. Sources: CUDA Driver API, "CUDA Checkpointing"; the issues of
 * NVIDIA/cuda-checkpoint; and VivianSobers/gpunap, validation/FINDINGS.md, on drivers 580 and 595. */
#include "cuda.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 << 20, PAGE = 4096 };
static const uint64_t SECOND_NS = 1000000000, NCCL_HANG_NS = 1400000000;

static uint64_t held[CUDA_DEVICES]; /* by ordinal: what it let go */
static uint64_t total;
static char *copy;                  /* host memory as large as that, where it is to be felt; else NULL */
static bool custom;                 /* what is away is the caller's to keep */
static bool stuck;                  /* a restore found no room: none ever will */

static void sleep_until(struct timespec start, uint64_t ns)
{
    ns += (uint64_t)start.tv_nsec;
    struct timespec end = {start.tv_sec + (time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0)
        ;
}

/* Takes as long as copying everything does, and touches the copy on the way if it is to `fill` it. */
static void move(int setting, bool fill)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t done = 0; done < total;) {
        uint64_t next = total - done < CHUNK ? total : done + CHUNK;
        for (; done < next; done += PAGE)
            if (fill)
                ((volatile char *)copy)[done] = 0;
        done = next;
        uint64_t rate = cuda_machine->setting[setting]; /* it may be changed on the way */
        if (rate)
            sleep_until(start, (uint64_t)((double)done / (double)rate * 1e9));
    }
}

void cuda_die(uint64_t after_ns, int number)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    sleep_until(start, after_ns);
    kill(getpid(), number);
    for (;;)
        pause();
}

static bool any(bool (*is)(struct sim_machine *, int device))
{
    for (int i = 0; i < cuda.count; i++)
        if (is(cuda_machine, cuda.device[i]))
            return true;
    return false;
}

static bool is_instance(struct sim_machine *machine, int device)
{
    return machine->device[device].parent >= 0;
}

static bool is_lost(struct sim_machine *machine, int device)
{
    return sim_lost(machine, device);
}

/* What the driver cannot move: it refuses, or the process dies of it. */
static int refuse(void)
{
    if (atomic_load(&sim_marks) & SIM_NCCL && sim_driver(cuda_machine) >= 595)
        cuda_die(NCCL_HANG_NS, SIGABRT);
    if (any(is_instance))
        return CUDA_NOT_SUPPORTED;
    if (!cuda_has(MEMORY_MANAGED))
        return CUDA_OK;
    if (sim_driver(cuda_machine) >= 595)
        cuda.broken = CUDA_LAUNCH_FAILED;
    return CUDA_NOT_SUPPORTED;
}

int cuda_move_out(const struct cuda_request *request, bool *fatal)
{
    int refused = refuse();
    if (refused)
        return refused;
    if ((*fatal = any(is_lost)))
        return CUDA_UNKNOWN;
    total = 0;
    for (int i = 0; i < cuda.count; i++)
        total += sim_held(cuda_machine, cuda.device[i]);
    custom = request->custom;
    if (!custom && total && cuda_machine->setting[SIM_HOST_MEMORY]) {
        copy = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (copy == MAP_FAILED) {
            copy = NULL;
            return CUDA_OUT_OF_MEMORY;
        }
    }
    if (!custom)
        cuda_moved_out();
    return CUDA_OK;
}

void cuda_moved_out(void)
{
    move(SIM_RATE_OUT, copy != NULL);
    if (custom)
        cuda_drop();
    cuda_show(false);
    for (int i = 0; i < cuda.count; i++)
        held[i] = sim_let_go(cuda_machine, cuda.device[i]);
}

/* Returns the GPU that memory of this one is restored to, or -1: it must be named, and of the same kind. */
static int paired(const struct cuda_request *request, int device)
{
    unsigned char own[16], other[16];
    const struct sim_device *from = &cuda_machine->device[device], *to = cuda_machine->device;
    cuda_uuid(own, from);
    for (unsigned i = 0; i < request->pairs; i++)
        for (int gpu = 0; gpu < cuda_machine->gpus; gpu++) {
            cuda_uuid(other, &to[gpu]);
            bool named = memcmp(request->pair[i].from, own, 16) == 0 && memcmp(request->pair[i].to, other, 16) == 0;
            if (named && from->major == to[gpu].major && from->multiprocessors == to[gpu].multiprocessors)
                return gpu;
        }
    return -1;
}

/* All devices that memory was let go of must be named, or none. */
static int choose(const struct cuda_request *request)
{
    int chosen[CUDA_DEVICES];
    memcpy(chosen, cuda.device, sizeof chosen);
    for (int i = 0; i < cuda.count; i++)
        if (request->pairs && held[i])
            NEED((chosen[i] = paired(request, cuda.device[i])) >= 0);
    memcpy(cuda.device, chosen, sizeof chosen);
    return CUDA_OK;
}

int cuda_move_back(const struct cuda_request *request, bool *fatal)
{
    if (stuck)
        return CUDA_OPERATING_SYSTEM;
    NEED(request->custom == custom); /* inferred */
    int wrong = choose(request);
    if (wrong)
        return wrong;
    if ((*fatal = any(is_lost)))
        return CUDA_UNKNOWN;
    if ((stuck = any(sim_denied))) /* inferred: nobody has told what becomes of it */
        return CUDA_UNAVAILABLE;
    for (int i = 0; i < cuda.count && !stuck; i++)
        stuck = !sim_take_back(cuda_machine, cuda.device[i], held[i]);
    if (stuck) {
        sim_unlist_self(cuda_machine);
        return CUDA_OUT_OF_MEMORY;
    }
    if (custom)
        cuda_show(true);
    else
        cuda_moved_back();
    return CUDA_OK;
}

void cuda_moved_back(void)
{
    move(SIM_RATE_BACK, false);
    if (copy)
        munmap(copy, total);
    copy = NULL;
    cuda_show(true);
}

void cuda_not_back(void)
{
    cuda_drop();
    cuda_show(false);
    for (int i = 0; i < cuda.count; i++)
        sim_let_go(cuda_machine, cuda.device[i]);
}
