/* launch.h: how the functions of a library that would launch kernels are written: LAUNCHES(name). Nothing is computed,
 * and the driver is told of a launch. */
#ifndef TFGPU_LAUNCH_H
#define TFGPU_LAUNCH_H

#include "standin.h"

extern int cuLaunchKernel(void *function);

#define LAUNCHES(name) API(name, void) { cuLaunchKernel(0); return 0; }

#endif
