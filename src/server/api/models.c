/* models.c: GET /v1/models, and the names that requests may use (models.h). */
#include "server/api/handlers.h"
#include "server/api/models.h"

static struct phi_strings names_of(const struct phi_server *s)
{
    const struct phi_server_options *o = s->options;
    return o->served_names.n > 0 ? o->served_names : (struct phi_strings){&o->model, 1};
}

static bool is_served(const struct phi_server *s, struct phi_str name)
{
    struct phi_strings names = names_of(s);
    for (size_t i = 0; i < names.n; i++)
        if (phi_str_eq_c(name, names.data[i]))
            return true;
    return false;
}

static enum phi_status refuse_name(struct phi_str name, struct phi_refusal *r)
{
    int n_shown = name.n < 200 ? (int)name.n : 200;
    return phi_refuse(r, PHI_REFUSED_UNKNOWN, "model", "The model `%.*s` does not exist.", n_shown,
                      name.data);
}

enum phi_status phi_model_name_check(const struct phi_server *s, struct phi_str name,
                                     struct phi_refusal *r)
{
    return name.n == 0 || is_served(s, name) ? PHI_OK : refuse_name(name, r);
}

static void write_card(struct phi_out *o, const struct phi_server *s, const char *name)
{
    struct phi_engine_info info;
    phi_engine_get_info(s->engine, &info);
    phi_out_open(o, NULL, '{');
    phi_out_c(o, "id", name);
    phi_out_c(o, "object", "model");
    phi_out_int(o, "created", s->created_s);
    phi_out_c(o, "owned_by", "vllm"); /* some clients tell the kind of API by this */
    phi_out_c(o, "root", s->options->model);
    phi_out_null(o, "parent");
    phi_out_int(o, "max_model_len", info.max_model_len);
    phi_out_open(o, "permission", '[');
    phi_out_open(o, NULL, '{');
    phi_out_key(o, PHI_STR("id"));
    struct phi_buf id = {0};
    phi_buf_printf(&id, "modelperm-%s", name);
    o->buf->failed |= id.failed;
    phi_out_text(o, NULL, phi_buf_str(&id));
    phi_buf_deinit(&id);
    phi_out_c(o, "object", "model_permission");
    phi_out_int(o, "created", s->created_s);
    static const struct {
        const char *name;
        bool allowed;
    } permissions[] = {
        {"allow_create_engine", false},  {"allow_sampling", true}, {"allow_logprobs", true},
        {"allow_search_indices", false}, {"allow_view", true},     {"allow_fine_tuning", false},
    };
    for (size_t i = 0; i < sizeof permissions / sizeof *permissions; i++)
        phi_out_bool(o, permissions[i].name, permissions[i].allowed);
    phi_out_c(o, "organization", "*");
    phi_out_null(o, "group");
    phi_out_bool(o, "is_blocking", false);
    phi_out_close(o, '}');
    phi_out_close(o, ']');
    phi_out_close(o, '}');
}

void phi_api_models(struct phi_exchange *x)
{
    struct phi_buf body = {0};
    struct phi_out o = {.buf = &body};
    struct phi_strings names = names_of(x->server);
    phi_out_open(&o, NULL, '{');
    phi_out_c(&o, "object", "list");
    phi_out_open(&o, "data", '[');
    for (size_t i = 0; i < names.n; i++)
        write_card(&o, x->server, names.data[i]);
    phi_out_close(&o, ']');
    phi_out_close(&o, '}');
    phi_exchange_answer(x, 200, "application/json", &body);
}

void phi_api_model(struct phi_exchange *x)
{
    struct phi_refusal refusal;
    struct phi_str prefix = PHI_STR("/v1/models/"); /* the route's own path */
    struct phi_str name = {x->path.data + prefix.n, x->path.n - prefix.n};
    struct phi_strings names = names_of(x->server);
    for (size_t i = 0; i < names.n; i++) {
        if (!phi_str_eq_c(name, names.data[i]))
            continue;
        struct phi_buf body = {0};
        struct phi_out o = {.buf = &body};
        write_card(&o, x->server, names.data[i]);
        phi_exchange_answer(x, 200, "application/json", &body);
        return;
    }
    refuse_name(name, &refusal);
    phi_refusal_answer(&refusal, x);
}
