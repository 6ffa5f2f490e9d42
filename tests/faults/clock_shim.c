/* Shifts the wall clock of a process by the seconds that the file named in SHIFT_FILE holds; steady clocks stay.
 *
 * libfaketime 0.9.10 cannot do that for Python 3.11: without faking CLOCK_MONOTONIC it answers EINVAL to every
 * clock_nanosleep, and with it steady clocks jump too, which no real machine does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift_s(void) {
    char text[32] = {0};
    const char *name = getenv("SHIFT_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (!answer && clock == CLOCK_REALTIME) now->tv_sec += shift_s();
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int answer = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return answer;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
