/* phidelity.h: the one public header.
 *
 * How to think of it: a *model* is an opened checkpoint folder (weights mapped, tokenizer and chat
 * template ready; immutable, shared by everyone). An *engine* owns one model's KV memory and runs
 * requests on it. A *request* is one prompt with its sampling parameters; it yields events until it
 * ends. Everything is addressed by handles; the structs below are plain values that the caller
 * owns.
 *
 * Errors: a function that can fail returns PHI_OK or a negative enum phi_status and, when its last
 * argument `err` is not NULL, fills it with a code and one line of text that names the file,
 * tensor, field or byte. The library never exits, aborts on bad input, or prints.
 */
#ifndef PHIDELITY_H
#define PHIDELITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum phi_status {
    PHI_OK = 0,
    PHI_ERR_INVALID = -1,     /* an argument or request field is out of range */
    PHI_ERR_IO = -2,          /* a file cannot be opened, read or mapped */
    PHI_ERR_FORMAT = -3,      /* a file's content is malformed */
    PHI_ERR_UNSUPPORTED = -4, /* well-formed, but not something this program runs */
    PHI_ERR_MEMORY = -5,      /* an allocation failed or would exceed its limit */
    PHI_ERR_TOO_LONG = -6,    /* prompt or context exceeds what the model or the KV pool can hold */
    PHI_ERR_CANCELLED = -7,   /* the caller cancelled */
    PHI_ERR_NAN = -8,         /* the model produced NaN or infinite logits */
    PHI_ERR_INTERNAL = -9,    /* a bug; the text says where */
    PHI_ERR_BUSY = -10        /* too many requests wait; may succeed later */
};

struct phi_error {
    enum phi_status code;
    char text[1024]; /* one line, UTF-8, no trailing newline */
};

/* How matrix inputs and weights are held; docs/NUMERICS.md. PHI_AUTO: as the checkpoint says. */
enum phi_dtype { PHI_AUTO = 0, PHI_FLOAT32 = 1, PHI_BFLOAT16 = 2, PHI_FLOAT16 = 3 };

/* Integer weights of the linear layers, with int8 activations; docs/NUMERICS.md section 10.
 * PHI_UNQUANTIZED: as the checkpoint holds them. */
enum phi_quantization { PHI_UNQUANTIZED = 0, PHI_W8A8 = 1, PHI_W4A8 = 2 };

/* A counted string: UTF-8, may hold NUL bytes, not NUL-terminated. */
struct phi_text {
    const char *data;
    size_t n;
};

const char *phi_version(void);

/* Frees memory that a function below documents as owned by the caller. NULL is fine. */
void phi_mem_free(void *p);

/* Log lines of the library go to `sink` (level 0 debug, 1 info, 2 warning, 3 error); without one
 * they go nowhere. Set it before anything else; it may be called from any thread. */
void phi_set_log(void (*sink)(void *context, int level, const char *line), void *context);

/* ---------------------------------------------------------------- model */

struct phi_model;

/* Large weights are read at full speed from pages of 2 MiB only. Linux fills its page cache with those when
 * it reads a file for such a mapping, but what a download or a copy has put there is in small pages. */
enum phi_load_strategy {
    PHI_LOAD_AUTO,     /* weights are mapped; behind the opened model small pages are exchanged */
    PHI_LOAD_LAZY,     /* weights are mapped, and read when they are used; the cache stays as it is */
    PHI_LOAD_PREFETCH, /* the cache is filled with large pages before the model is open */
    PHI_LOAD_EAGER     /* weights are read into large pages of the process: for file systems over a network
                          and others without large pages. Costs memory that processes do not share */
};

/* `done` of `total` bytes of the named stage ("loading", "converting"). Called from the opening
 * thread. */
typedef void (*phi_progress_fn)(void *context, const char *stage, uint64_t done, uint64_t total);

