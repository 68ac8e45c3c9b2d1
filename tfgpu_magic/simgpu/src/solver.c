/* solver.c: the stand-in for libcusolver.so.11: handles, and factorisations that need no room and factor nothing.
 * TensorFlow ends the process when it cannot have a handle. */
#include "launch.h"

#include <stddef.h>

static int handle;

API(cusolverDnCreate, void **to) { *to = &handle; return 0; }
API(cusolverGetProperty, int which, int *to) { *to = which == 0 ? 11 : which == 1 ? 7 : 0; return 0; }
API(cusolverGetVersion, int *to) { *to = 11700; return 0; }

#define DOES_NOTHING(name) API(name, void) { return 0; }
DOES_NOTHING(cusolverDnDestroy)
DOES_NOTHING(cusolverDnSetStream)
DOES_NOTHING(cusolverDnSetDeterministicMode)

/* A call's workspace is returned in its last argument, after so many others. */
#define GIVES_4(name) API(name, void *h, int m, int n, int *to) { *to = 1; return 0; }
#define GIVES_6(name) API(name, void *h, int m, int n, void *a, int lda, int *to) { *to = 1; return 0; }
#define GIVES_8(name) API(name, void *h, int m, int n, int k, void *a, int lda, void *t, int *to) { *to = 1; return 0; }
#define GIVES_12(name)                                                                                               \
    API(name, void *h, int side, int op, int m, int n, int k, void *a, int lda, void *tau, void *c, int ldc, int *to) \
    {                                                                                                                \
        *to = 1;                                                                                                     \
        return 0;                                                                                                    \
    }

#define WITH_ROOM(gives, name)      \
    gives(name##_bufferSize)        \
    LAUNCHES(name)
#define OF_ALL_TYPES(T, symmetric, orthogonal)                      \
    WITH_ROOM(GIVES_6, cusolverDn##T##potrf)                        \
    WITH_ROOM(GIVES_6, cusolverDn##T##getrf)                        \
    WITH_ROOM(GIVES_6, cusolverDn##T##geqrf)                        \
    WITH_ROOM(GIVES_4, cusolverDn##T##gesvd)                        \
    WITH_ROOM(GIVES_8, cusolverDn##T##symmetric##evd)           \
    WITH_ROOM(GIVES_8, cusolverDn##T##orthogonal##gqr)              \
    WITH_ROOM(GIVES_12, cusolverDn##T##orthogonal##mqr)             \
    LAUNCHES(cusolverDn##T##getrs)                                  \
    LAUNCHES(cusolverDn##T##potrs)                                  \
    LAUNCHES(cusolverDn##T##potrfBatched)                           \
    LAUNCHES(cusolverDn##T##potrsBatched)

OF_ALL_TYPES(S, sy, or)
OF_ALL_TYPES(D, sy, or)
OF_ALL_TYPES(C, he, un)
OF_ALL_TYPES(Z, he, un)
