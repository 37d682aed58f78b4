/* serve_inert.c: vLLM's flags that do nothing here, so that a script written for `vllm serve`
 * starts, or is told why it cannot. Ignored: what only concerns how vLLM computes. Refused: what
 * would change answers, or what clients may ask for. Flags of one reason stand together. */
#include "cli/serve.h"

#define BOOLEAN(flag, why) {.name = flag, .kind = CLI_BOOL, .ignored = why}
#define VALUE(flag, why) {.name = flag, .kind = CLI_TEXT, .ignored = why}
#define WORDS(flag, why) {.name = flag, .kind = CLI_WORDS, .ignored = why}
#define JSON(flag, why) {.name = flag, .kind = CLI_JSON, .ignored = why}

#define NO_REMOTE_CODE "Phi is built in, and no code of a checkpoint is ever run"
#define NO_GRAPHS "nothing is compiled or captured; the kernels are there"
#define NO_DEVICE "this program computes on CPUs"
#define NO_DOWNLOAD "MODEL is a folder, and nothing is downloaded"
#define NO_SWAP "the KV cache is in the machine's memory already; see --kv-cache-memory-bytes"
#define ONE_PROCESS "one process does it all"
#define ONE_WAY "there is one implementation"
#define ALWAYS_CHUNKED \
    "prompts that are longer than a step has tokens for are always split, without any effect on " \
    "the answer, and share each step in order of arrival; the long ones have a quarter of it " \
    "while others are there"
#define IS_DEFAULT "it is the default"
#define TEXT_ONLY "the models are text only"
#define NO_EXPERTS "the models have no experts"
#define NO_MAMBA "the models are transformers"
#define NO_LORA_HERE "without LoRA there is nothing to set"
#define NO_TOOLS_HERE "tool calls are not supported yet"
#define NO_GRAMMARS \
    "structured output is not supported yet; a request for it is answered 400"
#define OWN_LIMITS "header lines are bounded by their size; see --max-header-bytes"
#define NO_PROFILE "there is nothing of that kind to observe; see /metrics"
#define NO_TORCH "it configures PyTorch"

