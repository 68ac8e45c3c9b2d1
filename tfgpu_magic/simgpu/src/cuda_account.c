/* cuda_account.c: the driver's account of this process's device memory: plain memory is charged as it is allocated, and
 * a pool by what it reserves, whether that is in use or not. Source: CUDA Driver API and CUDA Programming Guide,
 * "Stream Ordered Memory Allocator". Real pools reserve memory in larger pieces than these, which are pages. */
#include "cuda.h"

#include <stdlib.h>

static struct cuda_pool *pools;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; /* of all pools */

static uint64_t larger(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* Gives back what the pool reserves above `keep`; not what is in use, nor what is freed by work that may go on. */
static void trim(struct cuda_pool *pool, uint64_t keep)
{
    uint64_t least = larger(keep, pool->used + pool->freed);
    if (pool->reserved > least) {
        sim_discharge(cuda_machine, cuda.device[pool->ordinal], pool->reserved - least);
        pool->reserved = least;
    }
}

/* Where the device is full, takes what is unused in the process's other pools. */
static bool charge(int ordinal, uint64_t bytes, const struct cuda_pool *asking)
{
    if (sim_charge(cuda_machine, cuda.device[ordinal], bytes))
        return true;
    for (struct cuda_pool *pool = pools; pool; pool = pool->next)
        if (pool->ordinal == ordinal && pool != asking)
            trim(pool, 0);
    return sim_charge(cuda_machine, cuda.device[ordinal], bytes);
}

bool cuda_charge(int ordinal, uint64_t bytes)
{
    pthread_mutex_lock(&guard);
    bool fits = charge(ordinal, bytes, NULL);
    pthread_mutex_unlock(&guard);
    return fits;
}

void cuda_discharge(int ordinal, uint64_t bytes)
{
    sim_discharge(cuda_machine, cuda.device[ordinal], bytes);
}

/* --- pools --- */

struct cuda_pool *cuda_pool_make(int ordinal)
{
    struct cuda_pool *pool = malloc(sizeof *pool);
    if (!pool)
        return NULL;
    *pool = (struct cuda_pool){.ordinal = ordinal, .reuse = {1, 1, 1}};
    pthread_mutex_lock(&guard);
    pool->next = pools;
    pools = pool;
    pthread_mutex_unlock(&guard);
    return pool;
}

static void end(struct cuda_pool *pool)
{
    struct cuda_pool **link = &pools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    pool->freed = 0;
    trim(pool, 0);
    free(pool);
}

void cuda_pool_destroy(struct cuda_pool *pool)
{
    pthread_mutex_lock(&guard);
    pool->destroyed = true;
    if (!pool->used)
        end(pool);
    pthread_mutex_unlock(&guard);
}

bool cuda_pool_take(struct cuda_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&guard);
    uint64_t unused = pool->reserved - pool->used; /* freed by work before, so it may be used by work after that */
    uint64_t more = bytes > unused ? bytes - unused : 0;
    bool fits = !more || charge(pool->ordinal, more, pool);
    if (fits) {
        pool->reserved += more;
        pool->used += bytes;
        if (pool->freed > pool->reserved - pool->used)
            pool->freed = pool->reserved - pool->used;
        pool->reserved_high = larger(pool->reserved_high, pool->reserved);
        pool->used_high = larger(pool->used_high, pool->used);
    }
    pthread_mutex_unlock(&guard);
    return fits;
}

void cuda_pool_return(struct cuda_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&guard);
    pool->used -= bytes;
    pool->freed += bytes;
    if (pool->destroyed && !pool->used)
        end(pool);
    pthread_mutex_unlock(&guard);
}

void cuda_pool_trim(struct cuda_pool *pool, uint64_t keep)
{
    pthread_mutex_lock(&guard);
    trim(pool, keep);
    pthread_mutex_unlock(&guard);
}

static void settle(int ordinal, bool empty)
{
    pthread_mutex_lock(&guard);
    for (struct cuda_pool *pool = pools; pool; pool = pool->next)
        if (pool->ordinal == ordinal) {
            pool->freed = 0;
            trim(pool, empty ? 0 : pool->threshold);
        }
    pthread_mutex_unlock(&guard);
}

/* The work of all streams is done at once, so waiting for one of a device is waiting for all of them. */
void cuda_waited(int ordinal) { settle(ordinal, false); }
void cuda_empty_pools(int ordinal) { settle(ordinal, true); }
