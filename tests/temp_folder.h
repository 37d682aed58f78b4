/* temp_folder.h: a folder of its own for each test that writes files. */
#ifndef PHI_TESTS_TEMP_FOLDER_H
#define PHI_TESTS_TEMP_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct temp_folder {
    char path[256];
    char scratch[512]; /* the last path that temp_path made */
};

static inline void temp_folder_open(struct temp_folder *t)
{
    const char *base = getenv("TMPDIR");
    snprintf(t->path, sizeof t->path, "%.200s/phi-test-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(t->path)) {
        perror(t->path);
        abort();
    }
}

/* "folder/name"; valid until the next call. */
static inline const char *temp_path(struct temp_folder *t, const char *name)
{
    snprintf(t->scratch, sizeof t->scratch, "%s/%s", t->path, name);
    return t->scratch;
}

static inline void temp_write(struct temp_folder *t, const char *name, const void *data, size_t n)
{
    FILE *f = fopen(temp_path(t, name), "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(t->scratch);
        abort();
    }
}

/* Removes the folder and the files in it (there are no deeper folders). */
static inline void temp_folder_close(struct temp_folder *t)
{
    DIR *d = opendir(t->path);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *path = temp_path(t, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(path) != 0)
            rmdir(path);
    }
    if (d)
        closedir(d);
    rmdir(t->path);
}

#endif
