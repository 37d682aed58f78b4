/* model_api.c: the model part of phidelity.h: opening a checkpoint folder, and text to ids and
 * back. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/huge_files.h"
#include "base/log.h"
#include "base/threads.h"
#include "engine/load_strategy.h"
#include "formats/json.h"

#include <stdlib.h>

enum { MAX_TEMPLATE_BYTES = 4 << 20 };

const char *phi_version(void)
{
    return PHI_VERSION;
}

void phi_mem_free(void *p)
{
    phi_free(p);
}

void phi_set_log(void (*sink)(void *context, int level, const char *line), void *context)
{
    phi_log_set_sink(sink, context);
}

/* ---------------------------------------------------------------- opening */

void phi_model_options_init(struct phi_model_options *o)
{
    *o = (struct phi_model_options){.dtype = PHI_AUTO};
}

/* config.json is needed to run; without weights it only adds facts to phi_model_info. */
static enum phi_status open_config(struct phi_model *m, const struct phi_model_options *o,
                                   struct phi_error *err)
{
    struct phi_error local;
    enum phi_status status = phi_config_read(o->path, &m->config, &local);
    m->has_config = status == PHI_OK;
    if (m->has_config)
        return PHI_OK;
    if (!o->no_weights || status == PHI_ERR_MEMORY)
        return phi_fail(err, status, "%s", local.text);
    phi_log(PHI_LOG_WARNING, "%s", local.text);
    m->config = (struct phi_config){.bos_token_id = -1, .pad_token_id = -1};
    return PHI_OK;
}

/* A checkpoint may come without a tokenizer; a folder named for its tokenizer may not. */
static enum phi_status open_tokenizer(struct phi_model *m, const char *dir, bool required,
                                      struct phi_error *err)
{
    struct phi_buf path = {0};
    if (!phi_path_join(&path, dir, "tokenizer.json"))
        return phi_fail_memory(err, "a path", strlen(dir));
    bool exists = phi_file_exists(path.data) || required;
    if (!exists)
        phi_log(PHI_LOG_WARNING,
                "%s: no such file: prompts must be token ids, answers have no text", path.data);
    phi_buf_deinit(&path);
    return exists ? phi_tokenizer_open(dir, &m->tokenizer, err) : PHI_OK;
}

/* Without a template, the special tokens are there for those that requests bring. */
static enum phi_status open_own_template(struct phi_model *m, const char *dir,
                                         struct phi_error *err)
{
    PHI_TRY(phi_chat_template_open(dir, &m->chat_template, err));
    m->has_chat_template = m->chat_template != NULL;
    if (m->has_chat_template)
        return PHI_OK;
    return phi_chat_template_parse(PHI_STR(""), "no chat template", dir, &m->chat_template, err);
}

static enum phi_status open_template(struct phi_model *m, const char *dir, const char *given,
                                     struct phi_error *err)
{
    if (!given)
        return open_own_template(m, dir, err);
    m->has_chat_template = true;
    if (strchr(given, '{'))
        return phi_chat_template_parse(phi_str_from(given), "chat template", dir, &m->chat_template,
                                       err);
    struct phi_buf text = {0};
    enum phi_status status = phi_file_read(given, MAX_TEMPLATE_BYTES, &text, err);
    if (status == PHI_OK)
        status = phi_chat_template_parse(phi_buf_str(&text), given, dir, &m->chat_template, err);
    phi_buf_deinit(&text);
    return status;
}

static enum phi_status open_net(struct phi_model *m, const struct phi_model_options *o,
                                struct phi_error *err)
{
    m->count_only = o->count_weights;
    if (!o->dummy_weights && !o->count_weights) {
        PHI_TRY(phi_safetensors_open_dir(o->path, &m->weights, err));
        PHI_TRY(phi_load_before(m, o, err));
    }
    struct phi_net_options net = {
        .config = &m->config,
        .weights = m->weights,
        .count_only = o->count_weights,
        .seed = o->seed,
        .dtype = o->dtype,
        .quantization = o->quantization,
        .keep_lm_head = o->keep_lm_head,
        .quant_group_size = o->quant_group_size,
        .kernels = m->kernels,
        .n_threads = m->n_threads,
        .progress = o->progress,
        .progress_context = o->progress_context,
    };
    PHI_TRY(phi_net_open(&net, &m->net, err));
    m->huge_thread = phi_load_behind(m, o->load_strategy);
    return PHI_OK;
}

