/* arrivals.c: when requests are due (declared in load.h). */
#include "base/rng.h"
#include "cli/bench/load.h"

#include <math.h>

/* Random numbers of one kind, in a row. */
struct draws {
    uint64_t key, index;
};

static double uniform(struct draws *d)
{
    return phi_random_unit(phi_random_u64(d->key, 4, d->index++));
}

static double normal(struct draws *d)
{
    double radius = sqrt(-2 * log(uniform(d)));
    return radius * cos(6.283185307179586 * uniform(d));
}

/* Of mean `shape`. Marsaglia and Tsang, "A simple method for generating gamma variables" (2000);
 * shapes below 1 by a power of a uniform number. */
static double gamma_variable(struct draws *d, double shape)
{
    if (shape < 1)
        return gamma_variable(d, shape + 1) * pow(uniform(d), 1 / shape);
    double a = shape - 1.0 / 3, c = 1 / sqrt(9 * a);
    for (;;) {
        double x = normal(d), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(uniform(d)) < 0.5 * x * x + a - a * v + a * log(v))
            return a * v;
    }
}

void bench_load_arrivals(struct bench_request *requests, size_t n, double rate, double burstiness,
                         uint64_t seed)
{
    struct draws d = {.key = seed};
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += rate > 0 ? gamma_variable(&d, burstiness) : 0;
        requests[i].due_s = sum;
    }
    double stretch = sum > 0 ? (double)n / rate / sum : 0;
    for (size_t i = 0; i < n; i++)
        requests[i].due_s *= stretch;
}
