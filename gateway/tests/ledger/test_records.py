"""A record and its row."""

import dataclasses

import pytest

from ledger_cases import record, write_all
from mild.core.long_texts import abridge
from mild_gateway.ledger import Record, read_ledger
from mild_gateway.ledger.records import COLUMNS, as_row, from_row


def test_columns_are_the_fields_in_their_order():
    assert [field.name for field in dataclasses.fields(Record)] == list(COLUMNS)


def test_a_record_comes_back_from_its_row():
    full = Record(
        "r", 1.5, "k", "mild", "a", "b", [0.25, None, 0.75], 0.5, 0.1, 0.002, 3, 4, 5.0, 6.0, 7.0, 200,
        "cut", 2, True, "s", "f", "text", "why", "r0", [{"expert": "a", "step": 1}],
    )  # fmt: skip
    assert from_row(as_row(full).values()) == full
    bare = Record("r", 1.5, "k", "mild")
    assert from_row(as_row(bare).values()) == bare


def test_the_text_is_kept_only_where_the_settings_say_so(tmp_path):
    secret = record(text="my secret question")
    for keep in (False, True):
        path = write_all(tmp_path / f"{keep}.db", [secret], keep_text=keep)
        (found,) = read_ledger(path)
        assert found.text == ("my secret question" if keep else None)
        held = b"".join(file.read_bytes() for file in tmp_path.glob(f"{keep}.db*"))
        assert (b"my secret question" in held) == keep


@pytest.mark.parametrize("text", ["\ud800 half", "nul \0 inside", "ß 漢字 🙂", ""])
def test_any_text_can_be_stored(tmp_path, text):
    path = write_all(tmp_path / "l.db", [record(text=text, asked=text, error=text)], keep_text=True)
    (found,) = read_ledger(path)
    stored = text.replace("\ud800", "?").replace("\0", "\ufffd")
    assert found.text == found.asked == found.error == stored


def test_what_clients_and_experts_wrote_is_cut(ledger_place):
    long = "".join(f"{number} " for number in range(100_000))
    rows = [
        record(0, text=long, asked=long, error=long),
        record(1, text=long, outcome="refused"),
        record(2, text=long, outcome="failed"),
        record(3, text=long, outcome="cancelled", attempts=0),
        record(4, text=long, outcome="failed", status=400),
    ]
    write_all(ledger_place, rows, keep_text=True)
    first, refused, failed, unasked, wrong = read_ledger(ledger_place)
    assert (first.asked, first.error) == (long[:256], long[:256])
    assert first.text == failed.text == abridge(long)
    assert len(first.text) < 8300
    assert refused.text is unasked.text is wrong.text is None
    # The records of who wrote them are as they were.
    assert rows[0].text == rows[1].text == long
