"""What an answer that stands teaches: the rate, the window, a prompt that has to be cut next time.

Works on figures alone. Answers that are replaced by a better one are `exchange`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clifftop.core.sizes import DEFAULT_RATE, calibrate, usage_prompt_tokens
from clifftop.dialects.overflow import classify
from clifftop.memory.base import Store
from clifftop.proxy.outgoing import Outgoing

SAME = 0.05
"""Two cuts to one length differ by less than this: a server cuts between messages."""


async def learn(
    store: Store,
    upstream: str,
    outgoing: Outgoing,
    *,
    usage: Mapping[str, object],
    stop_reason: str,
) -> str:
    """Learn from an answer's end; name the overflow that it told of, or nothing.

    The output ran into the window: prompt and output together are its size. A prompt that was cut
    in silence: the next one of its stream is made smaller; when the server then keeps as many
    tokens again, that is taken for the window. One such figure proves nothing: a gateway may count
    the uncached rest alone.
    """
    model, stream = outgoing.request.model, outgoing.stream
    prompt_tokens = usage_prompt_tokens(usage) or 0
    written = usage.get("output_tokens")
    total_tokens = prompt_tokens + (written if isinstance(written, int) else 0)
    sent_tokens = round(outgoing.size.tokens(outgoing.decider.terms.rate))
    window = await store.window(upstream, model)
    told = msgspec.json.encode({"stop_reason": stop_reason, "usage": usage})
    overflow = classify(200, told, sent_tokens=sent_tokens)
    kind: str = "" if overflow is None else overflow.kind
    if stop_reason == "max_tokens" and window is not None and total_tokens >= window:
        # llama.cpp and vLLM lower `max_tokens` to what is left, and say nothing.
        kind = "overflow_clamped"
    found = None
    match kind:
        case "overflow_silent":
            kept, stream.kept_tokens = stream.kept_tokens, prompt_tokens
            if kept is None:
                stream.is_cut_due = True
            elif abs(kept - prompt_tokens) <= SAME * kept:
                found = min(kept, prompt_tokens)
        case "overflow_soft":
            stream.is_cut_due = True
            found = total_tokens if prompt_tokens * 2 >= sent_tokens else None
        case "overflow_clamped":
            stream.is_cut_due = True
    if found is not None and (window is None or found < window):
        await store.set_window(upstream, model, found)
    if prompt_tokens and kind != "overflow_silent":
        rate = await store.rate(upstream, model) or DEFAULT_RATE
        seen = calibrate(rate, size=outgoing.size, reported_tokens=prompt_tokens)
        if seen != rate:
            await store.set_rate(upstream, model, seen)
    return kind
