/* tokenize.c: POST /tokenize and /detokenize: text or messages to token ids, and back. */
#include "server/api/conversation.h"
#include "server/api/handlers.h"
#include "server/api/models.h"
#include "formats/json.h"

/* ---------------------------------------------------------------- tokenize */

static enum phi_status read_request(struct phi_exchange *x, struct phi_fields *f,
                                    struct phi_refusal *r)
{
    PHI_TRY(phi_fields_parse(x, f, r));
    bool is_chat = phi_json_field(f->body, "messages") != NULL;
    const struct phi_field_set *set =
        is_chat ? &phi_tokenize_chat_fields : &phi_tokenize_text_fields;
    PHI_TRY(phi_fields_read(f, f->body, set, r));
    if (is_chat)
        PHI_TRY(phi_conversation_check(f, r));
    PHI_TRY(phi_model_name_check(x->server, f->model, r));
    return phi_fields_check(f->body, set, r);
}

static enum phi_status tokenize(const struct phi_server *s, const struct phi_fields *f,
                                int32_t **ids, size_t *n_ids, struct phi_refusal *r)
{
    struct phi_text text = {f->prompt_text.data, f->prompt_text.n};
    char *rendered = NULL;
    if (f->messages) {
        PHI_TRY(phi_conversation_render(s, f, &rendered, &text.n, r));
        text.data = rendered;
    }
    enum phi_status status =
        phi_tokenize(s->model, text, f->add_special_tokens, ids, n_ids, &r->error);
    phi_mem_free(rendered);
    return status == PHI_OK ? PHI_OK : phi_refuse_status(r, NULL);
}

static void write_spellings(struct phi_out *o, const struct phi_model *m, const int32_t *ids,
                            size_t n_ids)
{
    phi_out_open(o, "token_strs", '[');
    for (size_t i = 0; i < n_ids; i++) {
        char *text = NULL;
        size_t n;
        if (phi_token_spelling(m, ids[i], &text, &n, NULL) == PHI_OK)
            phi_out_text(o, NULL, (struct phi_str){text, n});
        else
            o->buf->failed = true;
        phi_mem_free(text);
    }
    phi_out_close(o, ']');
}

static void answer_ids(struct phi_exchange *x, const struct phi_fields *f, const int32_t *ids,
                       size_t n_ids)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    struct phi_engine_info info;
    phi_engine_get_info(x->server->engine, &info);
    phi_out_open(&o, NULL, '{');
    phi_out_int(&o, "count", (int64_t)n_ids);
    phi_out_int(&o, "max_model_len", info.max_model_len);
    phi_out_ids(&o, "tokens", ids, n_ids);
    if (f->return_token_strs)
        write_spellings(&o, x->server->model, ids, n_ids);
    else
        phi_out_null(&o, "token_strs");
    phi_out_close(&o, '}');
    phi_exchange_answer(x, 200, "application/json", &body);
}

void phi_api_tokenize(struct phi_exchange *x)
{
    struct phi_fields f;
    struct phi_refusal refusal;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    enum phi_status status = read_request(x, &f, &refusal);
    if (status == PHI_OK)
        status = tokenize(x->server, &f, &ids, &n_ids, &refusal);
    if (status == PHI_OK)
        answer_ids(x, &f, ids, n_ids);
    else
        phi_refusal_answer(&refusal, x);
    phi_mem_free(ids);
    phi_fields_deinit(&f);
}

/* ---------------------------------------------------------------- detokenize */

static enum phi_status detokenize(struct phi_exchange *x, struct phi_fields *f, char **text,
                                  size_t *n_text, struct phi_refusal *r)
{
    struct phi_ids ids = {0};
    PHI_TRY(phi_fields_parse(x, f, r));
    PHI_TRY(phi_fields_read(f, f->body, &phi_detokenize_fields, r));
    PHI_TRY(phi_model_name_check(x->server, f->model, r));
    enum phi_status status = PHI_OK;
    for (size_t i = 0; i < json_array_size(f->tokens) && status == PHI_OK; i++) {
        int64_t id;
        phi_field_integer(json_array_get(f->tokens, i), &id);
        if (id > INT32_MAX)
            status = phi_refuse(r, PHI_REFUSED_VALUE, NULL, "tokens[%zu]: %lld is too large", i,
                                (long long)id);
        phi_ids_append(&ids, (int32_t)id);
    }
    if (status == PHI_OK && ids.failed)
        status = phi_refuse_memory(r);
    if (status == PHI_OK) {
        status = phi_detokenize(x->server->model, ids.data, ids.n, false, text, n_text, &r->error);
        if (status != PHI_OK)
            phi_refuse_status(r, NULL);
    }
    phi_ids_deinit(&ids);
    return status;
}

void phi_api_detokenize(struct phi_exchange *x)
{
    struct phi_fields f;
    struct phi_refusal refusal;
    char *text = NULL;
    size_t n_text = 0;
    if (detokenize(x, &f, &text, &n_text, &refusal) == PHI_OK) {
        struct phi_buf body = {0};
        struct phi_out o = {.buf = &body};
        phi_out_open(&o, NULL, '{');
        phi_out_text(&o, "prompt", (struct phi_str){text, n_text});
        phi_out_close(&o, '}');
        phi_exchange_answer(x, 200, "application/json", &body);
    } else {
        phi_refusal_answer(&refusal, x);
    }
    phi_mem_free(text);
    phi_fields_deinit(&f);
}
