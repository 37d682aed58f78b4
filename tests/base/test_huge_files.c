/* test_huge_files.c: the exchange of a mapped file's pages, while others read it; its ends. What
 * the kernel and the file system of the temporary folder cannot do is said and not tested. */
#include "base/huge_files.h"
#include "base/clock.h"
#include "base/huge_pages.h"
#include "base/log.h"

#include "../temp_folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

enum { MIB = 1 << 20, FILE_BYTES = 24 * MIB + 12345, WHOLE_BYTES = 24 * MIB };

static struct temp_folder folder;

static uint32_t word_at(size_t i)
{
    return (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 7);
}

/* A file that the page cache holds in small pages: written and put down on the disk in small parts.
 */
static void write_words(const char *path)
{
    uint32_t words[1024];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    for (size_t at = 0; at < FILE_BYTES; at += sizeof words) {
        for (size_t i = 0; i < 1024; i++)
            words[i] = word_at(at / 4 + i);
        size_t n = FILE_BYTES - at < sizeof words ? FILE_BYTES - at : sizeof words;
        assert_int_equal(write(fd, words, n), n);
    }
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void open_file(struct phi_map *map)
{
    const char *path = temp_path(&folder, "weights");
    write_words(path);
    assert_int_equal(phi_map_open(path, map, NULL), PHI_OK);
    assert_int_equal(map->n_bytes, FILE_BYTES);
    assert_int_equal((uintptr_t)map->data % PHI_HUGE_PAGE, 0);
}

static bool is_unchanged(const struct phi_map *map)
{
    for (size_t i = 0; i < FILE_BYTES / 4; i++) {
        uint32_t word = word_at(i);
        if (memcmp(map->data + 4 * i, &word, 4) != 0)
            return false;
    }
    return true;
}

/* What the kernel says of huge pages of files in this process. */
static size_t huge_file_bytes(void)
{
    char line[256];
    size_t kib, sum = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "FilePmdMapped: %zu", &kib) == 1)
            sum += kib * 1024;
    fclose(f);
    return sum;
}

struct reader {
    const struct phi_map *map;
    atomic_bool stop;
    int n_rounds;
    bool unchanged;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    r->unchanged = true;
    do {
        r->unchanged &= is_unchanged(r->map);
        r->n_rounds++;
    } while (!atomic_load(&r->stop));
    return NULL;
}

struct progress {
    uint64_t done, total;
    int n;
};

static void count_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress *p = context;
    assert_true(done > p->done && done <= total);
    *p = (struct progress){done, total, p->n + 1};
}

static void test_exchange(void **state)
{
    (void)state;
    struct phi_map map;
    struct progress progress = {0};
    open_file(&map);
    struct reader reader = {.map = &map};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
    struct phi_huge_files f = {
        .maps = &map, .n_maps = 1, .progress = count_progress, .context = &progress};
    uint64_t huge = phi_huge_files_make(&f);
    atomic_store(&reader.stop, true);
    pthread_join(thread, NULL);
    assert_true(reader.unchanged);
    assert_true(is_unchanged(&map));
    assert_int_equal(phi_huge_files_total(&map, 1), WHOLE_BYTES);
    assert_int_equal(huge, huge_file_bytes());
    if (huge < WHOLE_BYTES)
        print_message("# %d of %d MiB became huge: kernel or file system keep small pages\n",
                      (int)(huge / MIB), WHOLE_BYTES / MIB);
    else
        assert_int_equal(progress.done, WHOLE_BYTES);

    struct phi_map again; /* what the page cache holds now is good for others */
    assert_int_equal(phi_map_open(temp_path(&folder, "weights"), &again, NULL), PHI_OK);
    atomic_bool stop = true;
    struct phi_huge_files second = {.maps = &again, .n_maps = 1, .stop = &stop};
    assert_int_equal(phi_huge_files_make(&second), 0);
    second.stop = NULL;
    assert_true(phi_huge_files_make(&second) >= huge);
    phi_map_close(&again);
    phi_map_close(&map);
}

