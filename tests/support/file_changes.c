/* Records every change that a process makes to the files below a folder, for tests of power cuts.
 *
 * To be loaded with LD_PRELOAD. KLAMM_CHANGES_OF is the folder, KLAMM_CHANGES_TO the file of changes, which is appended to
 * (a restarted node continues it). KLAMM_CHANGES_SYNC_US delays every sync, so that many changes are pending.
 * rust/log/examples/power_cut.rs reads the file.
 *
 * A change and its record are made under one lock, so that the records are in order, and under a lock of the file of
 * changes, which a test holds when it kills the process, so that every change is recorded. A sync runs without the locks,
 * and its record says how long the file was when it began: it makes no later change durable. Inodes identify files.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, SET_LEN, SYNC, SYNC_ALL, RENAME, REMOVE, CREATE_DIR, SYNC_DIR };

struct head {
    uint32_t kind, path_bytes, data_bytes, zero;
    uint64_t begun, id, position;
};

#define DESCRIPTORS_MAX 65536

static char root[PATH_MAX];
static int changes = -1;
static useconds_t sync_us;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char is_ours[DESCRIPTORS_MAX];

static void give_up(const char *what) {
    fprintf(stderr, "file_changes: %s: %s\n", what, strerror(errno));
    _exit(99);
}

#define REAL(name, ...)                                                                                                \
    ({                                                                                                                 \
        static __typeof__(&name) real;                                                                                 \
        if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name);                                                   \
        real(__VA_ARGS__);                                                                                             \
    })

__attribute__((constructor)) static void begin(void) {
    const char *of = getenv("KLAMM_CHANGES_OF"), *to = getenv("KLAMM_CHANGES_TO"), *us = getenv("KLAMM_CHANGES_SYNC_US");
    if (of == NULL || to == NULL) return;
    snprintf(root, sizeof root, "%s", of);
    sync_us = us == NULL ? 0 : (useconds_t)atoi(us);
    changes = REAL(open, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (changes < 0) give_up("cannot open KLAMM_CHANGES_TO");
}

static uint64_t recorded(void) {
    struct stat stat;
    if (fstat(changes, &stat) != 0) give_up("fstat");
    return (uint64_t)stat.st_size;
}

static void enter(void) {
    pthread_mutex_lock(&lock);
    while (flock(changes, LOCK_EX) != 0)
        if (errno != EINTR) give_up("flock");
}

static void leave(void) {
    int before = errno;
    if (flock(changes, LOCK_UN) != 0) give_up("flock");
    pthread_mutex_unlock(&lock);
    errno = before;
}

/* Under the lock. */
static void record(enum kind kind, uint64_t begun, uint64_t id, uint64_t position, const char *path, const void *data,
                   size_t bytes) {
    int before = errno;
    struct head head = {kind, path ? (uint32_t)strlen(path) : 0, (uint32_t)bytes, 0, begun, id, position};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path_bytes}, {(void *)data, bytes}};
    ssize_t want = (ssize_t)(sizeof head + head.path_bytes + bytes);
    if (REAL(writev, changes, parts, 3) != want) give_up("cannot record");
    errno = before;
}

/* The absolute path, and whether it lies below the folder. */
static int resolve(int dir, const char *path, char *full) {
    char base[PATH_MAX] = "";
    if (changes < 0) return 0;
    if (path[0] != '/') {
        char link[64];
        ssize_t len = -1;
        snprintf(link, sizeof link, dir == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir);
        len = readlink(link, base, sizeof base - 2);
        if (len < 0) return 0;
        base[len] = '/';
        base[len + 1] = 0;
    }
    if (snprintf(full, PATH_MAX, "%s%s", base, path) >= PATH_MAX) return 0;
    for (size_t len = strlen(full); len > 1 && full[len - 1] == '/'; len--) full[len - 1] = 0;
    size_t len = strlen(root);
    return strncmp(full, root, len) == 0 && (full[len] == '/' || full[len] == 0);
}

static int is_kept(int fd) {
    return changes >= 0 && fd >= 0 && fd < DESCRIPTORS_MAX && is_ours[fd];
}

static uint64_t inode(int fd, int *is_dir) {
    struct stat stat;
    if (fstat(fd, &stat) != 0) give_up("fstat");
    if (is_dir != NULL) *is_dir = S_ISDIR(stat.st_mode);
    return (uint64_t)stat.st_ino;
}

static int opened(int dir, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    int is_inside = resolve(dir, path, full);
    if (!is_inside) return REAL(openat, dir, path, flags, mode);
    enter();
    int fd = REAL(openat, dir, path, flags, mode);
    if (fd >= DESCRIPTORS_MAX) give_up("too many descriptors");
    if (fd >= 0) {
        int is_dir = 0;
        uint64_t id = inode(fd, &is_dir);
        is_ours[fd] = 1;
        /* Also for a file that existed: it may be older than the record. */
        if (!is_dir) record(CREATE, 0, id, 0, full, NULL, 0);
        if (flags & O_TRUNC) record(SET_LEN, 0, inode(fd, NULL), 0, NULL, NULL, 0);
    }
    leave();
    return fd;
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & O_CREAT ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opened(AT_FDCWD, path, flags, mode);                                                                    \
    }
#define OPENAT(name)                                                                                                   \
    int name(int dir, const char *path, int flags, ...) {                                                              \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return opened(dir, path, flags, mode);                                                                         \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS_MAX) is_ours[fd] = 0;
    return REAL(close, fd);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    if (!is_kept(fd)) return REAL(write, fd, data, bytes);
    enter();
    ssize_t done = REAL(write, fd, data, bytes);
    if (done > 0) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        record(WRITE, 0, inode(fd, NULL), (uint64_t)(end - done), NULL, data, (size_t)done);
    }
    leave();
    return done;
}

