"""For schemathesis: most requests shall get past the name of the model and the length of the context."""
import schemathesis


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        body = dict(body)
        if isinstance(body.get("model"), str) and len(body["model"]) % 8:
            body["model"] = None
        for name in ("max_tokens", "max_completion_tokens", "n"):
            if isinstance(body.get(name), int) and body[name] > 100:
                body[name] %= 50
    return body
