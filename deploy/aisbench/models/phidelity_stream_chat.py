# POST /v1/chat/completions, streams. README.md in the folder above has the variables.
models = [
    dict(
        attr="service",
        type="ais_bench.benchmark.models.VLLMCustomAPIChat",
        abbr="phidelity_stream_chat",
        path="{{$PHI_MODEL:models/phi3-tiny-chat}}",
        url="{{$PHI_URL:http://127.0.0.1:8000}}",
        api_key="{{$PHI_API_KEY:none}}",
        stream=True,
        max_out_len=int("{{$PHI_MAX_TOKENS:512}}"),
        batch_size=int("{{$PHI_CLIENTS:8}}"),
        generation_kwargs=dict(temperature=0),
    )
]
