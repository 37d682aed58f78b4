/* faults.h: every allocation of a call failing in turn, jansson's included (json.c routes them
 * through phi_alloc once something has been parsed). */
#ifndef PHI_TESTS_FAULTS_H
#define PHI_TESTS_FAULTS_H

#include "base/alloc.h"
#include "base/status.h"

/* Fails each allocation of `call` in turn: it must report PHI_ERR_MEMORY every time, until it gets
 * through. Returns how many allocations the call makes. */
static inline long for_each_failing_allocation(enum phi_status (*call)(void *context,
                                                                       struct phi_error *err),
                                               void *context)
{
    assert_int_equal(call(context, NULL), PHI_OK); /* routes the allocations */
    for (long nth = 1;; nth++) {
        struct phi_error err = {0};
        phi_alloc_fail_nth(nth);
        enum phi_status status = call(context, &err);
        long n_allocations = phi_alloc_count();
        phi_alloc_fail_nth(0);
        if (n_allocations < nth) {
            assert_int_equal(status, PHI_OK);
            return n_allocations;
        }
        if (status != PHI_ERR_MEMORY || err.code != PHI_ERR_MEMORY)
            fail_msg("allocation %ld failed: status %d, text \"%s\"", nth, status, err.text);
    }
}

#endif
