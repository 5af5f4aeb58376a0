/* A wall clock that a test sets: to be loaded with LD_PRELOAD. KLAMM_CLOCK_FILE holds seconds as text, which are added to
 * the system's real time; the monotonic clock is left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long added(void) {
    static int file = -2;
    char text[32];
    if (file == -2) {
        const char *path = getenv("KLAMM_CLOCK_FILE");
        file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    }
    ssize_t length = file < 0 ? 0 : pread(file, text, sizeof text - 1, 0);
    if (length <= 0) return 0;
    text[length] = 0;
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += added();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to != NULL) *to = now.tv_sec;
    return now.tv_sec;
}