/* clang-format off */
const struct cli_option_group serve_ignored_group = {
    "Flags of vLLM's that are accepted and have no effect",
    (const struct cli_option[]){
        BOOLEAN("trust-remote-code", NO_REMOTE_CODE),

        BOOLEAN("enforce-eager", NO_GRAPHS),
        {.name = "compilation-config", .brief = "cc", .kind = CLI_JSON, .ignored = NO_GRAPHS},
        {.name = "optimization-level", .brief = "O", .kind = CLI_TEXT, .ignored = NO_GRAPHS},
        WORDS("cudagraph-capture-sizes", NO_GRAPHS),
        WORDS("cuda-graph-sizes", NO_GRAPHS),
        VALUE("max-cudagraph-capture-size", NO_GRAPHS),
        VALUE("max-seq-len-to-capture", NO_GRAPHS),

        VALUE("device", NO_DEVICE),
        VALUE("attention-backend", NO_DEVICE),
        VALUE("performance-mode", NO_DEVICE),
        VALUE("moe-backend", NO_DEVICE),
        VALUE("linear-backend", NO_DEVICE),
        VALUE("gdn-prefill-backend", NO_DEVICE),
        {.name = "attention-config", .brief = "ac", .kind = CLI_JSON, .ignored = NO_DEVICE},
        JSON("kernel-config", NO_DEVICE),
        JSON("additional-config", NO_DEVICE),
        VALUE("ir-op-priority", NO_DEVICE),
        BOOLEAN("enable-flashinfer-autotune", NO_DEVICE),
        BOOLEAN("disable-custom-all-reduce", NO_DEVICE),
        BOOLEAN("disable-cascade-attn", NO_DEVICE),
        BOOLEAN("use-fp64-gumbel", NO_DEVICE),
        BOOLEAN("numa-bind", NO_DEVICE),
        WORDS("numa-bind-nodes", NO_DEVICE),
        WORDS("numa-bind-cpus", NO_DEVICE),

        VALUE("swap-space", NO_SWAP),
        VALUE("cpu-offload-gb", NO_SWAP),
        WORDS("cpu-offload-params", NO_SWAP),
        VALUE("offload-backend", NO_SWAP),
        VALUE("offload-group-size", NO_SWAP),
        VALUE("offload-num-in-group", NO_SWAP),
        VALUE("offload-prefetch-step", NO_SWAP),
        WORDS("offload-params", NO_SWAP),
        VALUE("kv-offloading-size", NO_SWAP),
        VALUE("kv-offloading-backend", NO_SWAP),

        VALUE("download-dir", NO_DOWNLOAD),
        VALUE("revision", NO_DOWNLOAD),
        VALUE("code-revision", NO_DOWNLOAD),
        VALUE("tokenizer-revision", NO_DOWNLOAD),
        VALUE("hf-token", NO_DOWNLOAD),
        VALUE("ignore-patterns", NO_DOWNLOAD),
        BOOLEAN("use-tqdm-on-load", NO_DOWNLOAD),

        VALUE("safetensors-prefetch-num-threads",
              "weights are mapped, and read when they are used"),
        VALUE("safetensors-prefetch-block-size", "weights are mapped, and read when they are used"),
        VALUE("pt-load-map-location", "weights are mapped, and read when they are used"),
        VALUE("max-parallel-loading-workers", "weights are mapped, and read when they are used"),
        JSON("model-loader-extra-config", "weights are mapped, and read when they are used"),

        BOOLEAN("async-scheduling", "there is no device whose work scheduling could overlap"),

        BOOLEAN("enable-chunked-prefill", ALWAYS_CHUNKED),
        VALUE("max-num-partial-prefills", ALWAYS_CHUNKED),
        VALUE("max-long-partial-prefills", ALWAYS_CHUNKED),
        VALUE("long-prefill-token-threshold", ALWAYS_CHUNKED),
        VALUE("max-num-scheduled-tokens", ALWAYS_CHUNKED),
        BOOLEAN("disable-chunked-mm-input", ALWAYS_CHUNKED),
        BOOLEAN("scheduler-reserve-full-isl", ALWAYS_CHUNKED),

        VALUE("prefix-caching-hash-algo",
              "blocks are found by a seeded XXH3-128 and their tokens compared"),

        VALUE("distributed-executor-backend", ONE_PROCESS),
        VALUE("api-server-count", ONE_PROCESS),
        VALUE("renderer-num-workers", ONE_PROCESS),
        VALUE("distributed-timeout-seconds", ONE_PROCESS),
        BOOLEAN("aggregate-engine-logging", ONE_PROCESS),
        BOOLEAN("disable-frontend-multiprocessing", ONE_PROCESS),
        BOOLEAN("ray-workers-use-nsight", ONE_PROCESS),
        VALUE("tokenizer-pool-size", ONE_PROCESS),
        VALUE("data-parallel-backend", ONE_PROCESS),
        VALUE("data-parallel-address", ONE_PROCESS),
        VALUE("data-parallel-rpc-port", ONE_PROCESS),
        VALUE("master-addr", ONE_PROCESS),
        VALUE("master-port", ONE_PROCESS),
        VALUE("cp-kv-cache-interleave-size", ONE_PROCESS),
        VALUE("dcp-kv-cache-interleave-size", ONE_PROCESS),
        VALUE("dcp-comm-backend", ONE_PROCESS),
        VALUE("data-parallel-supervisor-port", ONE_PROCESS),
        VALUE("dp-supervisor-probe-interval-s", ONE_PROCESS),
        VALUE("dp-supervisor-probe-timeout-s", ONE_PROCESS),
        VALUE("dp-supervisor-probe-failure-threshold", ONE_PROCESS),

        VALUE("model-impl", ONE_WAY),
        VALUE("cohere-format", ONE_WAY),
        BOOLEAN("cohere-is-reasoning-model", ONE_WAY),
        VALUE("config-format", ONE_WAY),
        BOOLEAN("use-v2-block-manager", ONE_WAY),
        VALUE("num-lookahead-slots", ONE_WAY),
        BOOLEAN("disable-hybrid-kv-cache-manager", ONE_WAY),
        BOOLEAN("kv-sharing-fast-prefill", ONE_WAY),
        BOOLEAN("calculate-kv-scales", ONE_WAY),
        WORDS("kv-cache-dtype-skip-layers", ONE_WAY),
        VALUE("preemption-mode", ONE_WAY),

        BOOLEAN("disable-log-requests", IS_DEFAULT),
        BOOLEAN("enable-log-deltas", "an answer is logged when it is complete"),
        BOOLEAN("log-error-stack", "errors say in one line what and where"),

        BOOLEAN("skip-tokenizer-init", "requests with token ids work beside those with text"),
        BOOLEAN("tokens-only", "requests with token ids work beside those with text"),

        BOOLEAN("exclude-tools-when-tool-choice-none", NO_TOOLS_HERE),
        JSON("structured-outputs-config", NO_GRAMMARS),
        VALUE("guided-decoding-backend", NO_GRAMMARS),

        VALUE("fingerprint-mode", "system_fingerprint names this program and its version"),
        VALUE("fingerprint-value", "system_fingerprint names this program and its version"),

        VALUE("h11-max-header-count", OWN_LIMITS),

        VALUE("max-loras", NO_LORA_HERE),
        VALUE("max-lora-rank", NO_LORA_HERE),
        VALUE("max-cpu-loras", NO_LORA_HERE),
        VALUE("lora-dtype", NO_LORA_HERE),
        VALUE("lora-extra-vocab-size", NO_LORA_HERE),
        WORDS("lora-target-modules", NO_LORA_HERE),
        BOOLEAN("fully-sharded-loras", NO_LORA_HERE),
        BOOLEAN("enable-lora-bias", NO_LORA_HERE),
        BOOLEAN("enable-tower-connector-lora", NO_LORA_HERE),
        BOOLEAN("specialize-active-lora", NO_LORA_HERE),
        BOOLEAN("enable-mixed-moe-lora-format", NO_LORA_HERE),

        BOOLEAN("language-model-only", TEXT_ONLY),
        VALUE("limit-mm-per-prompt", TEXT_ONLY),
        VALUE("allowed-local-media-path", TEXT_ONLY),
        WORDS("allowed-media-domains", TEXT_ONLY),
        JSON("media-io-kwargs", TEXT_ONLY),
        JSON("mm-processor-kwargs", TEXT_ONLY),
        VALUE("mm-processor-cache-gb", TEXT_ONLY),
        VALUE("mm-processor-cache-type", TEXT_ONLY),
        VALUE("mm-shm-cache-max-object-size-mb", TEXT_ONLY),
        BOOLEAN("disable-mm-preprocessor-cache", TEXT_ONLY),
        BOOLEAN("mm-encoder-only", TEXT_ONLY),
        VALUE("mm-encoder-tp-mode", TEXT_ONLY),
        VALUE("mm-encoder-attn-backend", TEXT_ONLY),
        VALUE("mm-encoder-attn-dtype", TEXT_ONLY),
        VALUE("mm-encoder-fp8-scale-path", TEXT_ONLY),
        VALUE("mm-encoder-fp8-scale-save-path", TEXT_ONLY),
        VALUE("mm-encoder-fp8-scale-save-margin", TEXT_ONLY),
        BOOLEAN("interleave-mm-strings", TEXT_ONLY),
        BOOLEAN("skip-mm-profiling", TEXT_ONLY),
        VALUE("video-pruning-rate", TEXT_ONLY),
        VALUE("mm-tensor-ipc", TEXT_ONLY),
        JSON("default-mm-loras", TEXT_ONLY),
        BOOLEAN("enable-flash-late-interaction", TEXT_ONLY),

        {.name = "enable-expert-parallel", .brief = "ep", .kind = CLI_BOOL,
         .ignored = NO_EXPERTS},
        BOOLEAN("enable-ep-weight-filter", NO_EXPERTS),
        VALUE("all2all-backend", NO_EXPERTS),
        BOOLEAN("enable-eplb", NO_EXPERTS),
        JSON("eplb-config", NO_EXPERTS),
        VALUE("expert-placement-strategy", NO_EXPERTS),
        BOOLEAN("enable-elastic-ep", NO_EXPERTS),
        BOOLEAN("enable-dbo", NO_EXPERTS),
        VALUE("ubatch-size", NO_EXPERTS),
        VALUE("dbo-decode-token-threshold", NO_EXPERTS),
        VALUE("dbo-prefill-token-threshold", NO_EXPERTS),
        BOOLEAN("enable-return-routed-experts", NO_EXPERTS),
        BOOLEAN("disable-nccl-for-dp-synchronization", NO_EXPERTS),

        VALUE("mamba-backend", NO_MAMBA),
        VALUE("mamba-block-size", NO_MAMBA),
        VALUE("mamba-cache-dtype", NO_MAMBA),
        VALUE("mamba-ssm-cache-dtype", NO_MAMBA),
        VALUE("mamba-cache-mode", NO_MAMBA),
        BOOLEAN("enable-mamba-cache-stochastic-rounding", NO_MAMBA),
        VALUE("mamba-cache-philox-rounds", NO_MAMBA),

        VALUE("show-hidden-metrics-for-version", NO_PROFILE),
        BOOLEAN("kv-cache-metrics", NO_PROFILE),
        VALUE("kv-cache-metrics-sample", NO_PROFILE),
        BOOLEAN("cudagraph-metrics", NO_PROFILE),
        BOOLEAN("enable-layerwise-nvtx-tracing", NO_PROFILE),
        BOOLEAN("enable-mfu-metrics", NO_PROFILE),
        BOOLEAN("enable-logging-iteration-details", NO_PROFILE),

        VALUE("override-attention-dtype", NO_TORCH),
        BOOLEAN("allow-deprecated-quantization", NO_TORCH),
        BOOLEAN("fail-on-environ-validation", NO_TORCH),
        BOOLEAN("disable-fastapi-docs", "the only such page is /openapi.json"),
        BOOLEAN("enable-offline-docs", "the only such page is /openapi.json"),
        {0},
    },
};