struct phi_model_options {
    const char *path;      /* the checkpoint folder; required */
    const char *tokenizer; /* another folder for tokenizer and template; NULL = path */
    const char *chat_template; /* a file, or a text that holds '{'; NULL = the folder's */
    enum phi_dtype dtype; /* PHI_AUTO = as config.json says */
    enum phi_quantization quantization; /* quantises linear layers of floats at load */
    int quant_group_size; /* of PHI_W4A8: columns with one scale, a multiple of 32; 0 = the greatest
                             of 128, 64, 32 that divides all layers' columns */
    bool keep_lm_head;    /* leave the output head as it is; it is made int8 otherwise */
    bool no_weights;      /* tokenizer and template only */
    bool dummy_weights;   /* --load-format dummy: seeded random weights from config.json alone */
    bool count_weights;   /* config.json says what weights there are, and none are made: enough for
                             phi_model_get_info and phi_engine_plan, not for an engine */
    enum phi_load_strategy load_strategy;
    uint64_t seed;        /* of the dummy weights */
    int n_threads;        /* 0 = the physical cores this process may use */
    phi_progress_fn progress; /* NULL = none */
    void *progress_context;
};

void phi_model_options_init(struct phi_model_options *o);

enum phi_status phi_model_open(const struct phi_model_options *o, struct phi_model **out,
                               struct phi_error *err);
void phi_model_close(struct phi_model *m); /* after every engine on it is destroyed; NULL is fine */

struct phi_model_info {
    char architecture[64]; /* "PhiForCausalLM", "Phi3ForCausalLM" */
    char isa[16];          /* "ref", "avx2", "avx512", "avx512_vnni", "avx512_bf16" */
    enum phi_dtype dtype;  /* of this run, never PHI_AUTO */
    enum phi_dtype file_dtype;
    enum phi_quantization quantization; /* of the layers, from the file or made at load */
    uint64_t n_parameters;
    uint64_t weight_bytes;    /* mapped from files */
    uint64_t converted_bytes; /* held in memory: narrower than the file as asked, quantised, or read
                                 there by PHI_LOAD_EAGER */
    int n_layers, hidden_size, n_heads, n_kv_heads, head_dim, rotary_dim, vocab_size;
    int n_token_ids;             /* 1 + the greatest id with a token; <= vocab_size */
    int max_position_embeddings; /* the longest context of the checkpoint */
    int original_max_position_embeddings;
    int sliding_window; /* 0 = none */
    double rope_theta;
    char rope_type[16];
    int n_stop_ids;
    int32_t stop_ids[64];
    int32_t bos_id, eos_id; /* -1 = none */
    bool truncates_left;    /* the tokenizer cuts long prompts at their beginning */
    int longest_token_bytes; /* no token is more bytes of text, blanks aside; 0 = unknown */
    bool has_chat_template;
    bool has_weights;
    int n_threads;
};

void phi_model_get_info(const struct phi_model *m, struct phi_model_info *out);

/* Writes a model that was opened with `quantization` into the folder out_dir, made when missing, as a
 * checkpoint in the compressed-tensors layout, which vLLM reads too: integers and scales in place of
 * the quantised weights, everything else as it was, and the tokenizer's files. A head that is the
 * embedding stays that. PHI_ERR_INVALID when the model has no integers of ours, or when out_dir holds
 * a checkpoint already. */
enum phi_status phi_model_write_quantized(const struct phi_model *m, const char *out_dir,
                                          struct phi_error *err);

/* Text to ids. *ids is the caller's to free with phi_mem_free. */
enum phi_status phi_tokenize(const struct phi_model *m, struct phi_text text,
                             bool add_special_tokens, int32_t **ids, size_t *n_ids,
                             struct phi_error *err);

/* Ids to text. *text (also NUL-terminated) is the caller's to free with phi_mem_free. */
enum phi_status phi_detokenize(const struct phi_model *m, const int32_t *ids, size_t n_ids,
                               bool skip_special_tokens, char **text, size_t *n_text,
                               struct phi_error *err);

/* The vocabulary's own spelling of a token ("Ġdef"), not its bytes; empty for an id without one,
 * as all are where the checkpoint has no tokenizer.
 * *text as in phi_detokenize. */
