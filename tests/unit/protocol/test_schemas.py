"""kio's readers behind the guard: hostile bytes are refused, unknown tags are skipped, versions load one at a time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map

from penstock.protocol.errors import MalformedMessageError
from penstock.protocol.headers import read_request_header, response_header, skip_header_tags
from penstock.protocol.primitives import read_unsigned_varint, unsigned_varint
from penstock.protocol.schemas import codec

EVERY_VERSION = [(key, version) for key, name in sorted(api_key_map.items()) for version in schema_name_map[name]]


def test_an_array_of_two_thousand_million_in_a_small_frame_is_refused() -> None:
    # A2
    with pytest.raises(MalformedMessageError, match="elements are claimed"):
        codec(3, 1).decode(b"\x7f\xff\xff\xff" + bytes(10), 0)
    with pytest.raises(MalformedMessageError, match="elements are claimed"):
        codec(3, 12).decode(b"\xff\xff\xff\xff\x0f" + bytes(10), 0)


def test_a_tagged_field_that_is_not_known_is_skipped() -> None:
    heartbeat = b"\x02g" + b"\x00\x00\x00\x05" + b"\x02m" + b"\x00"
    plain = codec(12, 4).decode(heartbeat + b"\x00", 0)
    tagged = codec(12, 4).decode(b"??" + heartbeat + b"\x02" + b"\x05\x03abc" + b"\x63\x00", 2)
    assert tagged == plain
    assert tagged.generation_id == 5


def test_a_tagged_field_that_is_known_is_kept_beside_an_unknown_one() -> None:
    fetch_12 = bytes(4 * 4 + 1 + 4 * 2) + b"\x01\x01\x01"  # no topics, none forgotten, no rack
    request = codec(1, 12).decode(fetch_12 + b"\x02" + b"\x00\x03\x03ab" + b"\x07\x01x", 0)
    assert request.cluster_id == "ab"


def test_null_means_every_topic_where_the_schema_says_so() -> None:
    # A3
    assert codec(3, 1).decode(b"\xff\xff\xff\xff", 0).topics is None
    with pytest.raises(MalformedMessageError):
        codec(3, 1).decode(b"\xff\xff\xff\xfe", 0)


@settings(max_examples=1500, deadline=None)
@given(
    st.sampled_from(EVERY_VERSION),
    st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 7, 16, 97, 127, 128, 254, 255]), max_size=120).map(bytes),
)
def test_any_bytes_in_any_version_are_read_or_refused(api: tuple[int, int], body: bytes) -> None:
    # A2, A3
    with contextlib.suppress(MalformedMessageError):
        codec(*api).decode(body, 0)


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    encoded = unsigned_varint(value)
    assert read_unsigned_varint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x7f"])
def test_a_varint_over_32_bits_is_refused(encoded: bytes) -> None:
    # A3
    with pytest.raises(MalformedMessageError):
        read_unsigned_varint(encoded, 0)


def test_fields_that_a_version_does_not_have_are_left_out() -> None:
    old, new = codec(12, 0).response, codec(12, 4).response
    assert not old.has("throttle_time")
    assert new.has("throttle_time")
    values: dict[str, Any] = {"error_code": 27, "throttle_time": None}
    assert old.make(**values).error_code == 27


def test_request_headers() -> None:
    frame = b"\x00\x03\x00\x0c\x00\x00\x00\x07\x00\x02ab\x01\x00\x01x" + b"body"
    header = read_request_header(frame)
    assert header[:4] == (3, 12, 7, "ab")
    assert frame[skip_header_tags(frame, header.body_position) :] == b"body"
    assert read_request_header(b"\x00\x03\x00\x0c\x00\x00\x00\x07\xff\xff").client_id is None


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x00\x03\x00", b"\x00\x03\x00\x0c\x00\x00\x00\x07\x00\x09ab", b"\x00\x03\x00\x0c" + b"\xff" * 5 + b"\xfe"],
)
def test_a_broken_header_is_refused(frame: bytes) -> None:
    # A7
    with pytest.raises(MalformedMessageError):
        read_request_header(frame)


def test_the_answer_to_api_versions_never_has_a_flexible_header() -> None:
    assert response_header(1, 18, flexible=True) == b"\x00\x00\x00\x01"
    assert response_header(1, 3, flexible=True) == b"\x00\x00\x00\x01\x00"
    assert response_header(1, 3, flexible=False) == b"\x00\x00\x00\x01"


def test_only_the_versions_used_are_loaded() -> None:
    program = (
        "import sys; from penstock.protocol.schemas import codec; codec(3, 12);"
        "print(sum(m.startswith('kio.schema.') and m.endswith(('.request', '.response')) for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 2
