"""What content costs in tokens, without a tokenizer: text by its bytes, media by its dimensions.

Knows published pricing rules of media and how to learn the rate of text from an answer's usage. May
not know wire formats: the caller (`dialects/`) says which bytes are text and which are media.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_RATE = (
    0.30  # tokens per byte of text before the first answer; errs high (JSON is near 0.25)
)
RATE_RANGE = (0.02, 2.0)  # tokens per byte; outside lies a report of something else
RATE_STEP = 0.10  # share of the old rate: a rate that follows every answer moves old crossings
CALIBRATION_BYTES = 4_000  # below, the provider's hidden prompt parts outweigh the text
# Media prices err high, up to threefold on models of low resolution. Taken off the reported tokens,
# a larger share would make the rate of text err low by more than RATE_STEP.
CALIBRATION_MEDIA_PARTS = 8  # media may be at most an eighth of the report

# Anthropic vision page: a visual token is a patch of 28 x 28 pixels, after the image is scaled down
# to a long edge of 2,576 pixels and 4,784 tokens (high-resolution models; older: 1,568 and 1,568).
PATCH_PIXELS = 28
LONG_EDGE_PIXELS = 2_576
IMAGE_TOKENS_MAX = 4_784
UNREADABLE_IMAGE_TOKENS = 1_600  # a full image of the older models

# Anthropic PDF page: 1,500 to 3,000 tokens of text a page, and a picture of it. Measured elsewhere:
# 2,300 to 3,150 for a dense page, both together.
PAGE_TOKENS = 3_000
PAGES_MAX = 600  # the provider refuses longer documents
UNREADABLE_PAGE_BYTES = 50_000  # of the PDF file, for a page that cannot be counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Hold what a prompt or a part of it weighs: bytes of UTF-8 text, tokens of media."""

    text_bytes: int = 0
    media_tokens: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            text_bytes=self.text_bytes + other.text_bytes,
            media_tokens=self.media_tokens + other.media_tokens,
        )

    def __sub__(self, other: Size) -> Size:
        return Size(
            text_bytes=self.text_bytes - other.text_bytes,
            media_tokens=self.media_tokens - other.media_tokens,
        )

    def tokens(self, rate: float) -> float:
        """Estimate the tokens at `rate` tokens per byte of text."""
        return self.text_bytes * rate + self.media_tokens


def calibrate(rate: float, *, size: Size, reported_tokens: int) -> float:
    """Return the tokens-per-byte rate that holds after an answer reported its prompt tokens.

    `rate` comes back unchanged unless the answer differs from it by over 10 %. Reports that cannot
    be right, that are mostly media, or belong to a tiny prompt teach nothing. A `rate` that is
    itself out of range (a damaged store) gives way to any sane report, else to `DEFAULT_RATE`.
    """
    low, high = RATE_RANGE
    known = low <= rate <= high
    kept = rate if known else DEFAULT_RATE
    text_tokens = reported_tokens - size.media_tokens
    if size.text_bytes < CALIBRATION_BYTES or size.media_tokens < 0:
        return kept
    if size.media_tokens * CALIBRATION_MEDIA_PARTS > reported_tokens:
        return kept
    # Compared before the division: a made-up report of 10**400 tokens has no quotient.
    if not low * size.text_bytes <= text_tokens <= high * size.text_bytes:
        return kept
    seen = text_tokens / size.text_bytes
    return seen if not known or abs(seen - rate) > RATE_STEP * rate else rate


def usage_prompt_tokens(usage: Mapping[str, object]) -> int | None:
    """Sum an Anthropic usage object's prompt tokens; None if it reports none.

    There `input_tokens` is the uncached rest alone: cache writes and reads are added.

    Source: Anthropic Messages reference, usage.
    """
    fields = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(_count(usage, field) for field in fields) or None


def openai_usage_prompt_tokens(usage: Mapping[str, object]) -> int | None:
    """Read an OpenAI usage object's prompt tokens (Chat or Responses); None if it reports none.

    There the cached tokens are already included.

    Source: OpenAI reference, chat.completion usage and response usage.
    """
    return _count(usage, "prompt_tokens") or _count(usage, "input_tokens") or None


