/* exposition.h: Prometheus' text format (0.0.4), one function per kind of line, with numbers spelt
 * as Python's prometheus_client spells them, so that what scrapes vLLM finds the same strings here.
 *
 *   # HELP vllm:prompt_tokens_total Prompt tokens ...           phi_expo_family
 *   # TYPE vllm:prompt_tokens_total counter
 *   vllm:prompt_tokens_total{engine="0",model_name="m"} 12.0    phi_expo_sample
 *
 * Labels are passed as text made by phi_expo_label: `labels` first, then `more` (either may be
 * empty). Failed allocations show in out->failed. */
#ifndef PHI_SERVER_METRICS_EXPOSITION_H
#define PHI_SERVER_METRICS_EXPOSITION_H

#include "base/buf.h"

/* Appends name="value", after a comma when out is not empty. The value may be anything: it is
 * escaped, and bytes that are not UTF-8 become U+FFFD. */
void phi_expo_label(struct phi_buf *out, const char *name, struct phi_str value);

/* The two lines in front of the samples of `name` + `suffix`. */
void phi_expo_family(struct phi_buf *out, const char *name, const char *suffix, const char *type,
                     const char *help);

void phi_expo_sample(struct phi_buf *out, const char *name, const char *suffix,
                     struct phi_str labels, struct phi_str more, double value);

/* The _bucket lines for the first n_bounds bounds and +Inf, _count and _sum. Leaving out upper
 * bounds loses nothing but their detail. */
void phi_expo_histogram(struct phi_buf *out, const char *name, struct phi_str labels,
                        const struct phi_histogram *h, size_t n_bounds);

/* "1.0", "0.25", "+Inf", "NaN": the shortest text that reads back as the same number. */
void phi_expo_number(double value, char out[32]);

#endif