/* A spelling has at least as many bytes as the text it stands for. (Blanks are aside because added
 * tokens may swallow any number of them.) */
static void find_longest_token(struct phi_model *m)
{
    int32_t n = m->tokenizer ? phi_tokenizer_n_ids(m->tokenizer) : 0;
    for (int32_t id = 0; id < n; id++) {
        size_t n_bytes = phi_tokenizer_spelling(m->tokenizer, id).n;
        if (n_bytes <= INT32_MAX && (int)n_bytes > m->longest_token_bytes)
            m->longest_token_bytes = (int)n_bytes;
    }
}

static void join_stop_ids(struct phi_model *m)
{
    int32_t eos = m->tokenizer ? phi_tokenizer_eos_id(m->tokenizer) : -1;
    m->eos_id = eos >= 0 ? eos : m->config.n_stop_ids > 0 ? m->config.stop_ids[0] : -1;
    if (eos >= 0 && !phi_config_add_stop_id(&m->config, eos))
        phi_log(PHI_LOG_WARNING, "more than %d stop ids: %d is left out", PHI_MAX_STOP_IDS, eos);
}

static enum phi_status open_parts(struct phi_model *m, const struct phi_model_options *o,
                                  struct phi_error *err)
{
    const char *text_dir = o->tokenizer ? o->tokenizer : o->path;
    if (o->n_threads < 0)
        return phi_fail(err, PHI_ERR_INVALID, "threads must be at least 0, got %d.", o->n_threads);
    if (o->quant_group_size < 0 || o->quant_group_size % PHI_QUANT_BLOCK != 0)
        return phi_fail(err, PHI_ERR_INVALID,
                        "quant_group_size must be 0 or a multiple of %d, got %d.", PHI_QUANT_BLOCK,
                        o->quant_group_size);
    m->n_threads = o->n_threads > 0 ? o->n_threads : phi_n_cores();
    if (!phi_file_is_dir(o->path))
        return phi_fail(err, PHI_ERR_IO, "%s: not a folder with a checkpoint", o->path);
    m->path = phi_alloc(strlen(o->path) + 1, 1);
    if (!m->path)
        return phi_fail_memory(err, "a path", strlen(o->path));
    memcpy(m->path, o->path, strlen(o->path) + 1);
    PHI_TRY(phi_kernels_select(getenv("PHI_ISA"), &m->kernels, err));
    PHI_TRY(open_config(m, o, err));
    PHI_TRY(open_tokenizer(m, text_dir, o->tokenizer != NULL, err));
    PHI_TRY(open_template(m, text_dir, o->chat_template, err));
    join_stop_ids(m);
    find_longest_token(m);
    return o->no_weights ? PHI_OK : open_net(m, o, err);
}

enum phi_status phi_model_open(const struct phi_model_options *o, struct phi_model **out,
                               struct phi_error *err)
{
    *out = NULL;
    if (!o->path)
        return phi_fail(err, PHI_ERR_INVALID,
                        "no model: the path of a checkpoint folder is required");
    struct phi_model *m = phi_calloc(1, sizeof *m);
    if (!m)
        return phi_fail_memory(err, "the model", sizeof *m);
    enum phi_status status = open_parts(m, o, err);
    if (status != PHI_OK) {
        phi_model_close(m);
        return status;
    }
    *out = m;
    return PHI_OK;
}

void phi_model_close(struct phi_model *m)
{
    if (!m)
        return;
    phi_huge_thread_stop(m->huge_thread);
    phi_net_close(m->net);
    phi_safetensors_close(m->weights);
    phi_chat_template_close(m->chat_template);
    phi_tokenizer_close(m->tokenizer);
    phi_free(m->path);
    phi_free(m);
}

static const char *rope_type_name(enum phi_rope_type type)
{
    static const char *const names[] = {
        [PHI_ROPE_DEFAULT] = "default",   [PHI_ROPE_LINEAR] = "linear",
        [PHI_ROPE_DYNAMIC] = "dynamic",   [PHI_ROPE_YARN] = "yarn",
        [PHI_ROPE_LONGROPE] = "longrope",
    };
    return names[type];
}

static void copy_name(char *out, size_t capacity, const char *name)
{
    size_t n = strlen(name);
    n = n < capacity ? n : capacity - 1;
    memcpy(out, name, n);
    out[n] = '\0';
}

