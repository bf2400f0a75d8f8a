"""Pools of workers behave alike."""

from __future__ import annotations

import os
import pickle
import signal
from concurrent.futures import Future

import numpy as np
import pytest

from mild.artifact import Router, RouterInfo
from mild.distributed.executors import process_pool, result_of
from mild.errors import DataFileError, InvalidInputError
from mild.features import HashingFeatures
from mild.policies import ConstantPolicy


def end_process(shared):
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(shared):
    raise InvalidInputError("not like this.", parameter="this")


def test_functions_get_the_shared_value_and_errors_come_back():
    with process_pool(2, 10) as submit:
        assert [submit(divmod, n).result() for n in (3, 4)] == [(3, 1), (2, 2)]
        with pytest.raises(InvalidInputError) as caught:
            result_of(submit(refuse), "a part", "Try again.")
    assert caught.value.parameter == "this"


def test_a_process_that_dies_is_said_in_a_sentence():
    with process_pool(1, None) as submit:
        future = submit(end_process)
        with pytest.raises(DataFileError, match=r"a worker process died .* memory\. Try again\."):
            result_of(future, "a part", "Try again.")


def test_other_errors_are_raised_as_they_are():
    future = Future()
    future.set_exception(KeyError("key"))
    with pytest.raises(KeyError):
        result_of(future, "a part", "Try again.")


def test_a_loaded_router_can_be_sent():
    texts = ["boil salt", "add seven"]
    step = HashingFeatures().fit(texts)
    policy = ConstantPolicy(np.array([0.5, 0.2]), step.n_features_)
    router = Router(policy, ["a", "b"], None, RouterInfo.from_notes({"x": 1}), step)
    sent = pickle.loads(pickle.dumps(router))
    assert sent.info == router.info
    np.testing.assert_array_equal(sent.features(texts), router.features(texts))
    np.testing.assert_array_equal(sent.predict_texts(texts), router.predict_texts(texts))
