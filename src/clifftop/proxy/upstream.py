"""Which upstream a request is for, at what URL, with which headers, through what kind of session.

Nothing here reads a body. A request chooses among the configured upstreams by its path and headers;
nothing it says can name another host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, TraceConfig
from multidict import CIMultiDict
from yarl import URL

from clifftop.proxy.settings import Limits

UpstreamName = Literal["anthropic", "openai", "gemini"]

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"
"""The two paths whose requests are read."""

ANTHROPIC_PATHS = re.compile(r"/v1/(?:messages(?:/(?:count_tokens|batches(?:/.*)?))?|complete)")
GEMINI_PATHS = re.compile(r"/(?:upload/)?v1(?:alpha|beta)[0-9]*(?:/.*)?|/v1/models/[^/]+:[a-zA-Z]+")
ANTHROPIC_HEADERS = ("anthropic-version", "anthropic-beta")

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""RFC 9110, 7.6.1: for the next hop only, and so are those that `Connection` names."""

ANEW = frozenset(("host", "expect", "content-length"))
"""Request headers that belong to a hop's own bytes and are made anew for the next one."""


class Target(NamedTuple):
    """A request target in origin form: raw path and query, exactly as the client spelled them."""

    path: str
    query: str

    @classmethod
    def of(cls, raw: str) -> Target:
        """Read a request target; of an absolute URL only path and query count."""
        if not raw.startswith("/"):
            raw = "/" + raw.partition("://")[2].partition("/")[2]
        path, mark, query = raw.partition("?")
        return cls(path, mark + query)


def upstream_of(path: str, headers: Mapping[str, str]) -> UpstreamName:
    """Choose the upstream of a path.

    `/v1/models` and `/v1/files` exist at two providers: Anthropic's clients always send a version.
    """
    if ANTHROPIC_PATHS.fullmatch(path) or any(name in headers for name in ANTHROPIC_HEADERS):
        return "anthropic"
    if GEMINI_PATHS.fullmatch(path):
        return "gemini"
    return "openai" if path.startswith("/v1/") else "anthropic"


def url_at(base: str, target: Target) -> URL | None:
    """Put a target behind an upstream's base URL, whose path prefix is kept.

    None for a target that would climb out of that prefix.
    """
    prefix = URL(base).raw_path.rstrip("/")
    if prefix and ".." in unquote(target.path).replace("\\", "/").split("/"):
        return None
    spelled = "".join(target).encode("utf-8", "surrogateescape")
    raw = "".join(chr(x) if x < 0x80 and x != ord("#") else f"%{x:02X}" for x in spelled)
    return URL(f"{URL(base).origin()}{prefix}{raw}", encoded=True)


def forwarded(raw: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    """Give the end-to-end headers of a message: in order, repeated ones too, as spelled."""
    headers = CIMultiDict(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in raw
    )
    named = ",".join(headers.getall("Connection", ()))
    for name in HOP_BY_HOP.union(part.strip().lower() for part in named.split(",")):
        headers.popall(name, None)
    return headers


def request_headers(raw: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    """Give the headers of a request for its upstream; `Host` and framing are the session's."""
    headers = forwarded(raw)
    for name in ANEW:
        headers.popall(name, None)
    # aiohttp would let `x-tag: 2` replace `X-Tag: 1`: repeated names take the first one's spelling.
    spelling: dict[str, str] = {}
    return CIMultiDict(
        (spelling.setdefault(name.lower(), name), value) for name, value in headers.items()
    )


@dataclass(slots=True, kw_only=True)
class Connection:
    """What a request travels on. `is_reused`: it carried another one before."""

    is_reused: bool = False


def _trace() -> TraceConfig:
    async def reuse(session: ClientSession, context: Any, params: Any) -> None:  # noqa: ARG001
        context.trace_request_ctx.is_reused = True

    async def create(session: ClientSession, context: Any, params: Any) -> None:  # noqa: ARG001
        context.trace_request_ctx.is_reused = False

    trace = TraceConfig()
    trace.on_connection_reuseconn.append(reuse)
    trace.on_connection_create_start.append(create)
    return trace


def make_session(limits: Limits) -> ClientSession:
    """Make the session for all upstreams. Each value differs from aiohttp's default on purpose."""
    return ClientSession(
        # The client's own number of calls is the limit; 100 would queue a team's requests.
        connector=TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=15),
        # Cookies of one client may never travel with another's request.
        cookie_jar=DummyCookieJar(),
        # Models think for many minutes before the first byte, so only connecting has a limit.
        timeout=ClientTimeout(total=None, sock_connect=limits.connect_s, sock_read=None),
        trace_configs=[_trace()],
        auto_decompress=False,
        # Else aiohttp introduces itself, and asks for encodings that the client cannot read.
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        # It reads ~/.netrc too: see settings.environment_proxy.
        trust_env=False,
        raise_for_status=False,
        requote_redirect_url=False,
        max_line_size=limits.header_bytes,
        max_field_size=limits.header_bytes,
        max_headers=limits.headers,
        read_bufsize=256 * 1024,
    )