static void describe_config(const struct phi_config *c, struct phi_model_info *out)
{
    const char *architecture = c->arch == PHI_ARCH_PHI ? "PhiForCausalLM" : "Phi3ForCausalLM";
    copy_name(out->architecture, sizeof out->architecture, architecture);
    copy_name(out->rope_type, sizeof out->rope_type, rope_type_name(c->rope_type));
    out->file_dtype = c->dtype;
    out->dtype = c->dtype;
    out->n_layers = c->n_layers;
    out->hidden_size = c->hidden_size;
    out->n_heads = c->n_heads;
    out->n_kv_heads = c->n_kv_heads;
    out->head_dim = c->head_dim;
    out->rotary_dim = c->rotary_dim;
    out->vocab_size = c->vocab_size;
    out->max_position_embeddings = c->max_position_embeddings;
    out->original_max_position_embeddings = c->original_max_position_embeddings;
    out->sliding_window = c->sliding_window;
    out->rope_theta = c->rope_theta;
}

void phi_model_get_info(const struct phi_model *m, struct phi_model_info *out)
{
    *out = (struct phi_model_info){.bos_id = m->config.bos_token_id, .eos_id = m->eos_id};
    copy_name(out->isa, sizeof out->isa, m->kernels->name);
    if (m->has_config)
        describe_config(&m->config, out);
    if (m->net) {
        struct phi_net_info net;
        phi_net_get_info(m->net, &net);
        out->has_weights = true;
        out->dtype = net.dtype;
        out->file_dtype = net.file_dtype;
        out->quantization = net.quantization;
        out->n_parameters = net.n_parameters;
        out->weight_bytes = m->weights_in_memory ? 0 : net.mapped_bytes;
        out->converted_bytes = net.converted_bytes;
        if (m->weights_in_memory)
            out->converted_bytes += phi_safetensors_file_bytes(m->weights);
    }
    if (m->tokenizer) {
        out->n_token_ids = phi_tokenizer_n_ids(m->tokenizer);
        if (phi_tokenizer_bos_id(m->tokenizer) >= 0)
            out->bos_id = phi_tokenizer_bos_id(m->tokenizer);
        out->longest_token_bytes = m->longest_token_bytes;
        out->truncates_left = phi_tokenizer_truncates_left(m->tokenizer);
    }
    out->n_stop_ids = m->config.n_stop_ids;
    memcpy(out->stop_ids, m->config.stop_ids, sizeof out->stop_ids);
    out->has_chat_template = m->has_chat_template;
    out->n_threads = m->n_threads;
}

/* ---------------------------------------------------------------- text */

static enum phi_status need_tokenizer(const struct phi_model *m, struct phi_error *err)
{
    if (!m->tokenizer)
        return phi_fail(err, PHI_ERR_INVALID, "the checkpoint has no tokenizer.json");
    return PHI_OK;
}

enum phi_status phi_tokenize(const struct phi_model *m, struct phi_text text,
                             bool add_special_tokens, int32_t **ids, size_t *n_ids,
                             struct phi_error *err)
{
    *ids = NULL;
    *n_ids = 0;
    PHI_TRY(need_tokenizer(m, err));
    struct phi_ids list = {0};
    struct phi_encode_options options = {.add_special_tokens = add_special_tokens};
    struct phi_str s = {text.data, text.n};
    enum phi_status status = phi_tokenizer_encode(m->tokenizer, s, options, &list, err);
    if (status == PHI_OK && list.failed)
        status = phi_fail_memory(err, "token ids", list.n * sizeof *list.data);
    if (status != PHI_OK) {
        phi_ids_deinit(&list);
        return status;
    }
    *ids = list.data;
    *n_ids = list.n;
    return PHI_OK;
}

/* Hands the buffer's text to the caller, or frees it after a failure. */
static enum phi_status give_text(struct phi_buf *b, enum phi_status status, char **text,
                                 size_t *n_text, struct phi_error *err)
{
    if (status == PHI_OK && !b->data)
        phi_buf_append(b, "", 0);
    if (status == PHI_OK && b->failed)
        status = phi_fail_memory(err, "text", b->n);
    if (status != PHI_OK) {
        phi_buf_deinit(b);
        return status;
    }
    *text = b->data;
    *n_text = b->n;
    return PHI_OK;
}

