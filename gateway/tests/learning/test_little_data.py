"""``mild learn`` with nothing, or the wrong table, to learn from."""

import warnings

import pyarrow as pa
import pytest

import mild_gateway
from ledger_cases import record, write_all
from mild.errors import InvalidInputError
from mild_gateway.database.engine import open_database
from mild_gateway.ledger.feedback import Feedback, write_feedback
from mild_gateway.versions import read_versions
from replay_cases import NAMES, make_router


@pytest.fixture
def place(tmp_path):
    """A router, and a ledger with one answer that its client has judged."""
    make_router().save(tmp_path / "router")
    write_all(tmp_path / "l", [record(0, text="what is 1 plus 2")], experts=NAMES, keep_text=True)
    database = open_database(tmp_path / "l")
    write_feedback(database, [Feedback("r0", "small", "client", 1.0, None, time=2e9)])
    database.close()
    return tmp_path


@pytest.mark.parametrize("options", [{}, {"since": "2099-01-01"}, {"trust_feedback": True}])
def test_hardly_any_answers_are_too_few_without_a_warning(place, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = mild_gateway.learn(place / "router", place / "l", **options)
    assert (found.promoted, found.reason) == (False, "too_few")
    assert "; 100 are needed" in found.sentence
    assert read_versions(place / "router").serving == 1


def test_a_table_of_other_experts_is_refused(place):
    table = pa.table({"query": ["a", "b"], "correct__x": [0, 1], "correct__y": [1, 0]})
    with pytest.raises(InvalidInputError, match="small") as failed:
        mild_gateway.learn(place / "router", place / "l", table=table)
    assert failed.value.code == "invalid_table"
    assert not (place / "router" / "versions").exists()
