/* tokenizer_load.h: what the readers of tokenizer.json's members share. */
#ifndef PHI_FORMATS_TOKENIZER_LOAD_H
#define PHI_FORMATS_TOKENIZER_LOAD_H

#include "formats/tokenizer_impl.h"

/* The member that is being read; every error names its file and it. */
struct phi_member {
    struct phi_tokenizer *t;
    const char *file;
    const char *name; /* "normalizer", ... */
    struct phi_error *err;
};

/* PHI_ERR_FORMAT: "file: member: what". */
enum phi_status phi_member_malformed(const struct phi_member *m, const char *what);

/* PHI_ERR_UNSUPPORTED: "file: member: what "value" is not supported". */
enum phi_status phi_member_unsupported(const struct phi_member *m, const char *what,
                                       const char *value);

/* The "type" of a component, which must be an object. */
enum phi_status phi_member_type(const struct phi_member *m, const json_t *v, struct phi_str *type);

/* A string field that must be there, copied into the tokenizer's arena. */
enum phi_status phi_member_string(const struct phi_member *m, const json_t *v, const char *field,
                                  struct phi_str *out);

/* An array field that must be there. */
enum phi_status phi_member_array(const struct phi_member *m, const json_t *v, const char *field,
                                 const json_t **out);

/* "added_tokens" (NULL when missing), once normalizer and model are there. */
enum phi_status phi_tokenizer_load_added(const struct phi_member *m, const json_t *v);

#endif