/* Whatever is refused, the bytes are there, and it ends. */
static void test_refused(void **state)
{
    (void)state;
    static const unsigned calls[] = {PHI_HUGE_RESIDENT,
                                     PHI_HUGE_POPULATE,
                                     PHI_HUGE_SCAN,
                                     PHI_HUGE_COLLAPSE,
                                     PHI_HUGE_COLLAPSE | PHI_HUGE_FILE_SYSTEM,
                                     PHI_HUGE_COLLAPSE | PHI_HUGE_UNMAP,
                                     PHI_HUGE_COLLAPSE | PHI_HUGE_DROP,
                                     PHI_HUGE_ALL_CALLS};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        for (int all = 0; all <= 1; all++) {
            struct phi_map map;
            open_file(&map);
            struct phi_huge_files f = {.maps = &map, .n_maps = 1, .read_all = all};
            phi_huge_refuse(calls[i]);
            uint64_t huge = phi_huge_files_make(&f);
            phi_huge_refuse(0);
            assert_true(huge <= WHOLE_BYTES);
            if (calls[i] & (PHI_HUGE_SCAN | PHI_HUGE_UNMAP | PHI_HUGE_DROP | PHI_HUGE_FILE_SYSTEM))
                assert_int_equal(huge, calls[i] & PHI_HUGE_SCAN ? 0 : huge_file_bytes());
            assert_true(is_unchanged(&map));
            phi_map_close(&map);
        }
}

static void count_lines(void *context, int level, const char *line)
{
    atomic_int *n = context;
    if (level == PHI_LOG_INFO && strstr(line, "weights are on huge pages: "))
        atomic_fetch_add(n, 1);
    else if (level > PHI_LOG_DEBUG)
        fail_msg("unexpected line: %s", line);
}

static void test_thread(void **state)
{
    (void)state;
    struct phi_map map;
    atomic_int n_lines = 0;
    phi_log_set_sink(count_lines, &n_lines);
    open_file(&map);
    double start = phi_clock_s();
    struct phi_huge_thread *t = phi_huge_thread_start(&map, 1, 3600 * 1000);
    assert_non_null(t);
    phi_huge_thread_stop(t); /* before it began */
    assert_true(phi_clock_s() - start < 10);
    for (int delay = 0; delay < 8; delay++) { /* in the middle of it, or at its end */
        t = phi_huge_thread_start(&map, 1, delay);
        assert_non_null(t);
        usleep(4000);
        phi_huge_thread_stop(t);
        assert_true(is_unchanged(&map));
    }
    atomic_store(&n_lines, 0);
    t = phi_huge_thread_start(&map, 1, 1);
    for (int i = 0; i < 3000 && atomic_load(&n_lines) == 0; i++)
        usleep(10000);
    phi_huge_thread_stop(t);
    phi_huge_thread_stop(NULL);
    assert_int_equal(n_lines, 1);
    phi_log_set_sink(NULL, NULL);
    phi_map_close(&map);
}

static void count_read(void *context, uint64_t n_bytes)
{
    *(uint64_t *)context += n_bytes;
}

static void test_read_in(void **state)
{
    (void)state;
    struct phi_map map;
    struct phi_error err;
    uint64_t n_read = 0;
    const char *path = temp_path(&folder, "weights");
    open_file(&map);
    const unsigned char *data = map.data;
    assert_int_equal(phi_map_read_in(&map, path, count_read, &n_read, &err), PHI_OK);
    assert_ptr_equal(map.data, data);
    assert_int_equal(n_read, FILE_BYTES);
    assert_int_equal(truncate(path, 0), 0); /* the file is not needed any more */
    assert_true(is_unchanged(&map));
    phi_map_close(&map);

    open_file(&map);
    assert_int_equal(truncate(path, 5 * MIB), 0);
    assert_int_equal(phi_map_read_in(&map, path, NULL, NULL, &err), PHI_ERR_IO);
    assert_non_null(strstr(err.text, "cut short"));
    assert_int_equal(map.data[4], word_at(1) & 0xFF);
    phi_map_close(&map);
}

static int open_folder(void **state)
{
    (void)state;
    temp_folder_open(&folder);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    temp_folder_close(&folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_thread),
        cmocka_unit_test(test_read_in),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
