/* fields.h: the fields of request bodies. One table row a field says its name, its type, its range
 * and what it does; the reader, the error bodies, /openapi.json and the tests all go by these rows.
 *
 * Two passes, because vLLM answers in that order: phi_fields_read refuses what has the wrong shape
 * ("Bad Request"); later, after the model's name, phi_fields_check refuses values out of range
 * ("BadRequestError"). null means absent for every optional field; 0, "" and [] are values; fields
 * without a row are ignored. */
#ifndef PHI_SERVER_API_FIELDS_H
#define PHI_SERVER_API_FIELDS_H

#include "server/api/refusal.h"

struct phi_opt_int {
    bool given;
    int64_t value;
};

struct phi_opt_real {
    bool given;
    double value;
};

/* What a field may hold, and the member that it is read into. */
enum phi_field_kind {
    PHI_FIELD_BOOL, /* bool */
    PHI_FIELD_INT,  /* struct phi_opt_int; a whole number such as 5.0 is one, too */
    PHI_FIELD_REAL, /* struct phi_opt_real */
    PHI_FIELD_TEXT, /* struct phi_str; data NULL = absent */
    /* const json_t *, NULL = absent: */
    PHI_FIELD_TEXTS,  /* array of strings */
    PHI_FIELD_STOP,   /* string or array of strings */
    PHI_FIELD_IDS,    /* array of integers */
    PHI_FIELD_TOKENS, /* array of integers >= 0 */
    PHI_FIELD_BIAS,   /* object of numbers */
    PHI_FIELD_PROMPT, /* string, array of strings, array of ids, array of arrays of ids */
    PHI_FIELD_OBJECT,
    PHI_FIELD_OBJECTS, /* array of objects */
    PHI_FIELD_VALUE    /* anything */
};

enum phi_field_flags {
    PHI_FIELD_REQUIRED = 1,
    PHI_FIELD_TRUE = 2,    /* a bool that is true when absent */
    PHI_FIELD_NAMED = 4,   /* an error about its range has it as "param" */
    PHI_FIELD_EARLY = 8,   /* its range is part of its shape: checked by phi_fields_read */
    PHI_FIELD_ABOVE = 16,  /* lo itself is outside the range */
    PHI_FIELD_LATER = 32,  /* not there yet: any value but false and [] is refused, saying so */
    PHI_FIELD_IGNORED = 64 /* accepted for compatibility, without effect here */
};

struct phi_field {
    const char *name;
    enum phi_field_kind kind;
    size_t offset; /* of the member in struct phi_fields; PHI_NO_MEMBER for LATER and IGNORED */
    unsigned flags;
    /* Range of INT and REAL, or least length of TEXT; checked where `must` is not NULL. */
    double lo, hi;
    const char *must;    /* "be in (0, 1]": for errors and the documentation */
    const char *initial; /* what absence means, for the documentation */
    const char *help;
    const char *schema; /* JSON schema of its values, where the kind says too little; else NULL */
};

#define PHI_NO_MEMBER SIZE_MAX

/* A body's fields: rows of several lists. */
struct phi_field_set {
    const char *path;                     /* in front of the names in errors: "stream_options." */
    const struct phi_field *const *lists; /* each ended by a row without a name; then NULL */
};

/* The fields of all endpoints; those that an endpoint does not have stay absent. */
struct phi_fields {
    json_t *body; /* owned; what follows points into it */

    /* what is asked */
    struct phi_str model;
    const json_t *prompt;   /* PHI_FIELD_PROMPT */
    const json_t *messages; /* array of objects */
    const json_t *tools, *documents, *chat_template_kwargs, *tool_choice;
    struct phi_str chat_template, reasoning_effort, prompt_text;
    const json_t *tokens;
    bool add_generation_prompt, continue_final_message, add_special_tokens;
    struct phi_opt_int truncate_prompt_tokens;
    struct phi_str truncation_side;

    /* sampling */
    struct phi_opt_int n, max_tokens, max_completion_tokens, min_tokens, top_k, seed;
    struct phi_opt_real temperature, top_p, min_p;
    struct phi_opt_real repetition_penalty, presence_penalty, frequency_penalty;
    const json_t *stop, *stop_token_ids, *logit_bias, *allowed_token_ids, *bad_words;
    bool include_stop_str_in_output, ignore_eos, skip_special_tokens;
    struct phi_opt_int logprobs, top_logprobs, prompt_logprobs;
    bool chat_logprobs;
    const json_t *response_format;

    /* how it is answered */
    bool stream, include_usage, continuous_usage_stats;
    const json_t *stream_options;
    bool echo, return_token_ids, return_tokens_as_token_ids, return_prompt_text;
    bool return_token_strs;
    struct phi_opt_int priority;
    struct phi_str request_id, cache_salt;
};

extern const struct phi_field_set phi_completion_fields, phi_chat_fields, phi_tokenize_text_fields,
    phi_tokenize_chat_fields, phi_detokenize_fields, phi_stream_option_fields;

/* The exchange's body as a JSON object; checks its content type, too. */
enum phi_status phi_fields_parse(struct phi_exchange *x, struct phi_fields *f,
                                 struct phi_refusal *r);

/* Reads `object` (f->body, or an object in it) by the rows of `set`: types, required fields, ranges
 * of EARLY rows. NULL is an empty object. */
enum phi_status phi_fields_read(struct phi_fields *f, const json_t *object,
                                const struct phi_field_set *set, struct phi_refusal *r);

/* Ranges of the other rows, and what is not there yet. */
enum phi_status phi_fields_check(const json_t *object, const struct phi_field_set *set,
                                 struct phi_refusal *r);

/* Integers that arrive as 5.0 are integers, as in JSON Schema. */
bool phi_field_integer(const json_t *v, int64_t *out);

void phi_fields_deinit(struct phi_fields *f);

/* The JSON schema of a body, as a value of /openapi.json. */
void phi_fields_write_schema(struct phi_out *o, const char *key, const struct phi_field_set *set);

#endif
