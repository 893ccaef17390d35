"""The proxy: what comes in is compacted or relayed, and nothing of ours may stop it.

The only broad `except` of the project is in `Proxy._guarded`: whatever goes wrong inside us, the
client's own bytes go out, once. What a body becomes is `compaction`'s, how bytes pass `relay`'s.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable
from dataclasses import asdict, dataclass
from typing import TypeVar

from aiohttp import ClientError, ClientResponse, ClientSession, web
from aiohttp.typedefs import Handler
from yarl import URL

from clifftop.dialects import get_dialect
from clifftop.dialects.overflow import classify
from clifftop.errors import ClifftopError, OverBudgetError
from clifftop.memory.base import InProcessStore, Store
from clifftop.proxy import relay
from clifftop.proxy.answers import OWN_PATHS, error_answer, json_answer, own_answer
from clifftop.proxy.call import Call, Stats
from clifftop.proxy.compaction import Compactor, Outgoing
from clifftop.proxy.settings import ProxySettings, environment_proxy
from clifftop.proxy.streams import Streams
from clifftop.proxy.summary import SUMMARY_PATH, Summary
from clifftop.proxy.upstream import (
    MESSAGES,
    Target,
    make_session,
    request_headers,
    upstream_of,
    url_at,
)

REPLAYS = 3  # paper, Algorithm 1, line 18 leaves the number open

log = logging.getLogger("clifftop.proxy")
T = TypeVar("T")


class Proxy:
    """Handles requests under given settings; holds what one running proxy shares."""

    def __init__(self, *, settings: ProxySettings, store: Store, session: ClientSession) -> None:
        self.settings = settings
        self.session = session
        self.stats = Stats()
        self.compactor = Compactor(
            settings=settings,
            store=store,
            streams=Streams(settings.limits.streams),
            dialect=get_dialect("anthropic"),
            upstream="anthropic",
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request: our own paths here, all others from their upstream."""
        target = Target.of(request.raw_path)
        if target.path.startswith(OWN_PATHS):
            if target.path == SUMMARY_PATH:
                return json_answer(self._summary().to_json())
            return own_answer(target.path)
        self.stats.requests += 1
        call = Call(
            request=request, target=target, upstream=upstream_of(target.path, request.headers)
        )
        try:
            return await self._answer(call)
        finally:
            call.log()

    def _summary(self) -> Summary:
        stats = self.stats
        return Summary(
            **asdict(stats.counts),
            requests=stats.requests,
            compacted=stats.compacted,
            cliffs=stats.cliffs,
            passed_through=stats.passed_through,
            is_shadow=self.settings.is_shadow,
        )

    async def _answer(self, call: Call) -> web.StreamResponse:
        request = call.request
        if request.method == "CONNECT" or "Upgrade" in request.headers:
            # Codex falls back to plain HTTP at once on a 426, and tries for seconds on any other.
            return self._refuse(call, 426, "clifftop relays plain HTTP only, no WebSocket")
        if request.method == "POST" and call.target.path == MESSAGES:
            coding = request.headers.get("Content-Encoding", "identity").strip().lower()
            if coding in ("", "identity"):
                refusal = await self._compact(call)
                if refusal is not None:
                    return refusal
            else:
                call.notes.append("not compacted (content-encoding)")
        return await self._exchange(call)

    async def _compact(self, call: Call) -> web.StreamResponse | None:
        """Read the body and prepare what goes upstream; an answer only where it is refused."""
        limit_bytes = self.settings.limits.body_bytes
        try:
            call.data, call.is_whole = await relay.read_body(call.request.content, limit_bytes)
        except (web.RequestPayloadError, ConnectionError):
            return self._refuse(call, 400, "clifftop: the request's body broke off")
        if not call.is_whole:
            self.stats.too_large += 1
            call.notes.append(f"not compacted (body over {limit_bytes} bytes)")
            return None
        try:
            call.outgoing = await self._guarded(call, self._prepare(call, call.data))
        except OverBudgetError as error:
            self.stats.refused += 1
            return self._refuse(call, 400, f"clifftop --strict: {error}")
        return None

    async def _prepare(self, call: Call, body: bytes) -> Outgoing | None:
        request = self.compactor.read(body)
        if request.stateful:
            call.notes.append(f"not compacted (stateful: {request.stateful})")
            return None
        outgoing = await self.compactor.prepare(request)
        call.notes.extend(outgoing.notes)
        self.stats.cliffs += len(outgoing.decision.placed)
        is_over = outgoing.decision.size_tokens > outgoing.decider.terms.threshold_tokens
        self.stats.over_budget += is_over
        if self.settings.is_shadow:
            call.notes.append("shadow")
        elif outgoing.decision.placement is not None:
            self.stats.compacted += 1
        return outgoing

    async def _guarded(self, call: Call, work: Awaitable[T]) -> T | None:
        """Do work of ours that the request must survive; None where it failed.

        Raises:
            OverBudgetError: and whatever else of ours may not fail open.
        """
        try:
            return await work
        except Exception as error:  # the one broad catch: fail open
            if isinstance(error, ClifftopError) and not error.fail_open:
                raise
            self.stats.failures += 1
            self._note_failure(call, error)
            return None

    def _note_failure(self, call: Call, error: Exception) -> None:
        name = type(error).__name__
        if call.status == 0 and call.outgoing is None:
            self.stats.passed_through += 1
            call.notes.append(f"passed-through ({name})")
        # Never the message: it may quote the request. Where it was raised tells enough.
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
        log.warning("failure error=%s place=%s", name, place)

    async def _exchange(self, call: Call) -> web.StreamResponse:
        """Send a request up and its answer down, again where a refusal can be cured."""
        url = url_at(self.settings.upstream(call.upstream), call.target)
        if url is None:
            return self._refuse(call, 400, "clifftop: the path leaves the upstream's base path")
        while True:
            try:
                answer = await self._send(call, url)
            except (ClientError, OSError, TimeoutError) as error:
                self.stats.upstream_errors += 1
                message = f"clifftop: the upstream {url.origin()} gave no answer"
                return self._refuse(call, 502, f"{message} ({type(error).__name__})")
            async with answer:
                call.status, start = answer.status, b""
                if answer.status >= 400 and call.outgoing is not None:
                    start = await relay.read_ahead(answer.content, self.settings.limits.error_bytes)
                    if await self._cure(call, answer.status, start):
                        continue
                return await self._pass_on(call, answer, start)

    async def _send(self, call: Call, url: URL) -> ClientResponse:
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
        )

    async def _cure(self, call: Call, status: int, body: bytes) -> bool:
        """Is there a smaller prompt for one that was refused as too long? It becomes the call's."""
        refused = call.outgoing
        if refused is None or call.replays >= REPLAYS:
            return False
        cliffs = refused.stream.cliffs
        cure = await self._guarded(call, self._harder(refused, status, body))
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
        return None if overflow is None else await self.compactor.harder(refused, overflow)

    async def _pass_on(
        self, call: Call, answer: ClientResponse, start: bytes
    ) -> web.StreamResponse:
        is_read = call.outgoing is not None and answer.status == 200
        tap = relay.tap_for(answer.headers) if is_read else None
        relayed = await relay.relay_answer(
            call.request, answer, ours=call.ours(), start=start, tap=tap
        )
        call.bytes_out = relayed.bytes_out
        self.stats.broken += not relayed.is_whole
        if call.outgoing is not None and answer.status == 200:
            call.outgoing.count(self.stats.counts, tap.usage() if tap else {})
        if call.outgoing is not None and tap is not None:
            await self._guarded(call, self.compactor.learn(call.outgoing, tap.usage()))
        return relayed.response

    def _refuse(self, call: Call, status: int, message: str) -> web.Response:
        call.status = status
        return error_answer(call.upstream, status, message, headers=call.ours())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProxy:
    """A proxy that listens. `url`: what clients are told as their base URL."""

    url: str
    port: int
    stats: Stats
    _runner: web.AppRunner
    _session: ClientSession
    _own_store: Store | None

    async def stop(self) -> None:
        """Stop listening, break off what is open, and close what was opened here."""
        await self._runner.cleanup()
        await self._session.close()
        if self._own_store is not None:
            await self._own_store.close()


