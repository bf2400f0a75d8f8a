import asyncio

from gateway_cases import priced_router
from mild_gateway.config import RoutingSettings
from mild_gateway.selection.selector import MAX_TOGETHER, ExpertSelector


class Counted(ExpertSelector):
    def __init__(self):
        super().__init__(priced_router(), RoutingSettings())
        self.sizes = []

    def score_all(self, texts, weights):
        self.sizes.append(len(texts))
        if "bad" in texts:
            raise RuntimeError("bad")
        return super().score_all(texts, weights)


def together(texts, weights=None, cancel=None):
    selector = Counted()

    async def run():
        weighed = weights or [None] * len(texts)
        tasks = [
            asyncio.ensure_future(selector.score_soon(text, weight))
            for text, weight in zip(texts, weighed, strict=True)
        ]
        if cancel is not None:
            await asyncio.sleep(0)
            tasks[cancel].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(run()), selector


def test_what_comes_in_one_round_is_decided_together_each_under_its_weight():
    found, selector = together(["a"] * 5, [None, 0.0, 100.0, None, 0.0])
    assert selector.sizes == [5]
    assert [scores.best for scores in found] == [1, 1, 0, 1, 1]


def test_one_alone_is_decided_alone():
    found, selector = together(["a"])
    assert selector.sizes == [1]
    assert found[0].best == 1


def test_a_round_is_bounded():
    found, selector = together(["a"] * (2 * MAX_TOGETHER + 3))
    assert selector.sizes == [MAX_TOGETHER, MAX_TOGETHER, 3]
    assert all(scores.best == 1 for scores in found)


def test_who_left_is_not_decided_for():
    found, selector = together(["a", "b", "c"], cancel=1)
    assert selector.sizes == [2]
    assert isinstance(found[1], asyncio.CancelledError)
    assert found[2].best == 1


def test_an_error_reaches_everybody_who_waits():
    found, _ = together(["a", "bad"])
    assert all(isinstance(one, RuntimeError) for one in found)
