/* standin.h: how the functions of a stand-in library are written: API(name, arguments) { ... }. */
#ifndef TFGPU_STANDIN_H
#define TFGPU_STANDIN_H

#define EXPORT __attribute__((visibility("default")))
#define API(name, ...) EXPORT int name(__VA_ARGS__)

/* Arguments are there because the real function has them; a stand-in looks at few. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
