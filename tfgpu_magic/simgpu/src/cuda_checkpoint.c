/* cuda_checkpoint.c: the calls by which one process has the device memory of another one moved to the host and back;
 * the other one's restore thread does it. Source: CUDA Driver API, "CUDA Checkpointing". */
#include "cuda.h"

#include <string.h>

struct lock_arguments { unsigned timeout_ms, reserved; uint64_t more[7]; };
struct restore_arguments { const struct cuda_pair *pair; unsigned pairs, padding; void **custom; uint64_t reserved[5]; };
struct checkpoint_arguments { void **custom; uint64_t reserved[7]; };
struct arguments { uint64_t reserved[8]; }; /* of an unlock */

static bool zeros(const void *at, size_t size)
{
    for (const char *byte = at; at && size--; byte++)
        if (*byte)
            return false;
    return true;
}

static int ask(pid_t pid, struct cuda_request request, int *value)
{
    return cuda_ask(pid, &request, value, NULL);
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

API(cuCheckpointProcessCheckpoint, int pid, const struct checkpoint_arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(!arguments || zeros(arguments->reserved, sizeof arguments->reserved));
    struct cuda_request request = {.call = CALL_CHECKPOINT, .custom = arguments && arguments->custom};
    return request.custom ? cuda_begin_custom(pid, &request, arguments->custom) : ask(pid, request, NULL);
}

API(cuCheckpointProcessRestore, int pid, const struct restore_arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(!arguments || (zeros(arguments->reserved, sizeof arguments->reserved) && !arguments->padding));
    struct cuda_request request = {.call = CALL_RESTORE, .custom = arguments && arguments->custom};
    request.pairs = arguments ? arguments->pairs : 0;
    NEED(!request.pairs || (request.pairs <= CUDA_DEVICES && arguments->pair));
    if (request.pairs)
        memcpy(request.pair, arguments->pair, request.pairs * sizeof *request.pair);
    return request.custom ? cuda_begin_custom(pid, &request, arguments->custom) : ask(pid, request, NULL);
}

API(cuCheckpointProcessUnlock, int pid, const struct arguments *arguments)
{
    BEGIN_BESIDE(-1);
    NEED(zeros(arguments, sizeof *arguments));
    return ask(pid, (struct cuda_request){.call = CALL_UNLOCK}, NULL);
}
