"""One call up and its answer down, again where a refusal can be cured or a connection was stale.

How bytes pass is `relay`'s, what a smaller prompt is `compaction`'s. The client is answered once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol, TypeVar

from aiohttp import (
    ClientError,
    ClientOSError,
    ClientResponse,
    ClientSession,
    ServerDisconnectedError,
    web,
)
from yarl import URL

from clifftop.dialects.overflow import classify
from clifftop.proxy import relay
from clifftop.proxy.answers import error_answer, estimate_answer
from clifftop.proxy.call import Call, Stats
from clifftop.proxy.compaction import Compactor
from clifftop.proxy.lessons import learn
from clifftop.proxy.outgoing import Outgoing
from clifftop.proxy.settings import ProxySettings, environment_proxy
from clifftop.proxy.tap import Tap, tap_for
from clifftop.proxy.upstream import Connection, request_headers, url_at

REPLAYS = 3  # paper, Algorithm 1, line 18 leaves the number open

WITHOUT_COUNT = (404, 405, 501)
"""How upstreams say that they count no tokens."""

ANSWERED = ("overflow_soft", "overflow_silent")
"""Overflows whose answer stands; they are cured before the next request."""

T = TypeVar("T")


class Guard(Protocol):
    """Does work of ours that a request must survive (`app`)."""

    async def __call__(self, call: Call, work: Awaitable[T]) -> T | None:
        """Give what the work gives; None where it failed."""
        ...


class Exchange:
    """Takes calls to their upstreams."""

    def __init__(
        self,
        *,
        settings: ProxySettings,
        session: ClientSession,
        stats: Stats,
        compactor: Compactor,
        guarded: Guard,
    ) -> None:
        self.settings = settings
        self.session = session
        self.stats = stats
        self.compactor = compactor
        self.guarded = guarded

    async def answer(self, call: Call) -> web.StreamResponse:
        """Send a request up and its answer down."""
        url = url_at(self.settings.upstream(call.upstream), call.target)
        if url is None:
            return refuse(call, 400, "clifftop: the path leaves the upstream's base path")
        while True:
            try:
                answer = await self._send_alive(call, url)
            except (ClientError, OSError, TimeoutError) as error:
                self.stats.upstream_errors += 1
                if call.counted is not None:
                    return self._estimate(call, "no answer")
                message = f"clifftop: the upstream {url.origin()} gave no answer"
                return refuse(call, 502, f"{message} ({type(error).__name__})")
            async with answer:
                call.status = answer.status
                if call.counted is not None and _counts_nothing(answer.status):
                    return self._estimate(call, str(answer.status))
                is_read = call.outgoing is not None and answer.status == 200
                tap = tap_for(answer.headers) if is_read else None
                held = await self._hold(call, answer, tap)
                if await self._cure(call, answer.status, held.data):
                    continue
                if held.is_broken:
                    self.stats.broken += 1
                    message = f"clifftop: the upstream {url.origin()} broke off before any content"
                    return refuse(call, 502, message)
                return await self._pass_on(call, answer, held.data, tap)

    async def _send_alive(self, call: Call, url: URL) -> ClientResponse:
        """Send; once more where a kept connection turned out to be dead."""
        connection = Connection()
        try:
            return await self._send(call, url, connection)
        except (ServerDisconnectedError, ClientOSError) as error:
            can_repeat = call.is_whole or not call.request.body_exists
            if not (connection.is_reused and can_repeat and _is_unanswered(error)):
                raise
        # The upstream closed it while nothing was under way, which the request just missed.
        call.retries += 1
        self.stats.retries += 1
        return await self._send(call, url, Connection())

    async def _send(self, call: Call, url: URL, connection: Connection) -> ClientResponse:
        request = call.request
        headers = request_headers(request.raw_headers)
        data: AsyncIterator[bytes | memoryview] | None = None
        if call.is_whole and call.data is not None:
            # What we must read has to come plain.
            headers["Accept-Encoding"] = "identity"
            body = call.outgoing.body if call.outgoing is not None else call.data
            headers["Content-Length"] = str(len(body))
            data = relay.sliced(body) if body else None
        elif request.body_exists:
            if "Content-Length" in request.headers:
                headers["Content-Length"] = request.headers["Content-Length"]
            data = relay.streamed(call.data or b"", request.content)
        proxy = environment_proxy(str(url)) if self.settings.follows_proxy_environment else None
        return await self.session.request(
            request.method,
            url,
            headers=headers,
            data=data,
            proxy=proxy,
            allow_redirects=False,
            trace_request_ctx=connection,
        )

    async def _hold(self, call: Call, answer: ClientResponse, tap: Tap | None) -> relay.Held:
        """Read what decides whether an answer can be passed on."""
        limits = self.settings.limits
        if call.outgoing is not None and answer.status >= 400:
            return relay.Held(await relay.read_ahead(answer.content, limits.error_bytes))
        if tap is None or self.settings.is_shadow:
            return relay.Held(b"")
        return await relay.hold(
            answer.content, tap, limit_s=limits.hold_s, limit_bytes=limits.hold_bytes
        )

    async def _cure(self, call: Call, status: int, body: bytes) -> bool:
        """Is there a smaller prompt for one that was refused as too long? It becomes the call's."""
        refused = call.outgoing
        if refused is None or call.replays >= REPLAYS:
            return False
        cliffs = refused.stream.cliffs
        cure = await self.guarded(call, self._harder(refused, status, body))
        if cure is None:
            return False
        self.stats.cliffs += cure.stream.cliffs - cliffs
        call.outgoing = cure
        call.replays += 1
        self.stats.replays += 1
        self.stats.compacted += refused.decision.placement is None
        return True

    async def _harder(self, refused: Outgoing, status: int, body: bytes) -> Outgoing | None:
        overflow = classify(status, body)
        if overflow is None or overflow.kind in ANSWERED:
            return None
        return await self.compactor.harder(refused, overflow)

    async def _pass_on(
        self, call: Call, answer: ClientResponse, start: bytes, tap: Tap | None
    ) -> web.StreamResponse:
        relayed = await relay.relay_answer(
            call.request, answer, ours=call.ours(), start=start, tap=tap
        )
        call.bytes_out = relayed.bytes_out
        self.stats.broken += not relayed.is_whole
        if call.outgoing is not None and answer.status == 200:
            call.outgoing.count(self.stats.counts, tap.usage() if tap else {})
        if call.outgoing is not None and tap is not None:
            call.usage = tap.usage()
            learning = learn(
                self.compactor.store,
                self.compactor.upstream,
                call.outgoing,
                usage=call.usage,
                stop_reason=tap.stop_reason(),
            )
            call.overflow = await self.guarded(call, learning) or ""
            self.stats.late_overflows += bool(call.overflow)
        return relayed.response

    def _estimate(self, call: Call, why: str) -> web.StreamResponse:
        assert call.counted is not None
        call.status = 200
        call.notes.append(f"tokens estimated (upstream: {why})")
        rate = call.counted.decider.terms.rate
        return estimate_answer(round(call.counted.size.tokens(rate)), headers=call.ours())


def refuse(call: Call, status: int, message: str) -> web.Response:
    """Answer a call with an error of ours."""
    call.status = status
    return error_answer(call.upstream, status, message, headers=call.ours())


def _counts_nothing(status: int) -> bool:
    return status in WITHOUT_COUNT or status >= 500


def _is_unanswered(error: Exception) -> bool:
    # aiohttp puts the head of a half answer where the text would be.
    return not isinstance(error, ServerDisconnectedError) or isinstance(error.message, str)
