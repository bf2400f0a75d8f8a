import pytest

from mild.endpoints.expert import Expert
from mild.gateway.server.usage import Usage, max_tokens

EXPERT = Expert("small", "http://x/v1", "m", max_tokens=100, price_in=1.0, price_out=1.0)


@pytest.mark.parametrize(
    ("document", "most"),
    [
        ({}, 100),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 1, "max_tokens": 5000}, 5000),
        ({"max_completion_tokens": 5000, "max_tokens": 1}, 5000),
        ({"max_tokens": "5000"}, 5000),
        ({"max_tokens": 5000.0}, 5000),
        ({"max_tokens": None}, 100),
        ({"max_tokens": True}, 100),
        ({"max_tokens": "many"}, 100),
        ({"max_tokens": float("inf")}, 100),
        ({"max_tokens": float("nan")}, 100),
        ({"max_tokens": -5}, 100),
        ({"max_tokens": [5]}, 100),
        ({"max_tokens": 10, "n": "3"}, 30),
        ({"max_tokens": 10, "n": 2, "best_of": 4}, 40),
        ({"max_tokens": 10, "prompt": ["a", "b"]}, 20),
        ({"max_tokens": 10, "prompt": [1, 2, 3]}, 10),
    ],
)
def test_no_more_is_charged_than_was_put_aside_however_it_is_written(document, most):
    assert max_tokens(document, EXPERT) == most


@pytest.mark.parametrize(
    "said", [None, 5, {}, {"prompt_tokens": -1}, {"prompt_tokens": "5"}, {"completion_tokens": 5}]
)
def test_a_usage_that_makes_no_sense_is_estimated(said):
    usage = Usage(300, pieces_out=4)
    usage.read({"usage": said})
    assert (usage.tokens_in, usage.tokens_out) == (None, None)
    assert usage.dollars(EXPERT) == pytest.approx(104e-6)
