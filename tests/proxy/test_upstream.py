"""Which upstream, at what URL, with which headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from yarl import URL

from clifftop.proxy.upstream import Target, forwarded, request_headers, upstream_of, url_at


@pytest.mark.parametrize(
    ("path", "upstream"),
    [
        ("/v1/messages", "anthropic"),
        ("/v1/messages/count_tokens", "anthropic"),
        ("/v1/messages/batches", "anthropic"),
        ("/v1/messages/batches/b1/results", "anthropic"),
        ("/v1/complete", "anthropic"),
        ("/api/event_logging/batch", "anthropic"),
        ("/", "anthropic"),
        ("/v1/threads/x/messages", "openai"),
        ("/v1/messages/x", "openai"),
        ("/v1/completions", "openai"),
        ("/v1/chat/completions", "openai"),
        ("/v1/responses", "openai"),
        ("/v1/responses/r1/cancel", "openai"),
        ("/v1/models", "openai"),
        ("/v1/embeddings", "openai"),
        ("/v1beta/models/gemini-3:generateContent", "gemini"),
        ("/v1beta/models", "gemini"),
        ("/v1/models/gemini-3:streamGenerateContent", "gemini"),
        ("/upload/v1beta/files", "gemini"),
    ],
)
def test_path_table(path: str, upstream: str) -> None:
    assert upstream_of(path, CIMultiDict()) == upstream


def test_models_and_files_are_anthropics_when_its_version_is_sent() -> None:
    headers = CIMultiDict({"Anthropic-Version": "2023-06-01"})
    assert upstream_of("/v1/models", headers) == "anthropic"
    assert upstream_of("/v1/files/f1", headers) == "anthropic"


BASE = "https://api.example:8443"


@pytest.mark.parametrize(
    ("raw", "url"),
    [
        ("/v1/messages?beta=true", BASE + "/v1/messages?beta=true"),
        ("/v1/%41%2F?q=%2b&q=a+b", BASE + "/v1/%41%2F?q=%2b&q=a+b"),
        ("//evil.example/x", BASE + "//evil.example/x"),
        ("/%2e%2e/x", BASE + "/%2e%2e/x"),
        ("/../x", BASE + "/../x"),
        ("/@evil.example/x", BASE + "/@evil.example/x"),
        ("http://evil.example/v1/x?y=1", BASE + "/v1/x?y=1"),
        ("http://evil.example", BASE + "/"),
        ("evil.example:443", BASE + "/"),
        ("*", BASE + "/"),
        ("/x#/y", BASE + "/x%23/y"),
        ("/\udcff", BASE + "/%FF"),
        ("/é", BASE + "/%C3%A9"),
    ],
)
def test_urls_keep_their_spelling_and_stay_at_the_upstream(raw: str, url: str) -> None:
    assert str(url_at(BASE, Target.of(raw))) == url


def test_a_base_path_is_kept() -> None:
    for base in ("https://host/api/team", "https://host/api/team/"):
        url = url_at(base, Target.of("/v1/messages?beta=true"))
        assert str(url) == "https://host/api/team/v1/messages?beta=true"


@pytest.mark.parametrize("raw", ["/../x", "/a/%2e%2e/%2E./x", "/..%2fx", "/..%5cx", "/v1/.."])
def test_no_target_climbs_out_of_a_base_path(raw: str) -> None:
    assert url_at("https://host/api/team", Target.of(raw)) is None


@given(st.text(alphabet="/\\@:.?#[]%2eE5c*evil httpsé\udcff", max_size=30))
def test_no_target_names_another_host(raw: str) -> None:
    url = url_at(BASE, Target.of(raw))
    assert url is not None
    assert url.origin() == URL(BASE)
    assert url.raw_path_qs.isascii()


def raw(**headers: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]


def test_hop_by_hop_headers_stay_behind() -> None:
    given = [
        *raw(Accept="a", Connection="close, X-Hop", Keep_Alive="5", TE="trailers", Upgrade="h2c"),
        *raw(Proxy_Authorization="p", Transfer_Encoding="chunked", Trailer="t", x_hop="1"),
        *raw(Authorization="Bearer t", connection="x-second", X_Second="2", X_Third="3"),
    ]
    assert list(forwarded(given)) == ["Accept", "Authorization", "X-Third"]


def test_repeated_headers_keep_number_order_and_spelling() -> None:
    given = [(b"X-Tag", b"1"), (b"other", b"o"), (b"x-tag", b"2"), (b"X-Tag", b"")]
    assert list(forwarded(given).items()) == [(k.decode(), v.decode()) for k, v in given]


def test_host_and_framing_are_made_anew() -> None:
    given = raw(Host="127.0.0.1:8787", Content_Length="5", Expect="100-continue", Accept="a")
    assert list(request_headers(given).items()) == [("Accept", "a")]


def test_repeated_headers_differing_in_case_are_all_sent() -> None:
    given = [(b"X-Tag", b"1"), (b"x-tag", b"2")]
    assert list(request_headers(given).items()) == [("X-Tag", "1"), ("X-Tag", "2")]