def _count(usage: Mapping[str, object], field: str) -> int:
    value = usage.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def image_tokens(width: int, height: int) -> int:
    """Price an image of `width` x `height` pixels in tokens; errs high, at most 4,784.

    Source: Anthropic vision page (28-pixel patches, the high-resolution limits).
    """
    long_edge = max(width, height, 1)
    if long_edge > LONG_EDGE_PIXELS:
        width = -(-width * LONG_EDGE_PIXELS // long_edge)
        height = -(-height * LONG_EDGE_PIXELS // long_edge)
    patches = max(-(-width // PATCH_PIXELS), 1) * max(-(-height // PATCH_PIXELS), 1)
    return min(patches, IMAGE_TOKENS_MAX)


def base64_image_tokens(data: str) -> int:
    """Price an image given as base64 or as a data: URL; `UNREADABLE_IMAGE_TOKENS` if unreadable.

    Only the first 3 KB are decoded, or 96 KB where a JPEG's metadata comes before its dimensions.
    """
    dimensions = image_dimensions(_decoded(data, 4_096))
    if dimensions is None and len(data) > 4_096:
        dimensions = image_dimensions(_decoded(data, 131_072))
    return UNREADABLE_IMAGE_TOKENS if dimensions is None else image_tokens(*dimensions)


def image_dimensions(header: bytes) -> tuple[int, int] | None:
    """Read (width, height) in pixels off the start of a PNG, JPEG, GIF or WebP; None if it is none.

    Source: PNG 11.2.2 IHDR, JPEG B.2.2 frame header, GIF89a 18, WebP container and bitstreams.
    """
    size = None
    if header.startswith(b"\x89PNG\r\n\x1a\n") and header[12:16] == b"IHDR" and len(header) >= 24:
        size = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
    elif header.startswith((b"GIF87a", b"GIF89a")) and len(header) >= 10:
        size = int.from_bytes(header[6:8], "little"), int.from_bytes(header[8:10], "little")
    elif header.startswith(b"RIFF") and header[8:12] == b"WEBP" and len(header) >= 30:
        size = _webp_dimensions(header)
    elif header.startswith(b"\xff\xd8"):
        size = _jpeg_dimensions(header)
    return size if size and size[0] > 0 and size[1] > 0 else None


def _webp_dimensions(header: bytes) -> tuple[int, int] | None:
    match header[12:16]:
        case b"VP8 " if header[23:26] == b"\x9d\x01\x2a":
            both = int.from_bytes(header[26:30], "little")
            return both & 0x3FFF, both >> 16 & 0x3FFF  # the two bits above are a scale
        case b"VP8L" if header[20] == 0x2F:
            both = int.from_bytes(header[21:25], "little")
            return (both & 0x3FFF) + 1, (both >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width, height = header[24:27], header[27:30]
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    return None


_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length


def _jpeg_dimensions(header: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(header) and header[at] == 0xFF:
        marker = header[at + 1]
        if marker == 0xFF:  # filling
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = header[at + 5 : at + 7], header[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        else:
            at += 2 + max(int.from_bytes(header[at + 2 : at + 4], "big"), 2)
    return None


PDF_READ_CHARS = 8_000_000  # of base64; pages of what lies behind are extrapolated
_PAGE = re.compile(rb"/Type\s{0,4}/Page(?![A-Za-z])")
_PACKED = re.compile(rb"/Type\s{0,4}/ObjStm")
_PACKED_STREAMS_MAX = 64
_PACKED_BYTES_MAX = 256_000  # of one inflated stream


def document_tokens(base64_data: str) -> int:
    """Price a PDF given as base64 or as a data: URL, in tokens: its pages x `PAGE_TOKENS`.

    Pages are counted in the first 6 MB, compressed object streams included; a file in which none is
    found has a page for every 50,000 bytes. At least 1 page, at most `PAGES_MAX`.

    Source: Anthropic PDF support page.
    """
    read = _decoded(base64_data, PDF_READ_CHARS)
    pages = len(_PAGE.findall(read)) + _packed_pages(read)
    file_bytes = len(base64_data) * 3 // 4
    if pages == 0:
        pages = -(-file_bytes // UNREADABLE_PAGE_BYTES)
    elif len(base64_data) > PDF_READ_CHARS:
        pages = -(-pages * file_bytes // len(read))
    return min(max(pages, 1), PAGES_MAX) * PAGE_TOKENS


def _packed_pages(pdf: bytes) -> int:
    """Count pages in object streams, where most writers since PDF 1.5 keep them."""
    pages = 0
    for number, packed in enumerate(_PACKED.finditer(pdf)):
        start = pdf.find(b"stream", packed.end(), packed.end() + 400)
        if number >= _PACKED_STREAMS_MAX:
            break
        if start < 0:
            continue
        body = pdf[start + 6 : start + 6 + _PACKED_BYTES_MAX].lstrip(b"\r\n")
        try:
            inflated = zlib.decompressobj().decompress(body, _PACKED_BYTES_MAX)
        except zlib.error:  # another filter, or encrypted
            continue
        pages += len(_PAGE.findall(inflated))
    return pages


def _decoded(data: str, chars: int) -> bytes:
    """Decode the first `chars` of base64; b"" if it is none."""
    start = data.find(",", 0, 256) + 1 if data.startswith("data:") else 0
    text = "".join(data[start : start + chars].split()).replace("-", "+").replace("_", "/")
    try:
        return binascii.a2b_base64(text.rstrip("=")[: len(text) // 4 * 4] + "==")
    except ValueError:  # binascii.Error, or characters beyond ASCII
        return b""