enum phi_status phi_token_spelling(const struct phi_model *m, int32_t id, char **text,
                                   size_t *n_text, struct phi_error *err);

/* The bytes that a token stands for inside a text (of a character, perhaps only a part); empty for
 * an id without one, as in phi_token_spelling. *bytes as *text in phi_detokenize. */
enum phi_status phi_token_bytes(const struct phi_model *m, int32_t id, char **bytes,
                                size_t *n_bytes, struct phi_error *err);

/* Renders a JSON array of chat messages through the checkpoint's template. `options_json` (n = 0:
 * none) is an object with any of add_generation_prompt (default true), continue_final_message,
 * tools, documents, chat_template_kwargs, and chat_template (a template text for this call only).
 * *text as in phi_detokenize. PHI_ERR_INVALID when there is no template or it refuses. */
enum phi_status phi_render_chat(const struct phi_model *m, struct phi_text messages_json,
                                struct phi_text options_json, char **text, size_t *n_text,
                                struct phi_error *err);

/* ---------------------------------------------------------------- engine */

struct phi_engine;

/* Who goes first when not all fit: whoever came first, or whoever has the lower priority. */
enum phi_policy { PHI_FCFS = 0, PHI_PRIORITY = 1 };

struct phi_engine_options {
    int max_model_len; /* 0 = the checkpoint's maximum, or the longest that fits kv_bytes */
    int max_num_seqs;  /* sequences decoding together; default 64 */
    int max_num_batched_tokens; /* token rows of one step; default 512 */
    int block_size;             /* tokens of a KV block; default 32, a multiple of 16 up to 256 */
    uint64_t kv_bytes; /* KV pool; 0 = what max_num_seqs sequences of max_model_len need, at most a
                          quarter of the machine's memory, at least one sequence */
    double memory_utilization; /* (0, 1]: the share of the machine's memory that this process may
                                  use in all; the KV pool gets what weights and scratch leave.
                                  0 = off; kv_bytes wins over it */
    enum phi_dtype kv_dtype;    /* PHI_AUTO = the model's dtype */
    bool enable_prefix_caching; /* default true: keep KV blocks for prompts that begin alike */
    enum phi_policy scheduling_policy;
    int max_waiting; /* requests that may wait for their first step; 0 = no limit */
    uint64_t seed;   /* of requests that bring none */
    bool bind_threads; /* keep each computing thread on a core of its own, if there are as many cores
                          and no other engine of the process has done so */
};

void phi_engine_options_init(struct phi_engine_options *o);

/* Everything the engine will hold is allocated here; too little memory is PHI_ERR_MEMORY with the
 * needed and the available bytes and the longest context that would fit. */
enum phi_status phi_engine_create(struct phi_model *m, const struct phi_engine_options *o,
                                  struct phi_engine **out, struct phi_error *err);
void phi_engine_destroy(struct phi_engine *e); /* aborts what still runs; NULL is fine */

struct phi_engine_info {
    int max_model_len, max_num_seqs, max_num_batched_tokens, block_size;
    enum phi_dtype kv_dtype;
    uint64_t kv_bytes, kv_tokens, kv_bytes_per_token, scratch_bytes;
};

void phi_engine_get_info(const struct phi_engine *e, struct phi_engine_info *out);

/* counts[i] values were at most bounds[i] and above the bound before it; counts[n] of them above
 * all bounds. */
struct phi_histogram {
    const double *bounds; /* [n], static */
    size_t n;
    uint64_t counts[32]; /* [n + 1] */
    double sum;
};

