/* json_text.h: JSON values handed on as text: to the output, to the chat template. */
#ifndef PHI_CLI_JSON_TEXT_H
#define PHI_CLI_JSON_TEXT_H

#include "cli/term.h"
#include "phidelity.h"

#include <jansson.h>

/* Writes the value with jansson's flags, and a line end; takes the value over. NULL, or what cannot
 * be written, is an output that is out of memory. */
void cli_out_json(struct cli_out *out, json_t *value, size_t flags);

/* phi_render_chat of values; `options` may be NULL. */
enum phi_status cli_render_chat(const struct phi_model *model, const json_t *messages,
                                const json_t *options, char **text, size_t *n,
                                struct phi_error *err);

#endif
