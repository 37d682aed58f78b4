/* driver.c: replays a corpus. Every fuzz target is also a test: linked with this main instead of
 * libFuzzer's, it runs once over each file named on the command line, or in each folder named
 * there. Finding no file at all is a failure, so a moved corpus cannot pass unnoticed. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The input sits in a block of exactly its size, so that a sanitizer sees a read past its end. */
static int replay_file(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        exit(1);
    }
    size_t n = (size_t)st.st_size;
    uint8_t *data = malloc(n ? n : 1);
    if (!data || fread(data, 1, n, f) != n) {
        fprintf(stderr, "%s: cannot read\n", path);
        exit(1);
    }
    fclose(f);
    fprintf(stderr, "%s\n", path); /* the last line names the culprit if the next call dies */
    LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 1;
}

static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode))
        return replay_file(path);
    DIR *d = opendir(path);
    if (!d) {
        perror(path);
        exit(1);
    }
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char child[4096];
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            n += replay(child);
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++)
        n += replay(argv[i]);
    printf("%d inputs\n", n);
    return n > 0 ? 0 : 1;
}
