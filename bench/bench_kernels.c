/* bench_kernels.c: kernel_bench.h as a program, for work on kernels:
 *
 *     bench_kernels [FILTER [N_THREADS]] */
#include "kernel_bench.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct phi_error err;
    const struct phi_kernel_bench o = {.filter = argc > 1 ? argv[1] : NULL,
                                       .n_threads = argc > 2 ? atoi(argv[2]) : 0};
    if (phi_bench_kernels(&o, &err) == PHI_OK)
        return 0;
    fprintf(stderr, "bench_kernels: %s\n", err.text);
    return 1;
}
