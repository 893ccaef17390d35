"""Tell a context overflow from every other answer, whichever provider sent it.

One table of wordings and one reader that knows where bodies keep codes and messages. What may *not*
live here: the cure, conditions on a provider's name, and any text of an answer in a value returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

Kind = Literal[
    "overflow", "overflow_in_plus_out", "overflow_bytes", "overflow_soft", "overflow_silent"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """State one overflow and the sizes its answer named; each kind has its cure (docs/overflow.md).

    `prompt_tokens`: sent; maybe a lower bound, and output included where only a total is told.
    `limit_tokens`: named (silent: what the server kept); the model's if `limit_is_window`.
    """

    kind: Kind
    prompt_tokens: int | None = None
    limit_tokens: int | None = None
    output_tokens: int | None = None
    limit_is_window: bool = False


def classify(status: int, body: bytes, *, sent_tokens: int | None = None) -> Overflow | None:
    """Classify an error body, the first stream events or a plain answer; None is no overflow.

    `sent_tokens`: an estimate of the prompt, without which no silent truncation is found. Never
    raises, reads at most 256 KB, and never takes what the model wrote for an error.
    """
    # 403 is Cloudflare's; 500 is Triton's and was llama.cpp's. Others tell of other troubles.
    if status not in {200, 400, 403, 413, 422, 500}:
        return None
    said = _read(status, body[:_MAX_BYTES])
    hits = [
        (kind, match.groupdict())
        for kind, place, pattern in _ROWS
        for found_at, sign in said.signs
        if found_at == place and (match := pattern.search(sign))
    ]
    if hits:
        return None if any(kind is None for kind, _ in hits) else _measure(hits, said)
    if status == 200:
        return _compare_usage(said, sent_tokens)
    if not body.strip():  # Cerebras: "400 status code (no body)"; its empty 429 is a rate limit
        return Overflow(kind="overflow") if status in (400, 413) else None
    return Overflow(kind="overflow_bytes") if status == 413 else None  # nginx's is an HTML page


_MAX_BYTES, _MAX_CHARS, _MAX_DEPTH, _MAX_SIGNS = 262_144, 2_000, 16, 32
# A line is who says it and one real message, its sizes named: `<name>` is a number, `a|b` either
# word, `word?` may lack, `~` any text between, punctuation free. `code` and `stop` are fields.
# None vetoes: Groq's rate limit is a 413, and an output cap may come with an overflow's code.
_WORDINGS: Final[dict[Kind | None, str]] = {
    None: """
code: 401|402|404|429|502|503|504|529|RESOURCE_EXHAUSTED|insufficient_quota|string_above_max_length
code: overloaded_error|throttlingException|rate_limit_exceeded|rate_limit_error|token_quota_exceeded
OpenAI: Rate limit
Groq: tokens per min|minute|hour|day
Anthropic: maximum allowed number of output tokens
OpenAI: supports at most <cap> completion tokens
""",
    "overflow_soft": "stop: model_context_window_exceeded",
    "overflow_in_plus_out": """
Anthropic: input length and `max_tokens` exceed context limit: <prompt> + <output> > <limit>
vLLM: is too large: <output>. ~ context length is <limit> tokens and your request has <prompt> input
""",
    "overflow": """