#undef BOOLEAN
#undef VALUE
#undef WORDS
#undef JSON
#define BOOLEAN(flag, why) {.name = flag, .kind = CLI_BOOL, .refused = why}
#define VALUE(flag, fine, why) \
    {.name = flag, .kind = CLI_TEXT, .refused = why, .harmless = fine}
#define WORDS(flag, why) {.name = flag, .kind = CLI_WORDS, .refused = why}
#define JSON(flag, fine, why) \
    {.name = flag, .kind = CLI_JSON, .refused = why, .harmless = fine}
#define COUNT(flag, short_name, why) \
    {.name = flag, .brief = short_name, .kind = CLI_INT, .min = 1, .max = 1 << 20, \
     .refused = why, .harmless = "1"}

#define NOT_PARALLEL "the model runs in one process for now, on all cores that it may use"
#define NOT_REPLICATED "start several servers on ports of their own, with a proxy in front"
#define NOT_QUANTISED "what is quantised is said by --quantization and the checkpoint"
#define NO_LORA "LoRA adapters are not supported; merge them into the weights"
#define NO_SPECULATION "speculative decoding is not supported"
#define NO_TOOLS "tool calls are not supported yet"
#define NO_REASONING "the answer's reasoning is not taken apart from the rest yet"
#define NO_PLUGINS "no Python runs here"
#define AS_IT_IS "config.json is taken as it is; change it in a copy of the folder"
#define NO_TRANSFER "KV blocks cannot be taken from or given to another server"
#define NO_POOLING "the server generates text, and nothing else"
#define NO_ROUTE "there is no such route"

