"""Answers that the proxy gives itself, in the error shape of the client's own API.

Relayed answers are `relay`'s. No text of a request may appear here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

import clifftop
from clifftop.proxy.upstream import UpstreamName

OWN_PATHS = "/_clifftop/"

KINDS = {
    400: "invalid_request_error",
    404: "not_found_error",
    426: "invalid_request_error",
    529: "overloaded_error",
}
GEMINI_KINDS = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 426: "FAILED_PRECONDITION"}


def error_answer(
    upstream: UpstreamName, status: int, message: str, *, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Make an error answer as the upstream's own API would shape it."""
    kind = KINDS.get(status, "api_error")
    body: dict[str, object]
    match upstream:
        case "anthropic":
            body = {"type": "error", "error": {"type": kind, "message": message}}
        case "openai":
            error = {"message": message, "type": kind, "param": None, "code": None}
            body = {"error": error}
        case "gemini":
            kind = GEMINI_KINDS.get(status, "UNAVAILABLE")
            body = {"error": {"code": status, "message": message, "status": kind}}
    return json_answer(body, status=status, headers=headers)


def estimate_answer(tokens: int, *, headers: Mapping[str, str]) -> web.Response:
    """Answer a count of tokens that no upstream counted."""
    return json_answer({"input_tokens": tokens}, headers=headers)


def own_answer(path: str, *, is_stopping: bool) -> web.Response:
    """Answer one of our own paths."""
    if path == OWN_PATHS + "health":
        return json_answer({"status": "ok", "version": clifftop.__version__})
    if path == OWN_PATHS + "ready":
        if is_stopping:
            return json_answer({"status": "stopping"}, status=503)
        return json_answer({"status": "ready"})
    return json_answer({"error": "no such path"}, status=404)


def json_answer(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Make an answer of one JSON value."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/json",
        headers=headers,
    )
