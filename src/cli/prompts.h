/* prompts.h: where prompts come from: -p, -f, --prompt-token-ids and standard input. */
#ifndef PHI_CLI_PROMPTS_H
#define PHI_CLI_PROMPTS_H

#include "cli/options.h"

struct cli_prompt_flags {
    struct cli_texts texts, files, token_ids;
    bool lines, jsonl, special_tokens;
};

/* generate, logits: text or ids. tokenize: text only. The structs of values are the same. */
extern const struct cli_option_group cli_prompt_group, cli_text_prompt_group;

/* One prompt: text, or ids when `is_ids`. `where` names its source for errors. */
struct cli_prompt {
    const char *where;
    bool is_ids;
    struct phi_str text;
    const int32_t *ids;
    size_t n_ids;
};

typedef enum phi_status (*cli_prompt_fn)(void *context, const struct cli_prompt *prompt,
                                         struct phi_error *err);

/* Hands every prompt to `fn`: those of -p first, then --prompt-token-ids, then files, then standard
 * input when the second positional argument is "-". A file is one prompt, bytes as they are; with
 * --lines each of its lines is one, and with --jsonl each line is a JSON string (a text with any
 * character in it) or a JSON array of token ids. Stops at the first failure. */
enum phi_status cli_prompts_each(const struct cli_args *args, const struct cli_prompt_flags *flags,
                                 cli_prompt_fn fn, void *context, struct phi_error *err);

/* Whether the command line names any prompt at all. */
bool cli_has_prompts(const struct cli_args *args, const struct cli_prompt_flags *flags);

/* Calls fn for each line of `text`, without its line end; a last line may lack one. */
typedef enum phi_status (*cli_line_fn)(void *context, struct phi_str line, size_t number,
                                       struct phi_error *err);
enum phi_status cli_lines_each(struct phi_str text, cli_line_fn fn, void *context,
                               struct phi_error *err);

/* Appends the prompt's ids: its text through the model's tokenizer, or its ids as they are. */
enum phi_status cli_prompt_ids(const struct phi_model *model, const struct cli_prompt *prompt,
                               bool special_tokens, struct phi_ids *out, struct phi_error *err);

#endif
