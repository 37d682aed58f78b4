"""One HTTP request with JSON in and out: what eval and nightly ask servers with. Never through a proxy."""
from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TIMEOUT_S = 3600.0  # an answer may be long in coming


class HttpError(RuntimeError):
    """The server refused: its status and what it said."""

    def __init__(self, url: str, status: int, message: str) -> None:
        super().__init__(f"{url}: status {status}: {message}")
        self.status = status


def _connection(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{url}' is no address: expected http://host:port or https://host:port")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=timeout_s), parts.path.rstrip("/")


def _message(data: bytes) -> str:
    """The sentence of an OpenAI error, else the beginning of what came."""
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return data[:200].decode("utf-8", "replace").strip() or "without a word"


def ask(url: str, path: str, body: Any = None, *, api_key: str | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """The parsed answer (None for an empty one) to GET `path`, or to POST when there is a body.

    url: "http://host:port", perhaps with a path in front of `path`. Raises ValueError for another URL,
    OSError when nobody answers, HttpError for a status other than 200 and for what is no JSON.
    """
    connection, prefix = _connection(url, timeout_s)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    try:
        connection.request("GET" if data is None else "POST", prefix + path, data, headers)
        response = connection.getresponse()
        answer = response.read()
    except http.client.HTTPException as error:
        raise OSError(f"{url}{path}: not an HTTP answer ({type(error).__name__})") from error
    except OSError as error:
        raise type(error)(error.errno, f"{url}{path}: {error.strerror or error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise HttpError(url + path, response.status, _message(answer))
    try:
        return json.loads(answer) if answer.strip() else None
    except ValueError:
        raise HttpError(url + path, response.status, "not JSON: " + _message(answer)) from None
