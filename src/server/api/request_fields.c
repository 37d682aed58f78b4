/* request_fields.c: the rows of fields.h: every field of every request body, with vLLM's names,
 * defaults and ranges. */
#include "server/api/fields.h"

#include <math.h>

/* clang-format off */
#define AT(member) .offset = offsetof(struct phi_fields, member)
#define NOWHERE .offset = PHI_NO_MEMBER
#define BOOL(field, text)                                                                          \
    {.name = #field, .kind = PHI_FIELD_BOOL, AT(field), .initial = "false", .help = text}
#define BOOL_TRUE(field, text)                                                                     \
    {.name = #field, .kind = PHI_FIELD_BOOL, AT(field), .flags = PHI_FIELD_TRUE,                   \
     .initial = "true", .help = text}
#define LATER(field, kind_, flags_, text) \
    {.name = field, .kind = kind_, NOWHERE, .flags = PHI_FIELD_LATER | (flags_), .help = text}
#define IGNORED(field, kind_, text) \
    {.name = field, .kind = kind_, NOWHERE, .flags = PHI_FIELD_IGNORED, .help = text}

static const struct phi_field model_row[] = {
    {.name = "model", .kind = PHI_FIELD_TEXT, AT(model),
     .help = "a name that /v1/models lists; null and \"\" mean the model that is served"},
    {0},
};

/* What completions and chat share. */
static const struct phi_field generation_rows[] = {
    {.name = "temperature", .kind = PHI_FIELD_REAL, AT(temperature), .flags = PHI_FIELD_NAMED,
     .lo = 0, .hi = 2, .must = "be in [0, 2]", .initial = "generation_config.json, else 1",
     .help = "0 takes the likeliest token"},
    {.name = "top_p", .kind = PHI_FIELD_REAL, AT(top_p), .flags = PHI_FIELD_NAMED | PHI_FIELD_ABOVE,
     .lo = 0, .hi = 1, .must = "be in (0, 1]", .initial = "generation_config.json, else 1",
     .help = "sample from the likeliest tokens that have this much probability together"},
    {.name = "top_k", .kind = PHI_FIELD_INT, AT(top_k), .lo = -1, .hi = INT32_MAX,
     .must = "be 0 or -1 (disable), or at least 1", .initial = "generation_config.json, else 0",
     .help = "sample from this many likeliest tokens"},
    {.name = "min_p", .kind = PHI_FIELD_REAL, AT(min_p), .lo = 0, .hi = 1, .must = "be in [0, 1]",
     .initial = "generation_config.json, else 0",
     .help = "leave out tokens below this share of the likeliest one's probability"},
    {.name = "repetition_penalty", .kind = PHI_FIELD_REAL, AT(repetition_penalty),
     .flags = PHI_FIELD_ABOVE, .lo = 0, .hi = INFINITY, .must = "be greater than zero",
     .initial = "generation_config.json, else 1",
     .help = "divides the scores of tokens that prompt or answer hold"},
    {.name = "presence_penalty", .kind = PHI_FIELD_REAL, AT(presence_penalty), .lo = -2, .hi = 2,
     .must = "be in [-2, 2]", .initial = "0", .help = "once for each token that the answer holds"},
    {.name = "frequency_penalty", .kind = PHI_FIELD_REAL, AT(frequency_penalty), .lo = -2, .hi = 2,
     .must = "be in [-2, 2]",
     .initial = "0", .help = "for each time that the answer holds a token"},
    {.name = "n", .kind = PHI_FIELD_INT, AT(n), .lo = 1, .hi = 16384,
     .must = "be at least 1 and at most 16384",
     .initial = "1", .help = "answers to each prompt; more than 1 needs a temperature"},
    {.name = "seed", .kind = PHI_FIELD_INT, AT(seed),
     .help = "the same seed gives the same answer; null and -1 mean none"},
    {.name = "stop", .kind = PHI_FIELD_STOP, AT(stop),
     .help = "a string or several, none of them empty: the answer ends before the first of them"},
    {.name = "stop_token_ids", .kind = PHI_FIELD_IDS, AT(stop_token_ids),
     .help = "tokens that end the answer, beside those of the model"},
    BOOL(include_stop_str_in_output, "keep what ended the answer in its text"),
    BOOL(ignore_eos, "go on past the model's end tokens"),
    {.name = "min_tokens", .kind = PHI_FIELD_INT, AT(min_tokens), .lo = 0, .hi = INT32_MAX,
     .must = "be greater than or equal to 0",
     .initial = "0", .help = "no end before this many tokens"},
    {.name = "logit_bias", .kind = PHI_FIELD_BIAS, AT(logit_bias),
     .help = "token id to number, clamped to [-100, 100], added to the token's score"},
    {.name = "allowed_token_ids", .kind = PHI_FIELD_IDS, AT(allowed_token_ids),
     .help = "sample from these tokens only"},
    {.name = "bad_words", .kind = PHI_FIELD_TEXTS, AT(bad_words),
     .help = "strings that must not come up"},
    BOOL_TRUE(skip_special_tokens, "leave control tokens out of the text"),
    IGNORED("spaces_between_special_tokens", PHI_FIELD_BOOL,
            "of slow tokenizers, which this server does not have"),
    {.name = "truncate_prompt_tokens", .kind = PHI_FIELD_INT, AT(truncate_prompt_tokens),
     .flags = PHI_FIELD_EARLY, .lo = -1, .hi = INFINITY, .must = "be greater than or equal to -1",
     .help = "keep only so many tokens of the prompt; -1: as many as fit"},
    {.name = "truncation_side", .kind = PHI_FIELD_TEXT, AT(truncation_side),
     .initial = "the tokenizer's",
     .help = "\"left\" keeps the prompt's last tokens, \"right\" its first",
     .schema = "{\"enum\":[\"left\",\"right\"]}"},
    {.name = "prompt_logprobs", .kind = PHI_FIELD_INT, AT(prompt_logprobs),
     .flags = PHI_FIELD_NAMED | PHI_FIELD_EARLY, .lo = -1, .hi = INFINITY,
     .must = "be a positive value or -1",
     .help = "log probabilities of the prompt's tokens, with this many alternatives; -1: all"},
    {.name = "response_format", .kind = PHI_FIELD_OBJECT, AT(response_format),
     .help = "{\"type\": \"text\"}; other types are not supported yet",
     .schema = "{\"type\":\"object\",\"required\":[\"type\"],"
               "\"properties\":{\"type\":{\"enum\":[\"text\"]}}}"},
    BOOL(stream, "send the answer piece by piece, as server-sent events"),
    {.name = "stream_options", .kind = PHI_FIELD_OBJECT, AT(stream_options),
     .help = "include_usage: a last chunk with the counts; continuous_usage_stats: counts in each "
             "chunk",
     .schema = "{\"type\":\"object\",\"properties\":{\"include_usage\":{\"type\":\"boolean\"},"
               "\"continuous_usage_stats\":{\"type\":\"boolean\"}}}"},
    {.name = "priority", .kind = PHI_FIELD_INT, AT(priority), .initial = "0",
     .help = "lower goes first, where the server schedules by priority"},
    {.name = "request_id", .kind = PHI_FIELD_TEXT, AT(request_id), .initial = "random",
     .help = "part of the answer's id; the header X-Request-Id wins over it"},
    BOOL(return_token_ids, "add the token ids of prompt and answer"),
    BOOL(return_tokens_as_token_ids, "write tokens of log probabilities as token_id:N"),
    {.name = "cache_salt", .kind = PHI_FIELD_TEXT, AT(cache_salt),
     .flags = PHI_FIELD_NAMED | PHI_FIELD_EARLY, .lo = 1, .must = "be a non-empty string",
     .help = "share cached prefixes only with requests of the same salt"},
    IGNORED("user", PHI_FIELD_TEXT, "who asks"),
    LATER("use_beam_search", PHI_FIELD_BOOL, 0, "beam search"),
    IGNORED("length_penalty", PHI_FIELD_REAL, "of beam search"),
    LATER("structured_outputs", PHI_FIELD_OBJECT, PHI_FIELD_NAMED, "constrains the answer's text"),
    LATER("guided_json", PHI_FIELD_VALUE, PHI_FIELD_NAMED,
          "the former name of structured_outputs.json"),
    LATER("guided_regex", PHI_FIELD_VALUE, PHI_FIELD_NAMED,
          "the former name of structured_outputs.regex"),
    LATER("guided_choice", PHI_FIELD_VALUE, PHI_FIELD_NAMED,
          "the former name of structured_outputs.choice"),
    LATER("guided_grammar", PHI_FIELD_VALUE, PHI_FIELD_NAMED,
          "the former name of structured_outputs.grammar"),
    LATER("logprob_token_ids", PHI_FIELD_IDS, PHI_FIELD_NAMED,
          "log probabilities of chosen tokens"),
    LATER("repetition_detection", PHI_FIELD_OBJECT, PHI_FIELD_NAMED,
          "ends answers that repeat themselves"),
    LATER("thinking_token_budget", PHI_FIELD_INT, PHI_FIELD_NAMED,
          "bounds the tokens of reasoning"),
    LATER("kv_transfer_params", PHI_FIELD_OBJECT, PHI_FIELD_NAMED,
          "prefill and decode on separate servers"),
    LATER("vllm_xargs", PHI_FIELD_OBJECT, PHI_FIELD_NAMED, "arguments of extensions"),
    {0},
};

static const struct phi_field completion_rows[] = {
    {.name = "prompt", .kind = PHI_FIELD_PROMPT, AT(prompt), .flags = PHI_FIELD_REQUIRED,
     .help = "a string, an array of strings, token ids, or an array of arrays of token ids"},
    {.name = "max_tokens", .kind = PHI_FIELD_INT, AT(max_tokens), .flags = PHI_FIELD_NAMED, .lo = 0,
     .hi = INFINITY, .must = "be at least 1", .initial = "16",
     .help = "length of the answer in tokens; 0 is allowed with echo"},
    {.name = "logprobs", .kind = PHI_FIELD_INT, AT(logprobs),
     .flags = PHI_FIELD_NAMED | PHI_FIELD_EARLY, .lo = 0, .hi = INFINITY,
     .must = "be a positive value",
     .help = "log probabilities of the answer's tokens, with this many alternatives"},
    BOOL(echo, "begin the answer with the prompt"),
    BOOL_TRUE(add_special_tokens,
              "add what the tokenizer puts around a text, such as a begin token"),
    LATER("suffix", PHI_FIELD_TEXT, 0, "text after the answer"),
    LATER("prompt_embeds", PHI_FIELD_VALUE, 0, "prompts as embeddings"),
    {0},
};

static const struct phi_field conversation_rows[] = {
    {.name = "messages", .kind = PHI_FIELD_OBJECTS, AT(messages), .flags = PHI_FIELD_REQUIRED,
     .help = "the conversation: objects with role and content",
     .schema = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\","
               "\"required\":[\"role\"],\"properties\":{"
               "\"role\":{\"enum\":[\"system\",\"user\",\"assistant\",\"tool\"]},"
               "\"content\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"},"
               "{\"type\":\"array\",\"items\":{\"type\":\"object\","
               "\"required\":[\"type\",\"text\"],\"properties\":{"
               "\"type\":{\"enum\":[\"text\"]},\"text\":{\"type\":\"string\"}}}}]}}}}"},
    BOOL_TRUE(add_generation_prompt, "end the prompt where the assistant's turn begins"),
    BOOL(continue_final_message,
         "leave the last message open, to be continued; needs add_generation_prompt false"),
    BOOL(add_special_tokens,
         "add what the tokenizer puts around a text; the template usually has it"),
    {.name = "chat_template", .kind = PHI_FIELD_TEXT, AT(chat_template),
     .help = "a template for this request, if the server has --trust-request-chat-template"},
    {.name = "chat_template_kwargs", .kind = PHI_FIELD_OBJECT, AT(chat_template_kwargs),
     .help = "further variables of the template"},
    {.name = "tools", .kind = PHI_FIELD_OBJECTS, AT(tools),
     .help = "functions that the template shows to the model",
     .schema = "{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\","
               "\"required\":[\"type\",\"function\"],\"properties\":{"
               "\"type\":{\"enum\":[\"function\"]},\"function\":{\"type\":\"object\","
               "\"required\":[\"name\"],\"properties\":{\"name\":{\"type\":\"string\"}}}}}}"},
    {0},
};

