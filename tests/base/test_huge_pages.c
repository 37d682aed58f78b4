/* test_huge_pages.c: mappings for huge pages: where they begin, what they hold, what they leave. */
#include "base/alloc.h"
#include "base/huge_pages.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { MIB = 1 << 20 };

/* Mapped address space in bytes, from /proc/self/statm. */
static size_t mapped_bytes(void)
{
    unsigned long n_pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &n_pages), 1);
    fclose(f);
    return n_pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t resident_bytes(const void *p, size_t n_bytes)
{
    static unsigned char pages[64 * MIB / 4096];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (n_bytes + page - 1) / page;
    size_t resident = 0;
    assert_true(n <= sizeof pages);
    assert_int_equal(mincore((void *)(uintptr_t)p, n_bytes, pages), 0);
    for (size_t i = 0; i < n; i++)
        resident += (pages[i] & 1) * page;
    return resident;
}

static void test_pages(void **state)
{
    (void)state;
    static const size_t sizes[] = {1,           4096,        2 * MIB - 1,  2 * MIB,
                                   2 * MIB + 1, 3 * MIB + 7, 32 * MIB - 9, 64 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = sizes[i], before = mapped_bytes();
        unsigned char *p = phi_pages_alloc(n);
        assert_non_null(p);
        assert_true(mapped_bytes() - before < n + 4096 * 2); /* what was reserved is given back */
        if (n >= PHI_HUGE_PAGE)
            assert_int_equal((uintptr_t)p % PHI_HUGE_PAGE, 0);
        assert_int_equal(resident_bytes(p, n), 0); /* costs nothing until it is touched */
        assert_int_equal(p[n / 2], 0);
        p[0] = p[n - 1] = 1;
        assert_in_range(resident_bytes(p, n), 1, 3 * (size_t)PHI_HUGE_PAGE);
        phi_pages_free(p, n);
        assert_true(mapped_bytes() <= before);
    }
}

static void test_refused(void **state)
{
    (void)state;
    size_t before = mapped_bytes();
    assert_null(phi_pages_alloc(0));
    assert_null(phi_pages_alloc(SIZE_MAX));
    assert_null(phi_pages_alloc(SIZE_MAX / 2));
    errno = 0;
    assert_null(phi_huge_map(SIZE_MAX, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1));
    assert_int_equal(errno, ENOMEM);
    assert_null(phi_huge_map(8 * MIB, PROT_READ, MAP_PRIVATE, -1)); /* no such file */
    assert_int_equal(errno, EBADF);
    assert_true(mapped_bytes() <= before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("huge_pages", tests, NULL, NULL);
}
