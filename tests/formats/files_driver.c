/* files_driver.c: lets the oracle suite put many files before the readers. Each line of standard
 * input is a path: of a folder with a config.json, or of a safetensors file. Each line of output is
 * a JSON object: what was read, or the error. */
#include "formats/config.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const rope_types[] = {[PHI_ROPE_DEFAULT] = "default",
                                         [PHI_ROPE_LINEAR] = "linear",
                                         [PHI_ROPE_DYNAMIC] = "dynamic",
                                         [PHI_ROPE_YARN] = "yarn",
                                         [PHI_ROPE_LONGROPE] = "longrope"};

static json_t *read_config(const char *dir, struct phi_error *err)
{
    struct phi_config c;
    if (phi_config_read(dir, &c, err) != PHI_OK)
        return NULL;
    json_t *stop_ids = json_array();
    for (int i = 0; i < c.n_stop_ids; i++)
        json_array_append_new(stop_ids, json_integer(c.stop_ids[i]));
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o}", "rope_type", rope_types[c.rope_type],
        "rotary_dim", c.rotary_dim, "head_dim", c.head_dim, "n_kv_heads", c.n_kv_heads,
        "max_position_embeddings", c.max_position_embeddings, "original_max_position_embeddings",
        c.original_max_position_embeddings, "sliding_window", c.sliding_window, "rope_theta",
        c.rope_theta, "attention_factor", c.rope_attention_factor, "stop_ids", stop_ids);
}

static json_t *read_safetensors(const char *path, struct phi_error *err)
{
    struct phi_safetensors *st;
    json_t *names = json_array();
    if (phi_safetensors_open_file(path, &st, err) != PHI_OK) {
        json_decref(names);
        return NULL;
    }
    for (size_t i = 0; i < phi_safetensors_n_tensors(st); i++)
        json_array_append_new(names, json_string(phi_safetensors_at(st, i)->name.data));
    phi_safetensors_close(st);
    return json_pack("{s:o}", "tensors", names);
}

int main(void)
{
    char path[4096];
    while (fgets(path, sizeof path, stdin)) {
        struct phi_error err = {0};
        path[strcspn(path, "\n")] = '\0';
        json_t *answer =
            phi_file_is_dir(path) ? read_config(path, &err) : read_safetensors(path, &err);
        if (!answer)
            answer =
                json_pack("{s:s, s:s}", "status", phi_status_name(err.code), "error", err.text);
        char *line = json_dumps(answer, JSON_COMPACT);
        puts(line ? line : "{}");
        free(line);
        json_decref(answer);
    }
    return 0;
}
