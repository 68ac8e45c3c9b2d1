/* cuda_ask.c: asks another process's restore thread, which `cuda_restore.c` is, and waits for the answer. */
#include "cuda.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* on every machine; headers have it since Linux 5.3 */
#endif

static int open_pid(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Waits for the answer, or until the process is dead. */
int cuda_hear(int from, pid_t pid, struct cuda_answer *said)
{
    int process = open_pid(pid);
    struct pollfd either[] = {{.fd = from, .events = POLLIN}, {.fd = process, .events = POLLIN}};
    while (poll(either, 2, -1) < 0 && errno == EINTR)
        ;
    if (process >= 0)
        close(process);
    return recv(from, said, sizeof *said, MSG_DONTWAIT) == sizeof *said ? said->outcome : CUDA_OPERATING_SYSTEM;
}

int cuda_ask(pid_t pid, const struct cuda_request *request, int *value, int *socket_to)
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
        send(to, request, sizeof *request, MSG_NOSIGNAL);
        outcome = cuda_hear(to, pid, &said);
    }
    if (socket_to && !outcome)
        *socket_to = to;
    else
        close(to);
    if (!outcome && value)
        *value = said.value;
    return outcome;
}
