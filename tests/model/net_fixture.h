/* net_fixture.h: opens a golden checkpoint and runs one sequence through it, in one piece or cut into chunks,
 * alone or beside others. Shared by the tests of the model floor. */
#ifndef PHI_TESTS_NET_FIXTURE_H
#define PHI_TESTS_NET_FIXTURE_H

#include "formats/config.h"
#include "formats/safetensors.h"
#include "model/net.h"

enum { FIXTURE_MAX_TOKENS = 1120, FIXTURE_MAX_SEQS = 16 };

struct net_fixture {
    struct phi_config config;
    struct phi_safetensors *weights; /* NULL for dummy weights */
    struct phi_net *net;
};

/* `dir` below tests/golden. Fails the test on any error. */
void net_fixture_open(struct net_fixture *f, const char *dir, enum phi_dtype dtype,
                      const struct phi_kernels *kernels);
/* The config of a golden checkpoint with another context and window, and random weights. */
void net_fixture_open_dummy(struct net_fixture *f, const char *dir, int max_positions, int window,
                            enum phi_dtype dtype, const struct phi_kernels *kernels);
void net_fixture_close(struct net_fixture *f);

struct run_options {
    int n_threads;      /* 0 = 1 */
    size_t chunk;       /* rows per forward; 0 = all at once */
    size_t n_beside;    /* other sequences in every batch */
    size_t gap;         /* between the positions whose logits are asked for; 0 = none, all are */
    uint32_t block_size; /* 0 = 16 */
    enum phi_dtype kv_dtype; /* PHI_AUTO = the net's */
    void (*probe)(void *context, const char *name, const float *data, size_t n_cols);
    void *probe_context;
};

/* Logits of every position, float32 [n, vocab_size]; zeros where none are asked for. The caller frees
 * with free(). */
float *net_fixture_logits(const struct net_fixture *f, const int32_t *ids, size_t n,
                          const struct run_options *o);

/* FNV-1a over the bytes. */
uint64_t net_fixture_hash(const void *data, size_t n_bytes);

/* $PHI_TESTS/golden/<dir>/<file> into a static buffer. */
const char *golden_path(const char *dir, const char *file);

#endif
