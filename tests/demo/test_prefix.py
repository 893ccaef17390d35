"""The cache model on prompts made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clifftop.demo.output import screenshot_png
from clifftop.demo.prefix import (
    PrefixCache,
    Prompt,
    Usage,
    count_markers,
    image_tokens,
    normal_message,
    read_prompt,
)

MARK = {"cache_control": {"type": "ephemeral"}}


def prompt(data: bytes, marked: int | None = None) -> Prompt:
    return Prompt(data=data, marked_bytes=len(data) if marked is None else marked)


def split(usage: Usage) -> tuple[int, int, int]:
    return usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens


def test_first_prompt_is_written_whole() -> None:
    assert split(PrefixCache().account("m", prompt(b"a" * 8_000))) == (0, 0, 2_000)


def test_same_prompt_is_read_down_to_a_block_of_64() -> None:
    cache = PrefixCache()
    cache.account("m", prompt(b"a" * 8_000))
    assert split(cache.account("m", prompt(b"a" * 8_000))) == (0, 31 * 64, 2_000 - 31 * 64)


def test_a_longer_prompt_reads_its_shared_start() -> None:
    cache = PrefixCache()
    cache.account("m", prompt(b"a" * 8_192))
    assert split(cache.account("m", prompt(b"a" * 8_192 + b"b" * 4_000))) == (0, 2_048, 1_000)


def test_a_change_early_on_reads_only_what_lies_before() -> None:
    cache = PrefixCache()
    cache.account("m", prompt(b"a" * 20_000))
    changed = b"a" * 5_000 + b"b" + b"a" * 14_999
    assert cache.account("m", prompt(changed)).cache_read_tokens == 5_000 // 256 * 64


def test_an_older_prefix_is_still_known() -> None:
    cache = PrefixCache()
    old = b"a" * 10_240
    cache.account("m", prompt(old))
    cache.account("m", prompt(b"b" * 10_240))
    assert cache.account("m", prompt(old)).cache_read_tokens == 2_560


def test_under_1024_tokens_nothing_is_cached() -> None:
    cache = PrefixCache()
    assert split(cache.account("m", prompt(b"a" * 4_092))) == (1_023, 0, 0)
    assert split(cache.account("m", prompt(b"a" * 4_096))) == (0, 0, 1_024)
    assert split(cache.account("m", prompt(b"a" * 4_096))) == (0, 1_024, 0)
    assert cache.account("m", prompt(b"a" * 4_000 + b"b" * 4_000)).cache_read_tokens == 0


def test_what_lies_behind_the_last_marker_is_never_cached() -> None:
    cache = PrefixCache()
    for _ in range(2):
        usage = cache.account("m", prompt(b"a" * 16_000, marked=8_192))
    assert split(usage) == (4_000 - 2_048, 2_048, 0)
    assert split(cache.account("m", prompt(b"a" * 16_000, marked=0))) == (4_000, 0, 0)


def test_models_share_nothing() -> None:
    cache = PrefixCache()
    cache.account("m", prompt(b"a" * 8_192))
    assert cache.account("n", prompt(b"a" * 8_192)).cache_read_tokens == 0


@given(st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 9_000), st.booleans()), max_size=6))
def test_the_three_counts_sum_to_the_prompt(shapes: list[tuple[int, int, bool]]) -> None:
    cache = PrefixCache()
    for same, other, is_marked in shapes:
        one = prompt(b"s" * same + b"o" * other, marked=None if is_marked else same)
        usage = cache.account("m", one)
        assert min(split(usage)) >= 0
        assert usage.prompt_tokens == one.tokens == -(-(same + other) // 4)


def body(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "system": [{"type": "text", "text": "s"}], "messages": list(messages)}


def test_markers_do_not_change_the_prompt() -> None:
    plain = body({"role": "user", "content": "hello"})
    marked = body({"role": "user", "content": [{"type": "text", "text": "hello", **MARK}]})
    assert read_prompt(plain).data == read_prompt(marked).data
    assert read_prompt(plain).marked_bytes == 0
    assert read_prompt(marked).marked_bytes == len(read_prompt(marked).data)


def test_a_marker_inside_a_result_counts() -> None:
    result = {"type": "tool_result", "tool_use_id": "t"}
    plain = {"role": "user", "content": [{**result, "content": "text"}]}
    inner = {
        "role": "user",
        "content": [{**result, "content": [{"type": "text", "text": "text", **MARK}]}],
    }
    assert normal_message(plain) == normal_message(inner)
    assert read_prompt(body(inner)).marked_bytes == len(read_prompt(body(inner)).data)
    assert count_markers(body(inner)) == 1


def test_a_key_named_cache_control_in_a_calls_input_is_no_marker() -> None:
    call = {"type": "tool_use", "id": "t", "name": "n", "input": MARK}
    message = {"role": "assistant", "content": [call]}
    assert count_markers(body(message)) == 0
    assert b"cache_control" in normal_message(message)


def test_tools_come_first_then_system_then_messages() -> None:
    whole = {**body({"role": "user", "content": "MESSAGE"}), "tools": [{"name": "TOOL"}]}
    data = read_prompt(whole).data
    assert data.index(b"TOOL") < data.index(b'"s"') < data.index(b"MESSAGE")


@pytest.mark.parametrize(("media_type", "tokens"), [("image/png", 52 * 30), ("image/webp", 1_600)])
def test_an_image_costs_its_patches_not_its_base64(media_type: str, tokens: int) -> None:
    source = {"type": "base64", "media_type": media_type, "data": screenshot_png()}
    assert image_tokens(source) == tokens
    message = {"role": "user", "content": [{"type": "image", "source": source}]}
    assert abs(len(normal_message(message)) / 4 - tokens) < 20
    other = {**source, "data": source["data"][:-8] + "AAAAAAAA"}
    assert normal_message(message) != normal_message(
        {"role": "user", "content": [{"type": "image", "source": other}]}
    )
