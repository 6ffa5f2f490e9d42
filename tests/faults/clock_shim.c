/* Shifts the wall clock of a process by the seconds in the file that SHIFT_FILE names; steady clocks stay.
 *
 * It also shifts waits until a time of the wall clock, which all of librdkafka's waits are. The kernel does not know
 * the shift, so a deadline by a clock that is behind would end at once. On a machine whose clock is set, a wait follows
 * the clock while it lasts; here the wait is cut into slices, without waking the caller between them.
 *
 * libfaketime 0.9.10 does not work with Python 3.11: without faking CLOCK_MONOTONIC it answers EINVAL to every
 * clock_nanosleep, and with it steady clocks jump too, unlike on any real machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
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

static int real_clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock, now);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int answer = real_clock_gettime(clock, now);
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

#define SLICE_NS 50000000L
#define A_WALL_CLOCK_S 1000000000L /* steady clocks count from the start of the machine, and are far below */

static int is_before(const struct timespec *one, const struct timespec *two) {
    return one->tv_sec != two->tv_sec ? one->tv_sec < two->tv_sec : one->tv_nsec < two->tv_nsec;
}

/* Convert a deadline from the shifted clock to the real clock. Return whether it lies within the next slice. */
static int real_deadline(const struct timespec *wanted, struct timespec *until) {
    struct timespec slice;
    real_clock_gettime(CLOCK_REALTIME, &slice);
    slice.tv_nsec += SLICE_NS;
    if (slice.tv_nsec >= 1000000000L) {
        slice.tv_sec += 1;
        slice.tv_nsec -= 1000000000L;
    }
    *until = *wanted;
    until->tv_sec -= shift_s();
    int is_last = is_before(until, &slice);
    if (!is_last) *until = slice;
    return is_last;
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict wanted) {
    static int (*real)(cnd_t *, mtx_t *, const struct timespec *);
    if (!real) real = (int (*)(cnd_t *, mtx_t *, const struct timespec *))dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec until;
    int is_last = real_deadline(wanted, &until);
    int answer = real(condition, mutex, &until);
    return answer == thrd_timedout && !is_last ? thrd_success : answer;
}

int pthread_cond_timedwait(
    pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, const struct timespec *restrict wanted) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real)
        real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))dlsym(
            RTLD_NEXT, "pthread_cond_timedwait");
    if (wanted->tv_sec < A_WALL_CLOCK_S) return real(condition, mutex, wanted);
    struct timespec until;
    int is_last = real_deadline(wanted, &until);
    int answer = real(condition, mutex, &until);
    return answer == ETIMEDOUT && !is_last ? 0 : answer;
}