/* What happens in an engine now, and what has happened since its creation. */
struct phi_engine_stats {
    int n_running, n_waiting; /* answers */
    double kv_usage;          /* share of the KV blocks that answers hold, 0 .. 1 */
    uint64_t n_prompt_tokens; /* of requests whose prompt was computed; once, whatever their n */
    uint64_t n_cached_prompt_tokens; /* of these, taken from the prefix cache */
    uint64_t n_generated_tokens;
    uint64_t n_preemptions; /* answers that gave their KV blocks back for others */
    /* Prefix cache: tokens of the answers that were admitted, and how many of them did not have to
     * be computed. */
    uint64_t n_prefix_queries, n_prefix_hits;
    uint64_t n_crossings;    /* answers that outgrew LongRoPE's original length */
    uint64_t n_nan_requests; /* requests ended because of NaN or infinite logits */
    uint64_t n_steps;
    struct phi_histogram iteration_tokens; /* token rows of a step */
    struct phi_histogram inter_token_s;    /* between consecutive tokens of one answer */
};

/* From any thread, at any time; costs the engine nothing. */
void phi_engine_get_stats(const struct phi_engine *e, struct phi_engine_stats *out);

/* What phi_engine_create would plan, without allocating it (for `inspect`). */
enum phi_status phi_engine_plan(const struct phi_model *m, const struct phi_engine_options *o,
                                struct phi_engine_info *out, struct phi_error *err);

/* Logits of every position of one sequence, handed over in rising rows:
 * logits is float32 [n_rows, vocab_size], valid during the call. A nonzero return of `sink` stops
 * with PHI_ERR_CANCELLED. Runs on the engine's thread between steps; waits for it. */
typedef int (*phi_logits_sink)(void *context, size_t first_row, size_t n_rows, const float *logits);
enum phi_status phi_engine_logits(struct phi_engine *e, const int32_t *ids, size_t n_ids,
                                  phi_logits_sink sink, void *context, struct phi_error *err);

/* The same, and before the logits of some rows every tensor that lies between tokens and logits,
 * float32 [n_rows, n_cols], valid during the call: "hidden.0" the embeddings; "attention.i" and
 * "mlp.i" what the two parts of layer i add to the residual stream; "hidden.i" the stream behind
 * layer i - 1. Both functions get `context`. */
typedef void (*phi_trace_sink)(void *context, const char *name, size_t first_row, size_t n_rows,
                               size_t n_cols, const float *data);
enum phi_status phi_engine_trace(struct phi_engine *e, const int32_t *ids, size_t n_ids,
                                 phi_logits_sink sink, phi_trace_sink trace, void *context,
                                 struct phi_error *err);

/* ---------------------------------------------------------------- requests */

struct phi_logit_bias {
    int32_t token;
    float bias; /* clamped to [-100, 100] */
};

/* vLLM's SamplingParams: the same names, defaults and ranges. */
struct phi_sampling {
    int n;                     /* answers, 1..16384; default 1; more than 1 needs temperature > 0 */
    int max_tokens;            /* >= 1, or 0 = as many as the context allows; default 16 */
    int min_tokens;            /* no end before this many; default 0 */
    double temperature;        /* 0 = greedy; default 1 */
    double top_p;              /* (0, 1]; default 1 */
    int top_k;                 /* 0 or -1 = off */
    double min_p;              /* [0, 1]; default 0 */
    double repetition_penalty; /* > 0; default 1; prompt and output */
    double presence_penalty;   /* [-2, 2]; default 0; output only */
    double frequency_penalty;  /* [-2, 2]; default 0; output only */
    bool has_seed;
    int64_t seed;
    const struct phi_text *stop; /* strings, none empty */
    size_t n_stop;
    const int32_t *stop_token_ids;
    size_t n_stop_token_ids;
    bool include_stop_str_in_output;
    bool ignore_eos;
    bool skip_special_tokens; /* default true */
    const struct phi_logit_bias *logit_bias;
    size_t n_logit_bias;
    const int32_t *allowed_token_ids; /* NULL = all */
    size_t n_allowed_token_ids;
    const struct phi_text *bad_words;
    size_t n_bad_words;
    int logprobs;        /* -1 = none (default); k >= 0: the sampled token and the k best */
    int prompt_logprobs; /* the same for the prompt's tokens */
};

/* vLLM's defaults. */
void phi_sampling_init(struct phi_sampling *s);

/* The checkpoint's generation_config.json over vLLM's defaults (temperature, top_p, top_k, min_p,
 * repetition_penalty, max_new_tokens), as vLLM's --generation-config auto does. */
