"""Image formats by hand-made headers, documents, and when a reported usage moves the rate."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clifftop.core.sizes import (
    DEFAULT_RATE,
    IMAGE_TOKENS_MAX,
    PAGE_TOKENS,
    PAGES_MAX,
    UNREADABLE_IMAGE_TOKENS,
    Size,
    base64_image_tokens,
    calibrate,
    document_tokens,
    image_dimensions,
    image_tokens,
    openai_usage_prompt_tokens,
    usage_prompt_tokens,
)

sizes = st.builds(Size, text_bytes=st.integers(0, 10**8), media_tokens=st.integers(0, 10**6))
sides = st.integers(1, 16_000)


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x06"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\x00\x00"


def jpeg(width: int, height: int, *, metadata_bytes: int = 30, frame: int = 0xC2) -> bytes:
    segments = b"\xff\xe0\x00\x10" + b"JFIF\x00" + bytes(9)
    while metadata_bytes > 0:
        chunk = min(metadata_bytes, 60_000)
        segments += b"\xff\xe1" + struct.pack(">H", chunk + 2) + b"\xff" * chunk
        metadata_bytes -= chunk
    huffman = b"\xff\xc4\x00\x05\x00\x01\x02"  # C4 lies in the frame range and is no frame
    size = struct.pack(">HBHHB", 17, 8, height, width, 3)
    return b"\xff\xd8" + segments + huffman + b"\xff\xff" + bytes((frame,)) + size + bytes(9)


def webp(chunk: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 100) + b"WEBP" + chunk + struct.pack("<I", 50) + body


def webp_lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", width, height | 1 << 14))


def webp_lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", width - 1 | height - 1 << 14) + bytes(8))


def webp_extended(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp(b"VP8X", b"\x10\x00\x00\x00" + sides)


FORMATS = [png, gif, jpeg, webp_lossy, webp_lossless, webp_extended]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@given(sizes, sizes, st.floats(0.02, 2))
def test_sizes_add_up_and_take_away(a, b, rate):
    assert a + b - b == a
    assert sum([a, b], Size()) == a + b
    assert (a + b).tokens(rate) == pytest.approx(a.tokens(rate) + b.tokens(rate))


def test_media_tokens_do_not_follow_the_rate():
    assert Size(text_bytes=1_000, media_tokens=70).tokens(0.25) == 320
    assert Size(text_bytes=1_000, media_tokens=70).tokens(0.5) == 570


@pytest.mark.parametrize(
    ("reported", "moves"), [(27_300, False), (32_700, False), (33_300, True), (26_700, True)]
)
def test_the_rate_moves_only_over_ten_percent(reported, moves):
    new = calibrate(0.30, size=Size(text_bytes=100_000), reported_tokens=reported)
    assert new == (reported / 100_000 if moves else 0.30)


def test_media_is_taken_off_the_report_before_the_rate_is_read():
    size = Size(text_bytes=100_000, media_tokens=4_000)
    assert calibrate(0.30, size=size, reported_tokens=44_000) == 0.40


@pytest.mark.parametrize(
    ("size", "reported"),
    [
        (Size(text_bytes=3_999), 3_000),  # too small
        (Size(), 3_000),
        (Size(text_bytes=100_000, media_tokens=9_000), 9_000),  # nothing left for the text
        (Size(text_bytes=100_000, media_tokens=9_000), 8_000),
        (Size(text_bytes=100_000, media_tokens=9_000), 60_000),  # too much of it is media
        (Size(text_bytes=100_000), 0),
        (Size(text_bytes=100_000), -5),
        (Size(text_bytes=100_000), 1_999),  # 0.02 tokens a byte
        (Size(text_bytes=100_000), 200_001),  # 2 tokens a byte
        (Size(text_bytes=100_000), 10**400),
        (Size(text_bytes=-100_000, media_tokens=-5), 5_000),
    ],
)
def test_a_report_that_cannot_be_right_teaches_nothing(size, reported):
    assert calibrate(0.31, size=size, reported_tokens=reported) == 0.31


@pytest.mark.parametrize("damaged", [0.0, -1.0, 3.0, float("nan"), float("inf")])
def test_a_damaged_rate_is_replaced(damaged):
    assert calibrate(damaged, size=Size(text_bytes=10_000), reported_tokens=2_500) == 0.25
    assert calibrate(damaged, size=Size(), reported_tokens=2_500) == DEFAULT_RATE


@given(st.floats(), sizes, st.integers())
def test_a_calibrated_rate_is_in_range_and_stays_for_the_same_report(rate, size, reported):
    new = calibrate(rate, size=size, reported_tokens=reported)
    assert 0.02 <= new <= 2
    assert calibrate(new, size=size, reported_tokens=reported) == new


def test_all_cache_fields_of_an_anthropic_usage_count():
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 900}
    assert usage_prompt_tokens({**usage, "output_tokens": 7}) == 953
    assert usage_prompt_tokens({"input_tokens": 12, "cache_read_input_tokens": None}) == 12


@pytest.mark.parametrize(
    "usage",
    [{}, {"output_tokens": 5}, {"input_tokens": 0}, {"input_tokens": "9"}, {"input_tokens": True}],
)
def test_an_unknown_usage_is_none_and_never_zero(usage):
    assert usage_prompt_tokens(usage) is None
    assert openai_usage_prompt_tokens(usage) is None


def test_cached_tokens_of_an_openai_usage_are_not_counted_twice():
    details = {"cached_tokens": 800}
    chat = {"prompt_tokens": 953, "prompt_tokens_details": details, "completion_tokens": 7}
    assert openai_usage_prompt_tokens(chat) == 953
    assert openai_usage_prompt_tokens({"input_tokens": 953, "input_tokens_details": details}) == 953


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1, 1, 1),
        (28, 28, 1),
        (29, 28, 2),
        (200, 200, 64),
        (1000, 1000, 1_296),  # the vision page's own example
        (1092, 1092, 1_521),
        (1920, 1080, 69 * 39),
        (2576, 1449, 4_784),
        (8000, 8000, IMAGE_TOKENS_MAX),
        (8000, 100, 92 * 2),  # scaled to 2,576 x 33
        (0, 0, 1),
    ],
)
def test_an_image_costs_its_patches_after_scaling(width, height, tokens):
    assert image_tokens(width, height) == tokens


@given(sides, sides)
def test_image_tokens_are_bounded_symmetric_and_never_below_the_scaled_area(width, height):
    tokens = image_tokens(width, height)
    scale = min(1, 2_576 / max(width, height))
    assert 1 <= tokens <= IMAGE_TOKENS_MAX
    assert tokens == image_tokens(height, width)
    assert tokens >= min(IMAGE_TOKENS_MAX, int(width * scale * height * scale / 784))


@pytest.mark.parametrize("make", FORMATS)
@given(width=st.integers(1, 16_383), height=st.integers(1, 16_383))
def test_dimensions_are_read_from_every_format(make, width, height):
    assert image_dimensions(make(width, height)) == (width, height)


@pytest.mark.parametrize("make", FORMATS[:4])
def test_an_image_without_area_is_unreadable(make):
    assert image_dimensions(make(0, 5)) is image_dimensions(make(5, 0)) is None


def test_the_shortest_header_that_holds_the_dimensions_is_enough():
    assert image_dimensions(png(640, 480)[:24]) == (640, 480)
    assert image_dimensions(gif(640, 480)[:10]) == (640, 480)
    assert image_dimensions(webp_extended(640, 480)[:30]) == (640, 480)
    assert image_dimensions(jpeg(640, 480)[:-10]) == (640, 480)
    assert image_dimensions(webp_lossy(16_383, 16_383)) == (16_383, 16_383)


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC3, 0xC5, 0xCF])
def test_every_kind_of_jpeg_frame_is_read(frame):
    assert image_dimensions(jpeg(640, 480, frame=frame)) == (640, 480)


@pytest.mark.parametrize("make", FORMATS)
def test_a_header_cut_anywhere_is_unreadable_but_never_an_error(make):
    header = make(640, 480)
    for length in range(len(header)):
        assert image_dimensions(header[:length]) in (None, (640, 480))


@given(st.binary(max_size=200), st.sampled_from([make(9, 9)[:16] for make in FORMATS] + [b""]))
def test_any_bytes_give_dimensions_or_none(noise, start):
    found = image_dimensions(start + noise)
    assert found is None or min(found) > 0


@pytest.mark.parametrize("make", FORMATS)
def test_base64_images_are_priced_by_their_dimensions(make):
    data = b64(make(1920, 1080) + bytes(100_000))
    assert base64_image_tokens(data) == 69 * 39
    assert base64_image_tokens(f"data:image/png;base64,{data}") == 69 * 39
    assert (
        base64_image_tokens("\n".join(data[i : i + 76] for i in range(0, len(data), 76))) == 69 * 39
    )
    assert base64_image_tokens(data.replace("+", "-").replace("/", "_")) == 69 * 39


def test_a_jpeg_with_large_metadata_is_still_read():
    assert base64_image_tokens(b64(jpeg(640, 480, metadata_bytes=70_000))) == 23 * 18
    assert (
        base64_image_tokens(b64(jpeg(640, 480, metadata_bytes=900_000))) == UNREADABLE_IMAGE_TOKENS
    )


@pytest.mark.parametrize(
    "data", ["", "data:", "data:image/png;base64,", "https://x/y.png", "é" * 9, "\ud800", "="]
)
def test_an_unreadable_image_costs_the_stated_default(data):
    assert base64_image_tokens(data) == UNREADABLE_IMAGE_TOKENS


@given(st.text(max_size=300) | st.from_regex(r"[A-Za-z0-9+/=_\s-]{0,300}", fullmatch=True))
def test_no_text_makes_a_price_fail(data):
    assert 1 <= base64_image_tokens(data) <= IMAGE_TOKENS_MAX
    assert document_tokens(data) == PAGE_TOKENS


def pdf(pages: int, *, page: bytes = b"<< /Type /Page /Parent 1 0 R >>\n") -> bytes:
    return b"%PDF-1.4\n1 0 obj << /Type /Pages /Count 9 >> endobj\n" + page * pages


def packed_pdf(pages: int) -> bytes:
    stream = zlib.compress(b"<</Type/Page/Parent 1 0 R>> " * pages)
    head = b"%%PDF-1.7\n7 0 obj\n<</Type /ObjStm /Filter/FlateDecode /Length %d>>\nstream\r\n"
    return head % len(stream) + stream + b"\nendstream endobj"


@pytest.mark.parametrize(
    "page", [b"<</Type/Page>>", b"<< /Type  /Page\n", b"<</Type\n/Page/MediaBox"]
)
def test_a_document_costs_its_pages_and_not_its_page_tree(page):
    assert document_tokens(b64(pdf(7, page=page))) == 7 * PAGE_TOKENS
    assert document_tokens("data:application/pdf;base64," + b64(pdf(7))) == 7 * PAGE_TOKENS


def test_pages_in_compressed_object_streams_count():
    assert document_tokens(b64(packed_pdf(12))) == 12 * PAGE_TOKENS
    assert document_tokens(b64(packed_pdf(12) + packed_pdf(3))) == 15 * PAGE_TOKENS
    encrypted = b"/Type /ObjStm stream\nnoise"
    endless = b"/Type /ObjStm" + bytes(500)
    assert document_tokens(b64(encrypted + endless + packed_pdf(3))) == 3 * PAGE_TOKENS
    assert document_tokens(b64(packed_pdf(1) * 70)) == 64 * PAGE_TOKENS  # bounded work


def test_an_unreadable_document_is_priced_by_its_size():
    assert document_tokens(b64(bytes(490_000))) == 10 * PAGE_TOKENS
    assert document_tokens(b64(b"/Type /ObjStm stream\n" + bytes(90_000))) == 2 * PAGE_TOKENS


def test_pages_behind_what_is_read_are_extrapolated():
    page = b"<< /Type /Page >>" + bytes(60_000)
    assert document_tokens(b64(page * 200)) == pytest.approx(200 * PAGE_TOKENS, rel=0.01)


def test_a_document_has_at_most_the_pages_a_provider_takes():
    assert document_tokens(b64(pdf(5_000))) == PAGES_MAX * PAGE_TOKENS
    assert document_tokens("A" * 100_000_000) == PAGES_MAX * PAGE_TOKENS
