/* cuda_restore.c: the restore thread of this process: it serves the calls that others make about it, one at a time. So
 * whoever asks meanwhile waits, and so does everybody while the process is stopped; and what it has begun it completes,
 * whether or not the caller is still there. */
#include "cuda.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the thread says that the process is, by CUprocessState. */
static enum { RUNNING, LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING } state;
static int copying = -1; /* the caller who copies, in the last two */

struct cuda_address cuda_address(const struct sim_machine *machine, pid_t pid, uint64_t start)
{
    /* The first byte of the name stays 0: such a socket is in no folder, and goes with its process. */
    struct cuda_address to = {.socket.sun_family = AF_UNIX};
    int length = snprintf(to.socket.sun_path + 1, sizeof to.socket.sun_path - 1, "tfgpusim/%llx/%d/%llu",
                          (unsigned long long)machine->id, (int)pid, (unsigned long long)start);
    to.length = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)length;
    return to;
}

/* --- the calls --- */

static int lock(unsigned timeout_ms)
{
    if (state != RUNNING)
        return CUDA_ILLEGAL_STATE;
    if (atomic_load(&sim_marks) & SIM_NVML_LEFT && sim_driver(cuda_machine) >= 610)
        cuda_die(0, SIGSEGV); /* NVIDIA/cuda-checkpoint#58 */
    if (!cuda_lock(timeout_ms))
        return CUDA_NOT_READY;
    state = LOCKED;
    return CUDA_OK;
}

static int unlock(void)
{
    if (state != LOCKED)
        return CUDA_ILLEGAL_STATE;
    state = RUNNING;
    cuda_set_gate(GATE_OPEN);
    return CUDA_OK;
}

typedef int (*cuda_way)(const struct cuda_request *, bool *fatal);

/* What fails leaves the state as it was, unless it is fatal. */
static int move(const struct cuda_request *request, int from, cuda_way way, int to)
{
    if ((int)state != from)
        return CUDA_ILLEGAL_STATE;
    bool fatal = false;
    int outcome = way(request, &fatal);
    if (fatal)
        state = FAILED;
    if (outcome)
        return outcome;
    state = !request->custom ? to : to == CHECKPOINTED ? CHECKPOINTING : RESTORING;
    if (request->custom)
        return CUDA_OK;
    cuda_set_gate(to == CHECKPOINTED ? GATE_AWAY : GATE_LOCKED);
    return CUDA_OK;
}

/* The caller has copied all, or has ended: then it is as before, by what can be inferred. */
static int complete(bool copied)
{
    bool out = state == CHECKPOINTING;
    if (out && copied)
        cuda_moved_out();
    if (!out)
        (copied ? cuda_moved_back : cuda_not_back)();
    state = out == copied ? CHECKPOINTED : LOCKED;
    cuda_set_gate(state == CHECKPOINTED ? GATE_AWAY : GATE_LOCKED);
    return CUDA_OK;
}

static struct cuda_answer answer(const struct cuda_request *request)
{
    switch (request->call) {
    case CALL_STATE: return (struct cuda_answer){CUDA_OK, (int)state};
    case CALL_THREAD: return (struct cuda_answer){CUDA_OK, (int)syscall(SYS_gettid)};
    case CALL_LOCK: return (struct cuda_answer){.outcome = lock(request->timeout_ms)};
    case CALL_CHECKPOINT: return (struct cuda_answer){.outcome = move(request, LOCKED, cuda_move_out, CHECKPOINTED)};
    case CALL_RESTORE: return (struct cuda_answer){.outcome = move(request, CHECKPOINTED, cuda_move_back, LOCKED)};
    case CALL_UNLOCK: return (struct cuda_answer){.outcome = unlock()};
    case CALL_COMPLETE: break; /* which only the one who copies may say */
    }
    return (struct cuda_answer){.outcome = CUDA_INVALID_VALUE};
}

/* --- the thread --- */

/* Only the process's own user, and root, may ask. */
static bool may(int caller)
{
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(caller, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && (!who.uid || who.uid == geteuid());
}

/* What was asked for while the process was stopped, by a caller who gave up, is not done. */
static bool gone(int caller)
{
    struct pollfd about = {.fd = caller};
    return poll(&about, 1, 0) != 0; /* a hang-up is told without being asked for */
}

/* Hears from the caller who copies. */
static void hear(void)
{
    struct cuda_request request;
    bool copied = recv(copying, &request, sizeof request, 0) == sizeof request && request.call == CALL_COMPLETE;
    struct cuda_answer said = {.outcome = complete(copied)};
    send(copying, &said, sizeof said, MSG_NOSIGNAL);
    close(copying);
    copying = -1;
}

static void *serve(void *listener)
{
    static struct cuda_extent extents[4096];
    for (;;) {
        struct pollfd either[] = {{.fd = copying, .events = POLLIN}, {.fd = (int)(intptr_t)listener, .events = POLLIN}};
        if (poll(either, 2, -1) > 0 && either[0].revents)
            hear();
        if (!(either[1].revents & POLLIN))
            continue;
        int caller = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC);
        struct cuda_request request;
        if (caller < 0)
            usleep(10000);
        else if (recv(caller, &request, sizeof request, 0) == sizeof request && !gone(caller)) {
            struct cuda_answer said = {.outcome = CUDA_OPERATING_SYSTEM};
            if (may(caller))
                said = answer(&request);
            send(caller, &said, sizeof said, MSG_NOSIGNAL);
            if (request.custom && !said.outcome) {
                send(caller, extents, cuda_extents(extents, 4096) * sizeof *extents, MSG_NOSIGNAL);
                copying = caller;
                continue;
            }
        }
        if (caller >= 0)
            close(caller);
    }
    return NULL;
}

bool cuda_serve(void)
{
    struct cuda_address own = cuda_address(cuda_machine, getpid(), sim_start_time(getpid()));
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&own.socket, own.length) || listen(listener, 64))
        return false;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    pthread_t thread;
    bool served = pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (served)
        pthread_setname_np(thread, "cuda-restore");
    return served;
}