void phi_sampling_init_from_model(struct phi_sampling *s, const struct phi_model *m);

struct phi_request;

/* What is not sampling. All zero, as NULL, are the defaults. */
struct phi_request_options {
    int64_t priority; /* lower goes first, under PHI_PRIORITY */
    /* Prompts share cached KV blocks only with those of the same salt; n = 0: none. */
    struct phi_text cache_salt;
    /* Called from the engine's thread: with ended = false for each event that becomes ready for
     * phi_request_next, and once with ended = true as the very last thing, after which the engine
     * never touches notify_context again. That call comes exactly once for every request that was
     * submitted, however it ends. It must not block, allocate, or call the engine. */
    void (*notify)(void *notify_context, bool ended);
    void *notify_context;
};

/* Validates, copies everything it needs and queues the request. `o` may be NULL. PHI_ERR_INVALID
 * names the field, its value and its range; PHI_ERR_TOO_LONG says prompt, max_tokens and limit in
 * numbers; PHI_ERR_BUSY: max_waiting requests wait already. */
enum phi_status phi_request_submit(struct phi_engine *e, const int32_t *prompt_ids, size_t n_prompt,
                                   const struct phi_sampling *s,
                                   const struct phi_request_options *o, struct phi_request **out,
                                   struct phi_error *err);

enum phi_finish {
    PHI_FINISH_NONE = 0, /* goes on */
    PHI_FINISH_STOP,     /* a stop id, a stop string or the end of text */
    PHI_FINISH_LENGTH,   /* max_tokens or the context's end */
    PHI_FINISH_ABORT,    /* cancelled */
    PHI_FINISH_ERROR     /* see status and error */
};

struct phi_logprob {
    int32_t token;
    int32_t rank;  /* 1 = the most likely */
    float logprob; /* natural log of the raw distribution */
};

/* What is new of one answer: the tokens of one step, or of several when the reader was slower than
 * the engine. Pointers are valid until the next call on the same request. */
struct phi_event {
    int index;            /* which of the n answers */
    struct phi_text text; /* the piece that became certain; may be empty */
    const int32_t *tokens;
    size_t n_tokens;
    /* [n_tokens, n_logprobs]: the sampled token first, then the k best; entries with token -1 are
     * padding. n_logprobs is 0 when none were asked for. */
    const struct phi_logprob *logprobs;
    size_t n_logprobs;
    enum phi_finish finish; /* of this answer */
    int32_t stop_token;     /* the id that ended it (not the primary end of text), else -1 */
    struct phi_text stop_string;
    enum phi_status status; /* PHI_FINISH_ERROR: why */
    const char *error;
    bool last; /* the request's last event: all n answers have ended */
};

/* Waits at most timeout_ms (< 0 = no limit) for the next event. One thread at a time per request.
 * Returns 1 with *ev filled, 0 on timeout, -1 when the last event was already delivered. */
int phi_request_next(struct phi_request *r, struct phi_event *ev, int timeout_ms);

/* Prompt logprobs, complete when the first event is delivered: [n_prompt, n_logprobs]; row 0 is all
 * padding (token -1). NULL when not asked for. Owned by the request. */
const struct phi_logprob *phi_request_prompt_logprobs(const struct phi_request *r,
                                                      size_t *n_logprobs);

/* Ends the request soon; its last event has PHI_FINISH_ABORT. From any thread. */
void phi_request_cancel(struct phi_request *r);

/* Times in seconds since submission, 0 = not yet. From the thread that reads the events; what it
 * says is complete once the last event was delivered. */
struct phi_request_stats {
    double queue_s, first_token_s, end_s;
    size_t n_prompt_tokens, n_output_tokens;
    size_t n_cached_tokens; /* of the prompt, taken from the prefix cache at its first start */
    size_t n_preemptions;   /* of all its answers */
};
void phi_request_get_stats(const struct phi_request *r, struct phi_request_stats *out);

void phi_request_release(struct phi_request *r); /* cancels if still running; NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
