"""What a prompt costs: its tokens, and how many of them a prefix cache already held.

Pure accounting, shared by the demo's provider and by the reckoning without clifftop, so that both
arms are measured alike. No HTTP, no prices, nothing about sessions or cliffs.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 64
MINIMUM_TOKENS = 1_024
PATCH_PX = 28
_CHUNK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
_UNKNOWN_IMAGE_TOKENS = 1_600


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call as Anthropic reports them; the first three sum to the prompt."""

    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Sum what was read from the cache, written to it and neither."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request's prompt without cache markers: (tools, system, messages) in that order.

    `marked_bytes`: where the last block with a marker ends; what lies behind is never cached.
    """

    data: bytes
    marked_bytes: int

    @property
    def tokens(self) -> int:
        """Count four bytes a token, rounded up."""
        return -(-len(self.data) // BYTES_PER_TOKEN)


@dataclass(slots=True, kw_only=True)
class PrefixCache:
    """All prefixes that a provider has seen, per model, in blocks of 64 tokens; nothing expires."""

    known: dict[str, set[bytes]] = field(default_factory=dict)

    def account(self, model: str, prompt: Prompt) -> Usage:
        """Say what one call reads and writes, and remember its prompt up to the last marker."""
        known = self.known.setdefault(model, set())
        marked_tokens = -(-prompt.marked_bytes // BYTES_PER_TOKEN)
        if marked_tokens < MINIMUM_TOKENS:
            return Usage(input_tokens=prompt.tokens, cache_read_tokens=0, cache_write_tokens=0)
        chain = _chain(prompt.data[: prompt.marked_bytes])
        shared = next((i for i, link in enumerate(chain) if link not in known), len(chain))
        known.update(chain[shared:])
        read = shared * BLOCK_TOKENS
        read = read if read >= MINIMUM_TOKENS else 0
        return Usage(
            input_tokens=prompt.tokens - marked_tokens,
            cache_read_tokens=read,
            cache_write_tokens=marked_tokens - read,
        )


def read_prompt(body: Mapping[str, Any]) -> Prompt:
    """Normalise a decoded request: markers out, images by size, a string as one text block."""
    pieces: list[tuple[bytes, bool]] = []
    for tool in body.get("tools") or ():
        pieces.append(_block_piece(tool))
    for block in blocks_of(body.get("system") or ()):
        pieces.append(_block_piece(block))
    for message in body["messages"]:
        pieces += _message_pieces(message)
    marked, length = 0, 0
    for data, is_marked in pieces:
        length += len(data)
        marked = length if is_marked else marked
    return Prompt(data=b"".join(data for data, _ in pieces), marked_bytes=marked)


def normal_message(message: Mapping[str, Any]) -> bytes:
    """Give one message's part of the prompt; equal for two messages that differ by markers only."""
    return b"".join(data for data, _ in _message_pieces(message))


def blocks_of(content: str | Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give content as blocks; a string is one text block (Claude Code sends both)."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content)


def count_markers(body: Mapping[str, Any]) -> int:
    """Count the `cache_control` keys of a request, where the API looks for them."""
    blocks = [*(body.get("tools") or ()), *blocks_of(body.get("system") or ())]
    for message in body["messages"]:
        for block in blocks_of(message["content"]):
            blocks.append(block)
            if block["type"] == "tool_result":
                blocks += blocks_of(block.get("content") or ())
    return sum("cache_control" in block for block in blocks)


def image_tokens(source: Mapping[str, Any]) -> int:
    """Price an image by its size: one token per patch of 28 x 28 pixels, never by its base64."""
    if source.get("media_type") != "image/png":
        return _UNKNOWN_IMAGE_TOKENS
    width, height = map(int, struct.unpack(">II", base64.b64decode(source["data"][:32])[16:24]))
    return -(-width // PATCH_PX) * -(-height // PATCH_PX)


def _chain(data: bytes) -> list[bytes]:
    links, link = [], b""
    for start in range(0, len(data) - _CHUNK_BYTES + 1, _CHUNK_BYTES):
        link = blake2b(link + data[start : start + _CHUNK_BYTES], digest_size=12).digest()
        links.append(link)
    return links


def _message_pieces(message: Mapping[str, Any]) -> list[tuple[bytes, bool]]:
    frame = {key: value for key, value in message.items() if key != "content"}
    pieces = [(msgspec.json.encode(frame), False)]
    pieces += [_block_piece(block) for block in blocks_of(message["content"])]
    return pieces


def _block_piece(block: Mapping[str, Any]) -> tuple[bytes, bool]:
    is_marked = "cache_control" in block
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    filler = b""
    if plain.get("type") == "image":
        filler = _image_filler(plain.pop("source"))
    elif plain.get("type") == "tool_result":
        inner = [_block_piece(part) for part in blocks_of(plain.pop("content", ""))]
        filler = b"".join(data for data, _ in inner)
        is_marked = is_marked or any(marked for _, marked in inner)
    return msgspec.json.encode(plain) + filler, is_marked


def _image_filler(source: Mapping[str, Any]) -> bytes:
    digest = blake2b(msgspec.json.encode(source), digest_size=32).hexdigest().encode()
    size = image_tokens(source) * BYTES_PER_TOKEN
    return (digest * (size // len(digest) + 1))[:size]
