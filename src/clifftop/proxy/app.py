"""The proxy: what comes in is compacted or relayed, and nothing of ours may stop it.

The only broad `except` of the project is in `Proxy._guarded`: whatever goes wrong inside us, the
client's own bytes go out, once. What a body becomes is `compaction`'s, how it is sent `exchange`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from typing import TypeVar

from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler

from clifftop.dialects import get_dialect
from clifftop.dialects.anthropic import purpose_of
from clifftop.errors import ClifftopError, OverBudgetError
from clifftop.memory.base import InProcessStore, Store
from clifftop.proxy import relay
from clifftop.proxy.answers import OWN_PATHS, json_answer, own_answer
from clifftop.proxy.call import Call, Stats
from clifftop.proxy.compaction import Compactor
from clifftop.proxy.exchange import Exchange, refuse
from clifftop.proxy.outgoing import Outgoing
from clifftop.proxy.settings import ProxySettings
from clifftop.proxy.streams import Streams
from clifftop.proxy.summary import SUMMARY_PATH, Summary
from clifftop.proxy.upstream import COUNT_TOKENS, MESSAGES, Target, make_session, upstream_of

FLUSH_S = 0.5
"""For what is answered at the moment of stopping and still on its way out."""

log = logging.getLogger("clifftop.proxy")
T = TypeVar("T")


class Proxy:
    """Handles requests under given settings; holds what one running proxy shares."""

    def __init__(self, *, settings: ProxySettings, store: Store, session: ClientSession) -> None:
        self.settings = settings
        self.stats = Stats()
        self.is_stopping = False
        self._open = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self.compactor = Compactor(
            settings=settings,
            store=store,
            streams=Streams(settings.limits.streams),
            dialect=get_dialect("anthropic"),
            upstream="anthropic",
        )
        self.exchange = Exchange(
            settings=settings,
            session=session,
            stats=self.stats,
            compactor=self.compactor,
            guarded=self._guarded,
        )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request: our own paths here, all others from their upstream."""
        target = Target.of(request.raw_path)
        if target.path.startswith(OWN_PATHS):
            if target.path == SUMMARY_PATH:
                return json_answer(self._summary().to_json())
            return own_answer(target.path, is_stopping=self.is_stopping)
        self.stats.requests += 1
        self._open += 1
        self._is_idle.clear()
        call = Call(
            request=request, target=target, upstream=upstream_of(target.path, request.headers)
        )
        try:
            return await self._answer(call)
        finally:
            self._open -= 1
            if not self._open:
                self._is_idle.set()
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

    async def drain(self) -> None:
        """Say that we are not ready any more, and give open calls some time to end."""
        self.is_stopping = True
        try:
            async with asyncio.timeout(self.settings.limits.stop_s):
                await self._is_idle.wait()
        except TimeoutError:
            log.warning("stopping open=%d", self._open)

    async def _answer(self, call: Call) -> web.StreamResponse:
        request = call.request
        if request.method == "CONNECT" or "Upgrade" in request.headers:
            # Codex falls back to plain HTTP at once on a 426, and tries for seconds on any other.
            return refuse(call, 426, "clifftop relays plain HTTP only, no WebSocket")
        if request.method == "POST" and call.target.path in (MESSAGES, COUNT_TOKENS):
            coding = request.headers.get("Content-Encoding", "identity").strip().lower()
            if coding in ("", "identity"):
                refusal = await self._compact(call)
                if refusal is not None:
                    return refusal
            else:
                call.notes.append("not compacted (content-encoding)")
        return await self.exchange.answer(call)

    async def _compact(self, call: Call) -> web.StreamResponse | None:
        """Read the body and prepare what goes upstream; an answer only where it is refused."""
        limit_bytes = self.settings.limits.body_bytes
        try:
            call.data, call.is_whole = await relay.read_body(call.request.content, limit_bytes)
        except (web.RequestPayloadError, ConnectionError):
            return refuse(call, 400, "clifftop: the request's body broke off")
        if not call.is_whole:
            self.stats.too_large += 1
            call.notes.append(f"not compacted (body over {limit_bytes} bytes)")
            return None
        try:
            call.outgoing = await self._guarded(call, self._prepare(call, call.data))
        except OverBudgetError as error:
            self.stats.refused += 1
            return refuse(call, 400, f"clifftop --strict: {error}")
        return await self._fail_open(call) if call.failure else None

    async def _fail_open(self, call: Call) -> web.StreamResponse | None:
        """Something failed in us: the stream's last good plan, else the client's own bytes.

        Bytes that are known to exceed the window would cost a long upload and be refused: then an
        error that clients try again on.
        """
        failure, turn = call.failure, call.turn
        if turn is not None:
            call.outgoing = await self._guarded(call, self.compactor.resume(turn))
        if call.outgoing is not None:
            self.stats.resumed += 1
            call.notes.append(f"last good plan ({failure})")
            return None
        if turn is not None and await self._guarded(call, self.compactor.is_over_window(turn)):
            return refuse(
                call, 529, f"clifftop: {failure}, and the full history exceeds the window"
            )
        self.stats.passed_through += 1
        call.notes.append(f"passed-through ({failure})")
        return None

    async def _prepare(self, call: Call, body: bytes) -> Outgoing | None:
        """Decide what goes upstream; None where it is what came."""
        request = self.compactor.read(body)
        if request.stateful:
            call.notes.append(f"not compacted (stateful: {request.stateful})")
            return None
        if call.target.path == COUNT_TOKENS:
            self.stats.counted += 1
            call.counted = await self.compactor.preview(request)
            call.data = call.counted.body
            return None
        call.purpose = purpose_of(request)
        match call.purpose:
            case "side":
                self.stats.side_calls += 1
                return None
            case "summary":
                self.stats.summaries += 1
                outgoing = await self.compactor.prepare_summary(request)
            case "turn":
                call.turn = request
                outgoing = await self.compactor.prepare(request)
                self.stats.cliffs += len(outgoing.decision.placed)
                is_over = outgoing.decision.size_tokens > outgoing.decider.terms.threshold_tokens
                self.stats.over_budget += is_over
        call.notes.extend(outgoing.notes)
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
            call.failure = call.failure or name
        # Never the message: it may quote the request. Where it was raised tells enough.
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
        log.warning("failure error=%s place=%s", name, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProxy:
    """A proxy that listens. `url`: what clients are told as their base URL."""

    url: str
    port: int
    stats: Stats
    _proxy: Proxy
    _runner: web.AppRunner
    _session: ClientSession
    _own_store: Store | None

    async def stop(self) -> None:
        """Let open calls end, break off what then still is, and close what was opened here."""
        await self._proxy.drain()
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
        logger=_server_log(),
        access_log=None,  # it would log paths and queries, which carry keys at some providers
        max_line_size=limits.header_bytes,
        max_field_size=limits.header_bytes,
        max_headers=limits.headers,
        read_bufsize=256 * 1024,
        keepalive_timeout=3_600,
        lingering_time=10,
        shutdown_timeout=FLUSH_S,
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
        _proxy=proxy,
        _runner=runner,
        _session=session,
        _own_store=own_store,
    )


def _server_log() -> logging.Logger:
    """Give the log for aiohttp's server, which quotes what it cannot parse."""
    server_log = logging.getLogger("clifftop.proxy.server")
    server_log.addFilter(_leave_out_text)
    return server_log


def _leave_out_text(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    record.msg, record.args = "server error=%s", (type(error).__name__,)
    record.exc_info = record.exc_text = None
    return True