const struct cli_option_group serve_refused_group = {
    "Flags of vLLM's that are refused",
    (const struct cli_option[]){
        COUNT("tensor-parallel-size", "tp", NOT_PARALLEL),
        COUNT("pipeline-parallel-size", "pp", NOT_PARALLEL),
        COUNT("prefill-context-parallel-size", "pcp", NOT_PARALLEL),
        COUNT("decode-context-parallel-size", "dcp", NOT_PARALLEL),
        COUNT("nnodes", "n", NOT_PARALLEL),
        {.name = "node-rank", .brief = "r", .kind = CLI_INT, .refused = NOT_PARALLEL,
         .harmless = "0"},

        COUNT("data-parallel-size", "dp", NOT_REPLICATED),
        COUNT("data-parallel-size-local", "dpl", NOT_REPLICATED),
        {.name = "data-parallel-rank", .brief = "dpn", .kind = CLI_INT,
         .refused = NOT_REPLICATED, .harmless = "0"},
        {.name = "data-parallel-start-rank", .brief = "dpr", .kind = CLI_INT,
         .refused = NOT_REPLICATED, .harmless = "0"},
        BOOLEAN("data-parallel-hybrid-lb", NOT_REPLICATED),
        BOOLEAN("data-parallel-external-lb", NOT_REPLICATED),
        BOOLEAN("headless", NOT_REPLICATED),

        JSON("quantization-config", "{}", NOT_QUANTISED),

        BOOLEAN("enable-lora", NO_LORA),
        WORDS("lora-modules", NO_LORA),

        {.name = "speculative-config", .brief = "sc", .kind = CLI_JSON,
         .refused = NO_SPECULATION},
        VALUE("spec-method", NULL, NO_SPECULATION),
        VALUE("spec-model", NULL, NO_SPECULATION),
        VALUE("spec-tokens", "0", NO_SPECULATION),

        BOOLEAN("enable-auto-tool-choice", NO_TOOLS),
        VALUE("tool-call-parser", NULL, NO_TOOLS),
        VALUE("tool-server", NULL, NO_TOOLS),

        VALUE("reasoning-parser", "", NO_REASONING),
        JSON("reasoning-config", "{}", NO_REASONING),

        VALUE("tool-parser-plugin", "", NO_PLUGINS),
        VALUE("reasoning-parser-plugin", "", NO_PLUGINS),
        VALUE("io-processor-plugin", NULL, NO_PLUGINS),
        WORDS("logits-processors", NO_PLUGINS),
        WORDS("middleware", NO_PLUGINS),
        VALUE("scheduler-cls", NULL, NO_PLUGINS),
        VALUE("worker-cls", "auto", NO_PLUGINS),
        VALUE("worker-extension-cls", "", NO_PLUGINS),
        VALUE("log-config-file", NULL, NO_PLUGINS),

        JSON("hf-overrides", "{}", AS_IT_IS),
        VALUE("hf-config-path", NULL, AS_IT_IS),
        JSON("rope-scaling", "{}", AS_IT_IS),
        VALUE("rope-theta", NULL, AS_IT_IS),

        VALUE("tokenizer-mode", "auto|hf|slow|fast",
              "the tokenizer is the checkpoint's tokenizer.json"),
        VALUE("chat-template-content-format", "auto|string",
              "templates get the text of a message as one string"),
        VALUE("logprobs-mode", "raw_logprobs",
              "logprobs are those of the model, before temperature and penalties"),

        JSON("kv-transfer-config", "{}", NO_TRANSFER),
        JSON("kv-events-config", "{}", NO_TRANSFER),
        JSON("ec-transfer-config", "{}", NO_TRANSFER),
        JSON("weight-transfer-config", "{}", NO_TRANSFER),

        VALUE("runner", "auto|generate", NO_POOLING),
        VALUE("task", "auto|generate", NO_POOLING),
        VALUE("convert", "auto|none", NO_POOLING),
        JSON("pooler-config", "{}", NO_POOLING),
        BOOLEAN("enable-prompt-embeds", "prompts are text or token ids"),
        BOOLEAN("enable-mm-embeds", "prompts are text or token ids"),

        BOOLEAN("enable-tokenizer-info-endpoint", NO_ROUTE),
        BOOLEAN("enable-sleep-mode", NO_ROUTE),
        BOOLEAN("grpc", NO_ROUTE),
        JSON("profiler-config", "{}", NO_ROUTE),
        BOOLEAN("enable-per-request-metrics", "answers carry no timings; see /metrics"),

        VALUE("otlp-traces-endpoint", NULL, "no traces are made; see /metrics"),
        WORDS("collect-detailed-traces", "no traces are made; see /metrics"),

        VALUE("ssl-ciphers", NULL, "TLS 1.2 and 1.3 with GnuTLS's defaults are offered"),
        BOOLEAN("enable-ssl-refresh", "new certificates are read at a restart"),
        {0},
    },
};
/* clang-format on */
