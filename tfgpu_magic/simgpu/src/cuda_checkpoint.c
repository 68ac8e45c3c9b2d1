/* cuda_checkpoint.c: the calls by which one process has the device memory of another one moved to the host and back;
 * the other one's restore thread does it. Source: CUDA Driver API, "CUDA Checkpointing". */
#include "cuda.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* on every machine; headers have it since Linux 5.3 */
#endif

struct lock_arguments { unsigned timeout_ms, reserved; uint64_t more[7]; };
struct restore_arguments { const struct cuda_pair *pair; unsigned pairs; char reserved[44]; uint64_t more; };
struct arguments { uint64_t reserved[8]; }; /* of the others */

static bool zeros(const void *at, size_t size)
{
    for (const char *byte = at; at && size--; byte++)
        if (*byte)
            return false;
    return true;
}

static int open_pid(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Waits for the answer, or until the process is dead. */
static int hear(int from, pid_t pid, struct cuda_answer *said)
{
    int process = open_pid(pid);
    struct pollfd either[] = {{.fd = from, .events = POLLIN}, {.fd = process, .events = POLLIN}};
    while (poll(either, 2, -1) < 0 && errno == EINTR)
        ;
    if (process >= 0)
        close(process);
    return recv(from, said, sizeof *said, MSG_DONTWAIT) == sizeof *said ? said->outcome : CUDA_OPERATING_SYSTEM;
}

static int ask(pid_t pid, struct cuda_request request, int *value)
{
    NEED(pid > 0);
    if (sim_driver(cuda_machine) < 570)
        return CUDA_NOT_SUPPORTED;
    uint64_t start = sim_start_time(pid);
    if (!start) /* a zombie is still there */
        return kill(pid, 0) == 0 || errno == EPERM ? CUDA_NOT_INITIALIZED : CUDA_OPERATING_SYSTEM;
    struct cuda_address there = cuda_address(cuda_machine, pid, start);
    int to = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (to < 0)
        return CUDA_OPERATING_SYSTEM;
    int outcome = CUDA_NOT_INITIALIZED; /* nobody hears by that name */
    struct cuda_answer said = {0};
    if (connect(to, (struct sockaddr *)&there.socket, there.length) == 0) {
        send(to, &request, sizeof request, MSG_NOSIGNAL);
        outcome = hear(to, pid, &said);
    }
    close(to);
    if (!outcome && value)
        *value = said.value;
    return outcome;
}

API(cuCheckpointProcessGetState, int pid, int *to)
{
    BEGIN_BESIDE(-1);
    NEED(to);
    return ask(pid, (struct cuda_request){.call = CALL_STATE}, to);
}

API(cuCheckpointProcessGetRestoreThreadId, int pid, int *to)
{
    BEGIN_BESIDE(-1);
    NEED(to);
    return ask(pid, (struct cuda_request){.call = CALL_THREAD}, to);
}

API(cuCheckpointProcessLock, int pid, const struct lock_arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(!arguments || (!arguments->reserved && zeros(arguments->more, sizeof arguments->more)));
    unsigned timeout_ms = arguments ? arguments->timeout_ms : 0;
    return ask(pid, (struct cuda_request){.call = CALL_LOCK, .timeout_ms = timeout_ms}, NULL);
}

API(cuCheckpointProcessCheckpoint, int pid, const struct arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(zeros(arguments, sizeof *arguments));
    return ask(pid, (struct cuda_request){.call = CALL_CHECKPOINT}, NULL);
}

API(cuCheckpointProcessRestore, int pid, const struct restore_arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(!arguments || (zeros(arguments->reserved, sizeof arguments->reserved) && !arguments->more));
    struct cuda_request request = {.call = CALL_RESTORE, .pairs = arguments ? arguments->pairs : 0};
    NEED(!request.pairs || (request.pairs <= CUDA_DEVICES && arguments->pair));
    if (request.pairs)
        memcpy(request.pair, arguments->pair, request.pairs * sizeof *request.pair);
    return ask(pid, request, NULL);
}

API(cuCheckpointProcessUnlock, int pid, const struct arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(zeros(arguments, sizeof *arguments));
    return ask(pid, (struct cuda_request){.call = CALL_UNLOCK}, NULL);
}
