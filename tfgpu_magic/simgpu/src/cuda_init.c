/* cuda_init.c: cuInit: which devices this process sees; and its end. */
#include "cuda.h"

#include <unistd.h>

static int start(void)
{
    cuda_machine = sim_here();
    if (!cuda_machine)
        return CUDA_NO_DEVICE;
    int fault = sim_fault_of(cuda_machine, "cuInit", -1);
    if (fault)
        return fault;
    if (atomic_load(&cuda_machine->flags) & SIM_NO_DRIVER)
        return CUDA_NO_DEVICE;
    int count = cuda_visible(cuda_machine, cuda.device);
    if (!count)
        return CUDA_NO_DEVICE;
    for (int i = 0; i < count; i++)
        cuda.primary[i] = (struct cuda_context){.ordinal = i, .primary = true};
    cuda.count = count;
    sim_prune(cuda_machine, true);
    sim_forget_self(cuda_machine);
    cuda.pid = getpid();
    return CUDA_OK;
}

API(cuInit, unsigned flags)
{
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static pid_t tried;
    static int outcome;
    NEED(!flags);
    if (tried && tried != getpid())
        return CUDA_NOT_INITIALIZED; /* forked after cuInit */
    pthread_mutex_lock(&guard);
    if (!tried) {
        outcome = start(); /* once: the first call decides what is visible */
        tried = getpid();
    }
    pthread_mutex_unlock(&guard);
    return outcome;
}

/* A process that ends by itself closes its contexts; one that is killed leaves them to the kernel module. */
static __attribute__((destructor)) void finish(void)
{
    if (cuda.pid == getpid())
        sim_forget_self(cuda_machine);
}