static const struct phi_field chat_rows[] = {
    {.name = "max_tokens", .kind = PHI_FIELD_INT, AT(max_tokens), .flags = PHI_FIELD_NAMED, .lo = 1,
     .hi = INFINITY, .must = "be at least 1", .initial = "what the context leaves",
     .help = "length of the answer in tokens"},
    {.name = "max_completion_tokens", .kind = PHI_FIELD_INT, AT(max_completion_tokens),
     .flags = PHI_FIELD_NAMED, .lo = 1, .hi = INFINITY, .must = "be at least 1",
     .help = "the same; wins over max_tokens"},
    {.name = "logprobs", .kind = PHI_FIELD_BOOL, AT(chat_logprobs), .initial = "false",
     .help = "log probabilities of the answer's tokens"},
    {.name = "top_logprobs", .kind = PHI_FIELD_INT, AT(top_logprobs),
     .flags = PHI_FIELD_NAMED | PHI_FIELD_EARLY, .lo = -1, .hi = INFINITY,
     .must = "be a positive value or -1", .initial = "0",
     .help = "with this many alternatives; -1: all"},
    {.name = "documents", .kind = PHI_FIELD_OBJECTS, AT(documents),
     .help = "texts that the template may show to the model"},
    {.name = "tool_choice", .kind = PHI_FIELD_VALUE, AT(tool_choice),
     .initial = "\"auto\" with tools, else \"none\"",
     .help = "\"none\"; the others are not supported yet",
     .schema = "{\"enum\":[\"none\"]}"},
    IGNORED("parallel_tool_calls", PHI_FIELD_BOOL, "whether an answer may call several tools"),
    {.name = "reasoning_effort", .kind = PHI_FIELD_TEXT, AT(reasoning_effort),
     .help = "a variable of the template"},
    IGNORED("include_reasoning", PHI_FIELD_BOOL, "of servers with a reasoning parser"),
    BOOL(echo, "begin the answer with the last message, if it has the answer's role"),
    BOOL(return_prompt_text, "add the prompt as the template made it"),
    LATER("mm_processor_kwargs", PHI_FIELD_OBJECT, 0, "of images and sounds"),
    LATER("media_io_kwargs", PHI_FIELD_OBJECT, 0, "of images and sounds"),
    {0},
};

