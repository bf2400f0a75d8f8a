"""One policy of every kind, and a way to damage a saved one with its checksum kept right."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from mild.artifact import Router, save
from mild.policies import (
    BlendPolicy,
    CascadePolicy,
    ConstantPolicy,
    Decoder,
    DeferralPolicy,
    LinearCostPolicy,
    LinearPolicy,
    MixPolicy,
    NearestPolicy,
    PerceptronPolicy,
    PricedPolicy,
    StandardizedPolicy,
    TradeoffPolicy,
    score_network,
)
from mild.policies.cascade import AgreementTable
from text_router_cases import folders  # noqa: F401

N_FEATURES, N_EXPERTS = 4, 3
NAMES = ["small", "medium", "large"]


def make_policies(dtype=np.float64):
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.normal(size=shape).astype(dtype)

    def decoder():
        return Decoder(np.array([0.5, 1.0, 2.0]), "stationary", "logistic")

    costs = np.abs(draw(20, N_EXPERTS))
    costs[0, 1] = np.nan
    linear = LinearPolicy(draw(N_EXPERTS, N_FEATURES), draw(N_EXPERTS), decoder())
    regression = LinearCostPolicy(draw(N_EXPERTS, N_FEATURES), draw(N_EXPERTS))
    policies = [
        linear,
        PerceptronPolicy(
            [draw(5, N_FEATURES), draw(6, 5), draw(N_EXPERTS, 6)],
            [draw(5), draw(6), draw(N_EXPERTS)],
            Decoder(np.ones(N_EXPERTS), "argmax", 0.5),
        ),
        regression,
        NearestPolicy(
            draw(20, N_FEATURES), costs, 3, np.ones(20, dtype), np.ones(N_FEATURES, dtype)
        ),
        ConstantPolicy(np.abs(draw(N_EXPERTS)), N_FEATURES, 2),
        PricedPolicy(
            draw(N_EXPERTS, N_FEATURES),
            draw(N_EXPERTS),
            draw(N_EXPERTS, N_FEATURES),
            draw(N_EXPERTS),
            np.abs(draw(N_EXPERTS)),
            0.3,
            "logistic",
            1.5,
        ),
        StandardizedPolicy(draw(N_FEATURES), np.abs(draw(N_FEATURES)) + 1, linear),
        BlendPolicy([linear, regression], np.array([0.5, 2.0], dtype), np.array([0.0, 1.0], dtype)),
    ]
    made = {policy.kind: policy for policy in policies}
    # Policies that decide by ranks are saved with these.
    ranks = np.roll(np.arange(N_EXPERTS), 1)
    for kind in ("linear", "linear_costs", "blend"):
        made[kind] = made[kind].with_ranks(ranks)
    made["cascade"] = CascadePolicy("number", [[0, 1], [2]], 0.8, agreement(dtype), regression)
    made["mix"] = MixPolicy(made["cascade"], made["constant"], 0.3, "salt")
    network = score_network([draw(6, N_FEATURES), draw(4, 6)], [draw(6), draw(4)])
    own_costs = np.array([0.0, 0.1, 0.2], dtype)
    made["deferral"] = DeferralPolicy(
        network, ["no", "yes"], "sigmoid", own_costs, False, np.ones(4, dtype), threshold=-0.1
    )
    return made | {"tradeoff": TradeoffPolicy(linear, made["priced"])}


def agreement(dtype=np.float64):
    """Which of three experts agree on four rows: all, the first two, the last two, one has no answer."""
    codes = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1], [-1, 0, 1]])
    scores = np.array([[1, 1, 1], [0.5, 0.5, 1], [0, 1, 1], [0, 0, 1]], dtype)
    return AgreementTable.of_rows(codes, scores, np.ones(4, dtype))


@pytest.fixture
def policies():
    return make_policies()


@pytest.fixture
def inputs():
    return np.random.default_rng(1).normal(size=(50, N_FEATURES))


@pytest.fixture
def saved(tmp_path, policies):
    """Folder with a linear router."""
    return save(Router(policies["linear"], NAMES), tmp_path / "router")


class Damage:
    """Changes a saved router and seals it again, so that only the named change is wrong."""

    def __init__(self, folder):
        self.folder = folder
        self.manifest = json.loads((folder / "router.json").read_text())
        self.tensors = dict(unpack((folder / "tensors.safetensors").read_bytes()))

    def write(self, relist=True):
        packed = pack(self.tensors)
        (self.folder / "tensors.safetensors").write_bytes(packed)
        if relist:
            self.manifest["tensors"] = {
                name: {"shape": list(array.shape), "dtype": array.dtype.name}
                for name, array in self.tensors.items()
            }
        self.manifest["sha256"] = hashlib.sha256(packed).hexdigest()
        (self.folder / "router.json").write_text(json.dumps(self.manifest))


@pytest.fixture
def damage():
    return Damage
