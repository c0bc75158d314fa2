/* A wall clock that is 100 years ahead, as libraries that fake the time preload one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME)
        now->tv_sec += 100L * 365 * 24 * 3600;
    return failed;
}
