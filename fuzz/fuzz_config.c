/* fuzz_config.c: any config.json and generation_config.json (one input, the two texts separated by
 * the first NUL byte): an error, or a struct that keeps its promises. */
#include "formats/config.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool law)
{
    if (!law)
        abort();
}

static void check_accepted(const struct phi_config *c)
{
    require(c->hidden_size > 0 && c->intermediate_size > 0 && c->n_layers > 0 && c->vocab_size > 0);
    require(c->n_heads > 0 && c->n_kv_heads > 0 && c->n_heads % c->n_kv_heads == 0);
    require(c->head_dim > 0 && c->head_dim % 8 == 0 && c->head_dim <= 512);
    require(c->rotary_dim >= 2 && c->rotary_dim <= c->head_dim && c->rotary_dim % 2 == 0);
    require(c->max_position_embeddings > 0 && c->original_max_position_embeddings > 0);
    require(c->sliding_window >= 0 && c->norm_eps > 0);
    require(c->rope_theta > 0 && isfinite(c->rope_theta));
    require(c->rope_attention_factor > 0 && isfinite(c->rope_attention_factor));
    require(c->rope_type == PHI_ROPE_DEFAULT || (c->rope_factor > 0 && isfinite(c->rope_factor)));
    if (c->rope_type == PHI_ROPE_LONGROPE)
        for (int i = 0; i < c->rotary_dim / 2; i++)
            require(c->short_factor[i] > 0 && c->long_factor[i] > 0);
    require(c->n_stop_ids >= 0 && c->n_stop_ids <= PHI_MAX_STOP_IDS);
    for (int i = 0; i < c->n_stop_ids; i++)
        require(c->stop_ids[i] >= 0 && c->stop_ids[i] < c->vocab_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct phi_config config;
    struct phi_error err = {0};
    struct phi_str text = {(const char *)data, n}, generation = {0};
    const char *nul = n ? memchr(data, 0, n) : NULL;
    if (nul) {
        text.n = (size_t)(nul - text.data);
        generation = (struct phi_str){nul + 1, n - text.n - 1};
    }
    enum phi_status status = phi_config_parse(text, generation, "config.json", &config, &err);
    if (status == PHI_OK)
        check_accepted(&config);
    else
        require(err.code == status && err.text[0] != '\0' && !strchr(err.text, '\n'));
    return 0;
}
