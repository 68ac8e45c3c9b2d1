/* cuda_gate.c: the gate before this process's calls: a checkpoint locks it once those inside have left, and until it is
 * open again all others wait, whatever signals come. */
#include "cuda.h"

#include <time.h>

static enum cuda_gate gate;
static int inside;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread int depth; /* of this thread's calls: a host function that a call runs may call again */

enum cuda_gate cuda_enter(bool waits)
{
    if (depth) {
        depth++;
        return GATE_OPEN;
    }
    pthread_mutex_lock(&guard);
    while (waits && gate != GATE_OPEN)
        pthread_cond_wait(&changed, &guard);
    enum cuda_gate found = gate;
    if (found == GATE_OPEN) {
        inside++;
        depth = 1;
    }
    pthread_mutex_unlock(&guard);
    return found;
}

void cuda_leave(void)
{
    if (--depth)
        return;
    pthread_mutex_lock(&guard);
    if (!--inside && gate != GATE_OPEN)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&guard);
}

bool cuda_lock(unsigned timeout_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += timeout_ms % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&guard);
    gate = GATE_LOCKED; /* before those inside have left, or others would always be */
    int late = 0;
    while (inside && !late)
        late = timeout_ms ? pthread_cond_timedwait(&changed, &guard, &end) : pthread_cond_wait(&changed, &guard);
    bool locked = !inside;
    pthread_mutex_unlock(&guard);
    if (!locked)
        cuda_set_gate(GATE_OPEN);
    return locked;
}

void cuda_set_gate(enum cuda_gate to)
{
    pthread_mutex_lock(&guard);
    gate = to;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&guard);
}