static const struct phi_field tokenize_text_rows[] = {
    {.name = "prompt", .kind = PHI_FIELD_TEXT, AT(prompt_text), .flags = PHI_FIELD_REQUIRED,
     .help = "the text"},
    BOOL_TRUE(add_special_tokens,
              "add what the tokenizer puts around a text, such as a begin token"),
    {0},
};

static const struct phi_field token_strs_rows[] = {
    BOOL(return_token_strs, "add the tokens as the vocabulary spells them"),
    {0},
};

static const struct phi_field detokenize_rows[] = {
    {.name = "tokens", .kind = PHI_FIELD_TOKENS, AT(tokens), .flags = PHI_FIELD_REQUIRED,
     .help = "token ids"},
    {0},
};

static const struct phi_field stream_option_rows[] = {
    BOOL(include_usage, "a last chunk with the counts"),
    BOOL(continuous_usage_stats, "counts in each chunk"),
    {0},
};

#define SET(path_, ...) {path_, (const struct phi_field *const[]){__VA_ARGS__, NULL}}
const struct phi_field_set phi_completion_fields =
    SET("", model_row, completion_rows, generation_rows);
const struct phi_field_set phi_chat_fields =
    SET("", conversation_rows, model_row, chat_rows, generation_rows);
const struct phi_field_set phi_tokenize_text_fields =
    SET("", model_row, tokenize_text_rows, token_strs_rows);
const struct phi_field_set phi_tokenize_chat_fields =
    SET("", model_row, conversation_rows, token_strs_rows);
const struct phi_field_set phi_detokenize_fields = SET("", model_row, detokenize_rows);
const struct phi_field_set phi_stream_option_fields = SET("stream_options.", stream_option_rows);
/* clang-format on */