code: context_length_exceeded|model_max_prompt_tokens_exceeded|exceed_context_size_error|1261
OpenAI: maximum context length is <limit> ~ <total> tokens ~ <output> in|for the completion|output
OpenRouter: maximum context length is <limit> tokens. However, you requested about? <total> tokens
OpenAI: maximum context length is <limit> tokens. However, your messages resulted in <prompt> tokens
vLLM: maximum context length is <limit> ~ requested <output> output tokens ~ at least <at_least>
vLLM: maximum context length is <limit> tokens. However, your prompt contains at least <at_least>
vLLM: decoder? prompt (total? length <prompt>) is longer than the maximum model length of <limit>
vLLM, its window less the prompt: max_tokens must be at least 1, got -<excess>
TGI: `inputs` tokens + `max_new_tokens` must be <= <limit>. Given: <prompt> ~ and <output>
Fireworks, Ollama: prompt is too long: <prompt>, model maximum context length: <limit>
Anthropic, Vertex without sizes: prompt is too long: <prompt>? tokens? >? <limit>? maximum?
Azure: Input tokens exceed the configured limit of <limit> ~ messages resulted in <prompt> tokens
OpenAI: input exceeds the context window of this model
Kimi: request exceeded model token limit: <limit> (requested: <prompt>)
GLM: Request <prompt> input tokens exceeds the model's maximum context length <limit>
GLM: Prompt exceeds max length
GLM: tokens in request more than max tokens allowed
Qwen: Range of input length should be [1, <limit>]
MiniMax, 2013 is a code: context window exceeds limit (2013?)
xAI: maximum prompt length is <limit> but the request contains <prompt> tokens
Gemini: input token count (<prompt>?) exceeds the maximum number of tokens allowed (<limit>?)
SGLang, Together: input (<prompt> tokens) is longer than the model's context length (<limit> tokens)
SGLang, its free memory: Input length (<prompt> tokens) exceeds the maximum allowed length (<pool>
DeepInfra, Poolside, Triton: Requested? input|prompt length <prompt> exceeds the|model's? maximum
 allowed? input|context length of? <limit>
llama.cpp: request (<prompt>? tokens?) exceeds the available context size (<limit>? tokens?)
llama-cpp-python: Requested tokens (<prompt>) exceed context window of <limit>
Ollama: prompt too long; exceeded max context length by <excess> tokens
LM Studio: number of tokens to keep ~ than the context length n_keep? <prompt>? >=? n_ctx? <limit>?
LM Studio: Trying to keep the first <prompt> tokens when context the overflows ~ of only <limit>
Bedrock: Input is too long
Groq: Please? reduce the length of the messages or completion
Cerebras: Current length is <prompt> while limit is <limit>
Mistral: Prompt contains <prompt> tokens ~ too large for model with <limit> maximum context length
Cloudflare: estimated number of input and maximum output tokens exceeded this model context window
Copilot: prompt token count of <prompt> exceeds the limit of <limit>
DS4: Prompt has <prompt> tokens, but the configured context size is <limit> tokens
LiteLLM: litellm?.ContextWindowExceededError
""",
    "overflow_bytes": """
code: request_too_large
Anthropic: Request exceeds the maximum size
Gemini: Request payload size exceeds the limit: <size> bytes
Bedrock: Value at 'body' failed to satisfy constraint: Member must have length less than or equal to
""",
}


def _compile(kind: Kind | None, line: str) -> tuple[Kind | None, str, re.Pattern[str]]:
    place, _, message = line.replace("\n", "").partition(": ")
    if place in ("code", "stop"):
        return kind, place, re.compile(rf"\A(?:{message})\Z")
    # A verdict opens a clause: "Invalid request: Your request exceeded", not "a note on a request".
    pattern = r"\b" if kind is None else r"(?:\A|(?<=[^\w\s] )|(?<=[。，：>\[\n]))"
    pattern += r"(?:(?:the|this|your|please) )?(?:(?:model|endpoint)['’]s )?"
    for word in re.split(r"[\s.,:;()\[\]]+", message.strip(" .)]")):
        spelled = "|".join(map(re.escape, word.removesuffix("?").split("|"))).replace("'", "['’]")
        spelled = re.sub(
            r"<(\w+)>", r"(?P<\1>\\d{1,3}(?:[,._\\xa0]\\d{3}){1,4}|\\d{1,15})", spelled
        )
        one = rf"(?:(?:{spelled})(?![a-z0-9])[\s.,:;()\[\]]*+){'?' if word.endswith('?') else ''}"
        pattern += r"[^\0]{0,120}?(?<![a-z0-9])" if word == "~" else one
    return kind, "text", re.compile(pattern, re.I)


_ROWS: Final = tuple(
    _compile(kind, line)
    for kind, lines in _WORDINGS.items()
    for line in re.split(r"\n(?! )", lines.strip())
)


class _Said(NamedTuple):
    signs: list[tuple[str, str]]  # where it stood (code, text, stop) and what it said
    figures: dict[str, int]


def _measure(hits: list[tuple[Kind | None, dict[str, str]]], said: _Said) -> Overflow | None:
    # The sizes, not the wording, part a long prompt from a long output.
    kind = hits[0][0] or "overflow"
    named = next((sizes for _, sizes in hits if sizes), {})
    size = {k: int(re.sub(r"\D", "", v)) for k, v in named.items() if v} | said.figures
    output, limit = size.get("output"), size.get("limit", size.get("pool"))
    prompt = size.get("prompt", size.get("at_least", size.get("used")))
    if "total" in size:
        prompt = max(size["total"] - (output or 0), 0)
    if output is not None and limit is not None and prompt is not None:
        if output >= limit > prompt:
            return None  # the output asked for fills the window by itself: no prompt would fit
        # vLLM counts no further than the limit: with a small output, "at least" may be any size.
        is_open = "at_least" in size and output * 2 <= limit
        kind = "overflow" if prompt >= limit or is_open else "overflow_in_plus_out"
    return Overflow(
        kind=kind,
        prompt_tokens=prompt,
        limit_tokens=limit,
        output_tokens=output,
        limit_is_window="limit" in size,
    )


def _compare_usage(said: _Said, sent_tokens: int | None) -> Overflow | None:
    used = said.figures.get("used", 0)
    # MiMo cuts the prompt to the window, so no token is left: finish "length" with 0 written.
    if used and ("stop", "length") in said.signs and said.figures.get("written") == 0:
        return Overflow(kind="overflow_soft", prompt_tokens=used)
    # Ollama keeps half of its window; an estimate from bytes is wrong by less than a factor of two.
    if sent_tokens is not None and 0 < used * 2 < sent_tokens:
        return Overflow(kind="overflow_silent", limit_tokens=used)
    return None


# AWS event-stream: as text, and the header of a frame, whose control bytes no JSON text has raw.
_EXCEPTION: Final = re.compile(r"\w+Exception: (?=\{)")
_FRAME: Final = re.compile(r":message-type\x07\0\texception[^{]{0,300}")


def _read(status: int, body: bytes) -> _Said:
    said = _Said([], {})
    text = body.decode("utf-8", "replace").lstrip("\ufeff").strip()
    for document, is_error in [(whole, False) for whole in _decode(text)] or _read_events(text):
        _walk(document, said, is_error=is_error or status != 200)
    if frame := _EXCEPTION.match(text) or _FRAME.search(text):
        _walk(text[frame.end() :], said, is_error=True)
    elif status != 200 and not said.signs and not text.startswith("<"):
        _walk(text, said, is_error=True)
    return said


def _decode(text: str) -> list[Any]:
    values, at = list[Any](), 0
    try:
        while text.startswith(("{", "[", '"'), at) and len(values) < _MAX_SIGNS:
            value, at = json.JSONDecoder().raw_decode(text, at)
            values.append(value)
            at += len(text) - at - len(text[at:].lstrip())
    except (ValueError, RecursionError):
        pass
    # "[1305][The service may be" is no list; after an object comes a checksum or a closing quote.
    return values if at >= len(text) or text.startswith("{") else []


def _read_events(text: str) -> Iterator[tuple[Any, bool]]:
    # Not splitlines: model text may hold a raw U+2028, and what follows it is no line of ours.
    for event in re.split(r"\n\n+", re.sub(r"\r\n?", "\n", text)):
        lines = [line.partition(":") for line in event.split("\n")]
        data = [value.strip() for key, _, value in lines if key == "data"]
        is_error = any(key == "event" and value.strip() == "error" for key, _, value in lines)
        for part in _decode("\n".join(data)) or data:
            yield part, is_error


_CODE_KEYS: Final = ("code", "type", "error_type", "status", "__type")
_ERROR_KEYS: Final = ("error", "errors", "error_message", "base_resp")
_ERROR_TEXT_KEYS: Final = ("message", "msg", "status_msg", "detail", "metadata", "raw", "response")
_ANSWER_KEYS: Final = ("response", "choices", "message", "delta", "usage", "usageMetadata")


def _walk(node: Any, said: _Said, *, is_error: bool, depth: int = 0) -> None:
    # Of an answer: error places, stop reasons and usage, where no key or string is the model's.
    if depth > _MAX_DEPTH or len(said.signs) >= _MAX_SIGNS:
        return
    if isinstance(node, str) and is_error:
        _read_message(node.strip(), said, depth + 1)
    elif isinstance(node, list):
        for item in node[:_MAX_SIGNS]:
            _walk(item, said, is_error=is_error, depth=depth + 1)
    elif isinstance(node, dict):
        if is_error := is_error or node.get("type") == "error":
            codes = [value for key in _CODE_KEYS if isinstance(value := node.get(key), str | int)]
            said.signs.extend(("code", str(code)[:100]) for code in codes)
            for key, name in (("n_prompt_tokens", "prompt"), ("n_ctx", "limit")):
                if type(size := node.get(key)) is int and size > 0:
                    said.figures[name] = size
        else:
            _read_progress(node, said)
            for key in _ANSWER_KEYS:
                _walk(node.get(key), said, is_error=False, depth=depth + 1)
        for key in (*_ERROR_KEYS, *(_ERROR_TEXT_KEYS if is_error else ())):
            _walk(node.get(key), said, is_error=True, depth=depth + 1)


def _read_progress(part: dict[str, Any], said: _Said) -> None:
    for key, value in part.items():
        if key.endswith(("reason", "Reason")) and isinstance(value, str):
            said.signs.append(("stop", value))
    count = {key: value for key, value in part.items() if type(value) is int}
    cached = sum(value for key, value in count.items() if key.endswith("input_tokens"))
    used = max(cached, count.get("prompt_tokens", 0), count.get("promptTokenCount", 0))
    if used >= 256:  # under it is a gateway's placeholder (`"input_tokens": 1`)
        said.figures["used"] = max(used, said.figures.get("used", 0))
    if part.get("content") or part.get("tool_calls") or "completion_tokens" in count:
        said.figures.setdefault("written", 0)
        said.figures["written"] += count.get("completion_tokens", 1)


# Before the JSON that a gateway passes on: "litellm.BadRequestError: AnthropicException - b'{".
_WRAPPER: Final = re.compile(
    r"(?:(?:error code|(?:api )?[\w.]*?(?:error|exception)|\[?\d{3}\]?)[\s:\-]++)*+b?['\"]?", re.I
)
# In the openai package's text: "Error code: 400 - {'error': {'message': \"This model's maximum".
_REPR: Final = re.compile(
    r"\{(?:'\w+': (?:\{|'\w*', |None, |\d+, ))*+'message': "
    r"(?:'((?:[^'\\]|\\.)*+)'|\"((?:[^\"\\]|\\.)*+)\")"
)
# Quoted values with a space in them, to the end where the quote stays open, and "Received: ...".
_ECHO: Final = re.compile(
    r"(?<!\w)'(?!\w+')(?:[^'\\]|\\.|'(?=\w))*+(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)"
    r"|(`[^`\s]*`)|`[^`]*(?:`|\Z)|\b(?:received:|input_value=).*",
    re.I | re.S,
)


def _read_message(text: str, said: _Said, depth: int) -> None:
    rest = _WRAPPER.sub("", text, count=1)
    inner: Any = _decode(text) or _decode(rest)
    if not inner and (told := _REPR.match(rest)):
        inner = told[1] or told[2]
    _walk(inner, said, is_error=True, depth=depth)
    if inner or rest.startswith("{"):  # JSON, perhaps cut short: its inside is no message
        text = text.removesuffix(rest)
    said.signs.append(("text", _ECHO.sub(r"\1 ", text[:_MAX_CHARS])))  # the verdict comes first
