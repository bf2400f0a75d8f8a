import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.events import EventReader, event_data


class Pieces:
    def __init__(self, pieces):
        self.pieces = iter(pieces)

    async def hold(self, size):
        pass

    async def read(self):
        piece = next(self.pieces, b"")
        return piece if isinstance(piece, bytes) else bytes([piece])


def read_all(pieces):
    async def run():
        reader = EventReader(Pieces(pieces))
        found = []
        while event := await reader.next():
            found.append(event)
        return found, reader.left_over

    return asyncio.run(run())


@settings(deadline=None)
@given(
    words=st.lists(st.text('ab{}: "', min_size=1, max_size=5), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 200), max_size=8),
    rest=st.sampled_from(["", "data: half", "data: x\n"]),
)
def test_events_are_whole_wherever_the_stream_is_cut(words, end, cuts, rest):
    events = [f"data: {word}{end}{end}".encode() for word in words]
    stream = b"".join(events) + rest.encode()
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    found, left_over = read_all([piece for piece in pieces if piece])
    assert found == events
    assert left_over == bool(rest)


@settings(deadline=None)
@given(
    ends=st.lists(st.sampled_from(["\n\n", "\r\n\r\n", "\r\n\n", "\n\r\n"]), max_size=6),
    inner=st.sampled_from(["\n", "\r\n"]),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_line_ends_may_be_mixed(ends, inner, cuts):
    events = [f"event: x{inner}data: {k}{end}".encode() for k, end in enumerate(ends)]
    stream = b"".join(events)
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    found, left_over = read_all([piece for piece in pieces if piece])
    assert found == events
    assert [event_data(event) for event in found] == [b"%d" % k for k in range(len(ends))]
    assert not left_over


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\n\n", b"\n\r\n", b"\r\r"])
def test_data_is_the_same_whatever_the_line_ends(end):
    assert event_data(b'data: {"a": 1}' + end) == b'{"a": 1}'


def test_data_lines_are_joined_and_comments_have_none():
    assert event_data(b"event: x\ndata: a\ndata:b\n\n") == b"a\nb"
    assert event_data(b"data: {}\r\n\r\n") == b"{}"
    assert event_data(b"id: 3\n\n") == b""


def test_an_event_without_end_is_a_fault():
    with pytest.raises(ExpertError, match="without end"):
        read_all([b"data: " + b"x" * 1_000_000] * 10)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 100])
def test_a_byte_order_mark_is_dropped_once(cut):
    stream = b"\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n"
    found, left_over = read_all([stream[:cut], stream[cut:]] if cut < len(stream) else [stream])
    assert found == [b"data: 1\n\n", b"\xef\xbb\xbfdata: 2\n\n"]
    assert not left_over


def test_a_long_event_in_single_bytes_takes_time_in_proportion(monkeypatch):
    # Searching or copying from its start with every byte would take minutes.
    monkeypatch.setattr("mild_gateway.experts.events.MAX_EVENT_BYTES", 1_000_000)
    with pytest.raises(ExpertError, match="without end"):
        read_all(b"data: " + b"x" * 50_000 + b"\r" + b"x" * 1_000_000)
