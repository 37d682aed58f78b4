/* select.c: which table of kernels this machine runs. */
#include "base/status.h"
#include "kernels/kernels.h"

#include <string.h>

static const struct phi_kernels *const tables[] = {&phi_kernels_ref, NULL};

const struct phi_kernels *const *phi_kernels_all(void)
{
    return tables;
}

unsigned phi_cpu_features(void)
{
    return 0;
}

enum phi_status phi_kernels_select(const char *force, const struct phi_kernels **out,
                                   struct phi_error *err)
{
    unsigned have = phi_cpu_features();
    *out = NULL;
    for (const struct phi_kernels *const *t = tables; *t; t++) {
        bool named = force && strcmp(force, (*t)->name) == 0;
        bool runs = ((*t)->features & ~have) == 0;
        if (named && !runs)
            return phi_fail(err, PHI_ERR_UNSUPPORTED, "PHI_ISA=%s: this processor lacks it", force);
        if (named || (!force && runs))
            *out = *t;
    }
    if (!*out)
        return phi_fail(err, PHI_ERR_INVALID,
                        "PHI_ISA=%s: unknown; one of ref, avx2, avx512, avx512_bf16", force);
    return PHI_OK;
}
