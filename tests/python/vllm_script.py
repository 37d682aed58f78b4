"""What a script for vLLM looks like, a page of it; only the import's name is another.

usage: vllm_script.py CODE_MODEL CHAT_MODEL [DTYPE]. Writes what it saw as JSON, for test_llm.py to compare
with program and server, and tests/oracle/test_python_oracle.py with transformers.
"""
import json
import sys

from phidelity import LLM, SamplingParams

prompts = [
    "def fibonacci(n):",
    "def is_prime(n):",
    "class Stack:\n    def push(self, item):",
]
dtype = sys.argv[3] if len(sys.argv) > 3 else "auto"
seen = {}


def tell(name, outputs):
    seen[name] = [{
        "prompt": output.prompt,
        "prompt_token_ids": output.prompt_token_ids,
        "answers": [{"text": o.text, "token_ids": list(o.token_ids), "finish_reason": o.finish_reason,
                     "stop_reason": o.stop_reason} for o in output.outputs],
    } for output in outputs]


# Text, greedy.
llm = LLM(model=sys.argv[1], trust_remote_code=True, enforce_eager=True, dtype=dtype, max_model_len=1024, seed=0)
greedy = SamplingParams(temperature=0.0, max_tokens=48)
outputs = llm.generate(prompts, greedy)
for output in outputs:
    print(f"Prompt: {output.prompt!r}, Generated text: {output.outputs[0].text!r}", file=sys.stderr)
tell("greedy", outputs)

# The same as token ids, one prompt in each of the forms.
tokenizer = llm.get_tokenizer()
tell("ids", llm.generate([{"prompt_token_ids": tokenizer.encode(p)} for p in prompts], greedy, use_tqdm=False))

# Several answers with a seed; twice the same.
sampled = SamplingParams(n=3, temperature=0.8, top_p=0.95, top_k=40, seed=1234, max_tokens=24)
tell("seeded", llm.generate(prompts[0], sampled, use_tqdm=False))
tell("again", llm.generate(prompts[0], sampled, use_tqdm=False))

# One set of parameters for each prompt: a stop string, a stop token, a short one.
newline = tokenizer.encode("\n")[-1]
tell("stopped", llm.generate(prompts, [
    SamplingParams(temperature=0, max_tokens=64, stop=["return"]),
    SamplingParams(temperature=0, max_tokens=64, stop_token_ids=[newline]),
    SamplingParams(temperature=0, max_tokens=3),
], use_tqdm=False))

# Logprobs of answer and prompt.
output = llm.generate(prompts[0], SamplingParams(temperature=0, max_tokens=8, logprobs=5, prompt_logprobs=2),
                      use_tqdm=False)[0]
answer = output.outputs[0]
seen["logprobs"] = [{str(token): [p.logprob, p.rank, p.decoded_token] for token, p in at.items()}
                    for at in answer.logprobs]
seen["prompt_logprobs"] = [at and {str(token): [p.logprob, p.rank, p.decoded_token] for token, p in at.items()}
                           for at in output.prompt_logprobs]
seen["cumulative_logprob"] = answer.cumulative_logprob
tell("scored", [output])
del llm

# Chat: one conversation, then several.
llm = LLM(sys.argv[2], dtype=dtype)
conversation = [{"role": "user", "content": "Tom has 12 marbles and loses 5. How many marbles does Tom have?"}]
others = [[{"role": "user", "content": f"What is {a} plus {a + 1}?"}] for a in range(1, 5)]
parameters = llm.get_default_sampling_params()
parameters.temperature = 0.0
parameters.max_tokens = 32
tell("chat", llm.chat(conversation, parameters))
tell("chats", llm.chat([conversation, *others], parameters, use_tqdm=False))
json.dump(seen, sys.stdout)