enum phi_status phi_detokenize(const struct phi_model *m, const int32_t *ids, size_t n_ids,
                               bool skip_special_tokens, char **text, size_t *n_text,
                               struct phi_error *err)
{
    *text = NULL;
    *n_text = 0;
    PHI_TRY(need_tokenizer(m, err));
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0)
            return phi_fail(err, PHI_ERR_INVALID, "token id %d at index %zu is negative", ids[i],
                            i);
    struct phi_buf b = {0};
    enum phi_status status =
        phi_tokenizer_decode(m->tokenizer, ids, n_ids, skip_special_tokens, &b, err);
    return give_text(&b, status, text, n_text, err);
}

enum phi_status phi_token_spelling(const struct phi_model *m, int32_t id, char **text,
                                   size_t *n_text, struct phi_error *err)
{
    *text = NULL;
    *n_text = 0;
    struct phi_buf b = {0};
    if (m->tokenizer)
        phi_buf_append_str(&b, phi_tokenizer_spelling(m->tokenizer, id));
    return give_text(&b, PHI_OK, text, n_text, err);
}

enum phi_status phi_token_bytes(const struct phi_model *m, int32_t id, char **bytes,
                                size_t *n_bytes, struct phi_error *err)
{
    struct phi_buf b = {0};
    *bytes = NULL;
    *n_bytes = 0;
    if (m->tokenizer)
        phi_tokenizer_token_bytes(m->tokenizer, id, &b);
    return give_text(&b, PHI_OK, bytes, n_bytes, err);
}

/* ---------------------------------------------------------------- chat */

/* An optional field of the render options: missing or null is NULL. */
static enum phi_status get_typed(const json_t *obj, const char *field, json_type type,
                                 const char *expected, const json_t **out, struct phi_error *err)
{
    *out = phi_json_field(obj, field);
    if (*out && json_typeof(*out) != type)
        return phi_fail(err, PHI_ERR_INVALID, "%s must be %s", field, expected);
    return PHI_OK;
}

static enum phi_status read_chat_options(const json_t *obj, struct phi_chat_options *out,
                                         struct phi_error *err)
{
    if (!json_is_object(obj))
        return phi_fail(err, PHI_ERR_INVALID, "the chat options must be an object");
    PHI_TRY(phi_json_get_bool(obj, "options", "add_generation_prompt", &out->add_generation_prompt,
                              err));
    PHI_TRY(phi_json_get_bool(obj, "options", "continue_final_message",
                              &out->continue_final_message, err));
    PHI_TRY(get_typed(obj, "tools", JSON_ARRAY, "an array", &out->tools, err));
    PHI_TRY(get_typed(obj, "documents", JSON_ARRAY, "an array", &out->documents, err));
    PHI_TRY(get_typed(obj, "chat_template_kwargs", JSON_OBJECT, "an object", &out->kwargs, err));
    const json_t *source;
    PHI_TRY(get_typed(obj, "chat_template", JSON_STRING, "a string", &source, err));
    if (source)
        out->source = phi_json_str(source);
    return PHI_OK;
}

enum phi_status phi_render_chat(const struct phi_model *m, struct phi_text messages_json,
                                struct phi_text options_json, char **text, size_t *n_text,
                                struct phi_error *err)
{
    *text = NULL;
    *n_text = 0;
    json_t *messages = NULL, *options = NULL;
    struct phi_chat_options o = {.add_generation_prompt = true, .now_s = -1};
    struct phi_buf b = {0};
    enum phi_status status = phi_json_parse((struct phi_str){messages_json.data, messages_json.n},
                                            "messages", &messages, err);
    if (status == PHI_OK && !json_is_array(messages))
        status = phi_fail(err, PHI_ERR_INVALID, "the messages must be an array");
    if (status == PHI_OK && options_json.n > 0)
        status = phi_json_parse((struct phi_str){options_json.data, options_json.n}, "options",
                                &options, err);
    if (status == PHI_OK && options)
        status = read_chat_options(options, &o, err);
    if (status == PHI_OK && !m->has_chat_template && !o.source.data)
        status = phi_fail(err, PHI_ERR_INVALID,
                          "the checkpoint has no chat template; give one with --chat-template");
    if (status == PHI_OK)
        status = phi_chat_template_render(m->chat_template, messages, &o, &b, err);
    status = give_text(&b, status, text, n_text, err);
    json_decref(messages);
    json_decref(options);
    return status;
}