static ssize_t written_at(int fd, const struct iovec *parts, int count, off_t position) {
    enter();
    ssize_t done = REAL(pwritev64, fd, parts, count, position);
    uint64_t id = inode(fd, NULL), left = done > 0 ? (uint64_t)done : 0, at = (uint64_t)position;
    for (int part = 0; left > 0; part++) {
        size_t bytes = parts[part].iov_len < left ? parts[part].iov_len : left;
        record(WRITE, 0, id, at, NULL, parts[part].iov_base, bytes);
        at += bytes;
        left -= bytes;
    }
    leave();
    return done;
}

#define PWRITE(name)                                                                                                   \
    ssize_t name(int fd, const void *data, size_t bytes, off_t position) {                                             \
        struct iovec part = {(void *)data, bytes};                                                                     \
        return is_kept(fd) ? written_at(fd, &part, 1, position) : REAL(name, fd, data, bytes, position);               \
    }
#define PWRITEV(name)                                                                                                  \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t position) {                                       \
        return is_kept(fd) ? written_at(fd, parts, count, position) : REAL(name, fd, parts, count, position);          \
    }
PWRITE(pwrite)
PWRITE(pwrite64)
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define SET_LEN_OF(name)                                                                                               \
    int name(int fd, off_t len) {                                                                                      \
        if (!is_kept(fd)) return REAL(name, fd, len);                                                                  \
        enter();                                                                                                       \
        int done = REAL(name, fd, len);                                                                                \
        if (done == 0) record(SET_LEN, 0, inode(fd, NULL), (uint64_t)len, NULL, NULL, 0);                              \
        leave();                                                                                                       \
        return done;                                                                                                   \
    }
SET_LEN_OF(ftruncate)
SET_LEN_OF(ftruncate64)

static void synced(int fd, uint64_t begun) {
    char link[64], path[PATH_MAX];
    int is_dir = 0;
    uint64_t id = inode(fd, &is_dir);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) give_up("readlink");
    path[len] = 0;
    enter();
    record(is_dir ? SYNC_DIR : SYNC, begun, id, 0, is_dir ? path : NULL, NULL, 0);
    leave();
}

static uint64_t begin_sync(void) {
    enter();
    uint64_t begun = recorded();
    leave();
    if (sync_us > 0) usleep(sync_us);
    return begun;
}

#define SYNC_OF(name)                                                                                                  \
    int name(int fd) {                                                                                                 \
        if (!is_kept(fd)) return REAL(name, fd);                                                                       \
        uint64_t begun = begin_sync();                                                                                 \
        int done = REAL(name, fd);                                                                                     \
        if (done == 0) synced(fd, begun);                                                                              \
        return done;                                                                                                   \
    }
SYNC_OF(fsync)
SYNC_OF(fdatasync)

int syncfs(int fd) {
    if (!is_kept(fd)) return REAL(syncfs, fd);
    uint64_t begun = begin_sync();
    int done = REAL(syncfs, fd);
    enter();
    if (done == 0) record(SYNC_ALL, begun, 0, 0, NULL, NULL, 0);
    leave();
    return done;
}

static int renamed(int from_dir, const char *from, int to_dir, const char *to) {
    char full_from[PATH_MAX], full_to[PATH_MAX];
    int is_inside = resolve(from_dir, from, full_from);
    if (resolve(to_dir, to, full_to) != is_inside) {
        errno = EXDEV;
        give_up("renamed across the folder's border");
    }
    if (!is_inside) return REAL(renameat, from_dir, from, to_dir, to);
    enter();
    int done = REAL(renameat, from_dir, from, to_dir, to);
    if (done == 0) record(RENAME, 0, 0, 0, full_from, full_to, strlen(full_to));
    leave();
    return done;
}

int rename(const char *from, const char *to) {
    return renamed(AT_FDCWD, from, AT_FDCWD, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return renamed(from_dir, from, to_dir, to);
}

static int removed(int dir, const char *path, int flags) {
    char full[PATH_MAX];
    if (!resolve(dir, path, full)) return REAL(unlinkat, dir, path, flags);
    enter();
    int done = REAL(unlinkat, dir, path, flags);
    if (done == 0) record(REMOVE, 0, 0, 0, full, NULL, 0);
    leave();
    return done;
}

int unlink(const char *path) {
    return removed(AT_FDCWD, path, 0);
}

int unlinkat(int dir, const char *path, int flags) {
    return removed(dir, path, flags);
}

int rmdir(const char *path) {
    return removed(AT_FDCWD, path, AT_REMOVEDIR);
}

static int made_dir(int dir, const char *path, mode_t mode) {
    char full[PATH_MAX];
    if (!resolve(dir, path, full)) return REAL(mkdirat, dir, path, mode);
    enter();
    int done = REAL(mkdirat, dir, path, mode);
    if (done == 0) record(CREATE_DIR, 0, 0, 0, full, NULL, 0);
    leave();
    return done;
}

int mkdir(const char *path, mode_t mode) {
    return made_dir(AT_FDCWD, path, mode);
}

int mkdirat(int dir, const char *path, mode_t mode) {
    return made_dir(dir, path, mode);
}

/* Calls that cannot be recorded must fail. */
static void refuse(const char *what, int fd) {
    if (is_kept(fd)) {
        errno = ENOSYS;
        give_up(what);
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    refuse("writev", fd);
    return REAL(writev, fd, parts, count);
}

int fallocate64(int fd, int mode, off_t position, off_t len) {
    refuse("fallocate64", fd);
    return REAL(fallocate64, fd, mode, position, len);
}

int posix_fallocate64(int fd, off_t position, off_t len) {
    refuse("posix_fallocate64", fd);
    return REAL(posix_fallocate64, fd, position, len);
}
