/* Preloaded into a process: whenever it flushes a file of a database, the file as it is then is copied into the folder
   DURABLE_COPIES. What lies there is what a disk without any luck has after a power cut: nothing that was not flushed.
   A file that is removed is gone at once: file systems put names and sizes into one journal, in order. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int copy_of(const char *path, char copy[PATH_MAX]) {
    const char *folder = getenv("DURABLE_COPIES"), *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (folder == NULL || strstr(name, ".db") == NULL) return 0;
    snprintf(copy, PATH_MAX, "%.2000s/%.200s", folder, name);
    return 1;
}

static void keep(int fd) {
    char link[64], path[PATH_MAX], copy[PATH_MAX], part[PATH_MAX + 8], block[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = 0;
    if (!copy_of(path, copy)) return;
    snprintf(part, sizeof part, "%s.part", copy);
    int out = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0) return;
    off_t at = 0;
    ssize_t got;
    while ((got = pread(fd, block, sizeof block, at)) > 0) {
        if (write(out, block, (size_t)got) != got) abort();
        at += got;
    }
    close(out);
    rename(part, copy);
}

static int flush(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int status = real(fd);
    if (status == 0) keep(fd);
    return status;
}

int fsync(int fd) { return flush("fsync", fd); }

int fdatasync(int fd) { return flush("fdatasync", fd); }

int unlink(const char *path) {
    char copy[PATH_MAX];
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    if (copy_of(path, copy)) real(copy);
    return real(path);
}