async def start_proxy(settings: ProxySettings, *, store: Store | None = None) -> RunningProxy:
    """Start a proxy on the settings' host and port.

    `store`: the caller's, who closes it; without one the proxy has its own.

    Raises:
        OSError: the port is taken.
    """
    own_store = None
    if store is None:
        store = own_store = InProcessStore()
    session = make_session(settings.limits)
    proxy = Proxy(settings=settings, store=store, session=session)

    @web.middleware
    async def enter(request: web.Request, handler: Handler) -> web.StreamResponse:  # noqa: ARG001
        return await proxy.handle(request)

    # Routes would normalise paths; a middleware sees every request as it came. We limit bodies.
    app = web.Application(middlewares=[enter], client_max_size=0)
    app.on_response_prepare.append(relay.leave_absent)
    limits = settings.limits
    runner = web.AppRunner(
        app,
        auto_decompress=False,  # the client's own bytes must stay at hand
        handler_cancellation=True,  # a client that goes away ends the call upstream
        access_log=None,  # it would log paths and queries, which carry keys at some providers
        max_line_size=limits.header_bytes,
        max_field_size=limits.header_bytes,
        max_headers=limits.headers,
        read_bufsize=256 * 1024,
        keepalive_timeout=3_600,
        lingering_time=10,
        shutdown_timeout=limits.stop_s,
    )
    try:
        await runner.setup()
        await web.TCPSite(runner, settings.host, settings.port).start()
    except BaseException:
        await runner.cleanup()
        await session.close()
        raise
    port = runner.addresses[0][1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return RunningProxy(
        url=f"http://{host}:{port}",
        port=port,
        stats=proxy.stats,
        _runner=runner,
        _session=session,
        _own_store=own_store,
    )
