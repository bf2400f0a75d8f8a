"""Every kind of router refuses the settings and tensors from which it could not be built."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mild.artifact import Router, load, save
from mild.artifact.schemas import POLICY_SCHEMAS
from mild.errors import RouterFileError
from mild.policies import POLICIES, NearestPolicy, StandardizedPolicy, TradeoffPolicy

NAMES = ["small", "medium", "large"]


def test_there_is_a_rule_for_every_policy():
    assert set(POLICY_SCHEMAS) == set(POLICIES)


SETTING_CHANGES = [
    ("linear", "decision", "coin", "setting decision must be one of stationary, argmax"),
    ("linear", "surrogate", "logistic", "setting surrogate must be a form and a tau"),
    ("linear", "surrogate", ["logistic", 1.0], "setting surrogate must be one of comp_sum"),
    ("linear", "surrogate", ["comp_sum", -1], "setting surrogate must have a finite tau >= 0"),
    ("linear", "surrogate", ["comp_sum", "1"], "setting surrogate must have a finite tau >= 0"),
    ("linear", "more", 1, "setting more is not known"),
    ("perceptron", "layers", 0, "setting layers must be an integer in [1, 1000]; got 0"),
    ("perceptron", "layers", 2, "tensor 'bias_2' does not belong"),
    ("perceptron", "layers", 4, "tensor 'bias_3' is missing"),
    ("perceptron", "layers", 10**9, "setting layers must be an integer in [1, 1000]"),
    ("nearest", "n_neighbors", 0, "setting n_neighbors must be an integer in [1, 2**53); got 0"),
    ("nearest", "n_neighbors", 2**53, "n_neighbors must be an integer in [1, 2**53); got 9007"),
    ("nearest", "n_neighbors", 2.5, "n_neighbors must be an integer in [1, 2**53); got 2.5"),
    ("constant", "named", 3, "setting named must be an integer in [0, 2]; got 3"),
    ("constant", "named", "small", "setting named must be an integer"),
    ("constant", "n_features", 7, "setting n_features must be 4; got 7"),
    ("priced", "price_weight", -1, "setting price_weight must be finite and non-negative; got -1"),
    ("priced", "price_weight", None, "setting price_weight must be finite and non-negative"),
    ("priced", "error_scale", "1", "setting error_scale must be finite and non-negative; got '1'"),
    ("priced", "kind_of_error", "tree", "setting kind_of_error must be one of ridge, logistic"),
    ("standardized", "parts", [], "setting parts must list 1 router"),
    ("standardized", "parts", [{"kind": "linear"}], "setting parts must list routers, each with"),
    (
        "standardized",
        "parts",
        [{"kind": "magic", "settings": {}}],
        "kind must be one of blend, cascade",
    ),
    (
        "standardized",
        "parts",
        [{"kind": "linear", "settings": {}}],
        "setting 0.decision is missing",
    ),
    (
        "standardized",
        "parts",
        [{"kind": "linear", "settings": []}],
        "settings of a linear router must be an object",
    ),
    ("blend", "parts", [], "setting parts must list at least 1 router"),
    ("cascade", "parts", [], "setting parts must list 1 router"),
    ("cascade", "answer_kind", "poem", "setting answer_kind must be one of number, choice"),
    ("cascade", "answer_kind", ["number"], "setting answer_kind must be one of number"),
    ("cascade", "threshold", 1.5, "setting threshold must be a number in [0, 1]; got 1.5"),
    ("cascade", "threshold", True, "setting threshold must be a number in [0, 1]"),
    ("cascade", "threshold", None, "setting threshold must be a number in [0, 1]"),
    ("cascade", "more", 1, "setting more is not known"),
    *(
        ("cascade", "steps", value, "setting steps must list steps of different experts")
        for value in (
            [],
            [[]],
            [[0, 1], []],
            [[0, 1], [1]],
            [[0], [3]],
            [[-1], [2]],
            [[0, 1.0], [2]],
            [["0"]],
            [0, 1],
            {"0": [1]},
            [[True, 2]],
            None,
            [list(range(10**5))],
        )
    ),
]


@pytest.mark.parametrize(("kind", "key", "value", "sentence"), SETTING_CHANGES)
def test_a_setting_that_breaks_its_rule_is_named(
    kind, key, value, sentence, policies, damage, tmp_path
):
    folder = save(Router(policies[kind], NAMES), tmp_path / "router")
    change = damage(folder)
    change.manifest["settings"][key] = value
    change.write()
    with pytest.raises(RouterFileError) as caught:
        load(folder)
    assert sentence in str(caught.value)


TENSOR_CHANGES = [
    (
        "linear",
        "coef",
        np.zeros((4, 3)),
        "must have shape (n_experts = 3, n_features = 4); got (4, 3)",
    ),
    ("linear", "coef", np.full((3, 4), np.inf), "tensor 'coef' must be finite; got inf at (0, 0)"),
    ("linear", "intercept", np.zeros(3, np.int64), "must be float32 or float64; got I64"),
    ("linear", "intercept", np.zeros(3, np.float16), "must be float32 or float64; got F16"),
    ("perceptron", "weight_1", np.zeros((6, 4)), "must have shape (width_1 = 6, width_0 = 5)"),
    ("perceptron", "margins", np.zeros(3), "tensor 'margins' must be positive; got 0"),
    ("linear_costs", "intercept", np.zeros(4), "tensor 'intercept' must have shape"),
    ("nearest", "centre", np.zeros(3), "tensor 'centre' must have shape (n_features = 4)"),
    ("nearest", "weights", np.zeros(19), "tensor 'weights' must have shape (n_stored = 20)"),
    ("nearest", "weights", -np.ones(20), "tensor 'weights' must be non-negative; got -1"),
    ("nearest", "costs", np.full((20, 3), np.inf), "tensor 'costs' must be finite; got inf"),
    ("nearest", "inputs", np.full((20, 4), np.nan), "tensor 'inputs' must be finite; got nan"),
    ("constant", "mean_costs", np.zeros((1, 3)), "tensor 'mean_costs' must have shape"),
    ("priced", "betas", -np.ones(3), "tensor 'betas' must be non-negative"),
    ("standardized", "scale", np.zeros(4), "tensor 'scale' must be positive; got 0"),
    ("standardized", "0.coef", np.zeros((3, 5)), "tensor '0.coef' must have shape"),
    ("standardized", "1.coef", np.zeros((3, 5)), "tensor '1.coef' does not belong"),
    ("blend", "1.coef", np.zeros((3, 5)), "n_features = 4); got (3, 5)"),
    ("blend", "3.coef", np.zeros((3, 5)), "tensor '3.coef' does not belong"),
    ("cascade", "groups", np.ones((4, 2)), "tensor 'groups' must have shape"),
    ("cascade", "groups", np.full((4, 3), 0.5), "tensor 'groups' must number the answers"),
    ("cascade", "groups", np.full((4, 3), 1e300), "tensor 'groups' must number the answers"),
    ("cascade", "groups", np.full((4, 3), -2.0), "tensor 'groups' must number the answers"),
    (
        "cascade",
        "groups",
        np.array([[2, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 0]], float),
        "tensor 'groups' must number the answers",
    ),
    ("cascade", "groups", np.ones((4, 3)), "tensor 'groups' must have different rows"),
    ("cascade", "counts", -np.ones(4), "tensor 'counts' must be non-negative; got -1"),
    ("cascade", "counts", np.ones(5), "tensor 'counts' must have shape (n_patterns = 4)"),
    ("cascade", "counts", np.full(4, np.nan), "tensor 'counts' must be finite"),
    ("cascade", "sums", np.full((4, 3), 2.0), "tensor 'sums' must be at most the counts"),
    ("cascade", "sums", -np.ones((4, 3)), "tensor 'sums' must be non-negative"),
    ("cascade", "accuracy", np.full(3, 1.5), "tensor 'accuracy' must be at most 1; got 1.5"),
    ("cascade", "accuracy", np.full(3, np.nan), "tensor 'accuracy' must be finite"),
    ("cascade", "0.coef", np.zeros((4, 4)), "tensor '0.coef' must have shape"),
]


@pytest.mark.parametrize(("kind", "name", "array", "sentence"), TENSOR_CHANGES)
def test_a_tensor_that_breaks_its_rule_is_named(
    kind, name, array, sentence, policies, damage, tmp_path
):
    folder = save(Router(policies[kind], NAMES), tmp_path / "router")
    change = damage(folder)
    change.tensors[name] = array
    change.write()
    with pytest.raises(RouterFileError) as caught:
        load(folder)
    assert sentence in str(caught.value)


def test_an_empty_memory_of_neighbours_is_refused(policies, damage, tmp_path):
    folder = save(Router(policies["nearest"], NAMES), tmp_path / "router")
    change = damage(folder)
    change.tensors |= {
        "inputs": np.zeros((0, 4)),
        "costs": np.zeros((0, 3)),
        "weights": np.zeros(0),
    }
    change.write()
    with pytest.raises(RouterFileError, match="tensor 'inputs' must have at least one row"):
        load(folder)


def damaged(policy, damage, folder, tensors=None, **settings):
    """Folder of a saved router with other settings and tensors."""
    change = damage(save(Router(policy, NAMES), folder))
    change.manifest["settings"] |= settings
    change.tensors |= tensors or {}
    change.write()
    return folder


def test_an_empty_or_huge_table_of_agreement_is_refused(policies, damage, tmp_path):
    for rows, sentence in ((0, "at least one row"), (2**20 + 1, "at most 1,048,576 rows")):
        shapes = {"groups": (rows, 3), "counts": (rows,), "sums": (rows, 3)}
        tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        folder = damaged(policies["cascade"], damage, tmp_path / str(rows), tensors)
        with pytest.raises(RouterFileError, match=f"tensor 'groups' must have {sentence}"):
            load(folder)


def test_a_cascade_inside_a_router_is_refused(policies, damage, tmp_path):
    cascade = policies["cascade"]
    for policy in (
        StandardizedPolicy(np.zeros(4), np.ones(4), cascade),
        replace(cascade, direct=cascade),
    ):
        with pytest.raises(RouterFileError, match="must not be inside a router"):
            save(Router(policy, NAMES), tmp_path / "router")


def test_a_mix_has_two_settings_of_one_kind(policies, damage, tmp_path):
    mix = policies["mix"]
    for policy in (
        StandardizedPolicy(np.zeros(4), np.ones(4), mix),
        TradeoffPolicy(policies["linear"], mix),
    ):
        with pytest.raises(RouterFileError, match="a mix must not be inside a router"):
            save(Router(policy, NAMES), tmp_path / "router")
    folder = save(Router(mix, NAMES), tmp_path / "router")
    change = damage(folder)
    change.manifest["settings"]["parts"][1]["settings"]["answer_kind"] = "json"
    change.write()
    with pytest.raises(RouterFileError, match="two cascades that compare answers alike"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("share", 0, "must be a number between 0 and 1"),
        ("share", 1.0, "must be a number between 0 and 1"),
        ("share", "0.5", "must be a number between 0 and 1"),
        ("salt", 5, "must be a string of at most 16 bytes"),
        ("salt", "x" * 17, "must be a string of at most 16 bytes"),
    ],
)
def test_share_and_salt_of_a_mix_obey_their_rules(key, value, sentence, policies, damage, tmp_path):
    folder = save(Router(policies["mix"], NAMES), tmp_path / "router")
    change = damage(folder)
    change.manifest["settings"][key] = value
    change.write()
    with pytest.raises(RouterFileError, match=f"setting {key} {sentence}"):
        load(folder)


def test_nesting_that_is_too_deep_is_refused(policies, tmp_path):
    policy = policies["linear"]
    for _ in range(9):
        policy = StandardizedPolicy(np.zeros(4), np.ones(4), policy)
    with pytest.raises(RouterFileError, match="may be nested 7 deep"):
        save(Router(policy, NAMES), tmp_path / "router")


def test_neighbours_without_a_centre_come_back(policies, inputs, tmp_path):
    nearest = policies["nearest"]
    policy = NearestPolicy(nearest.inputs, nearest.costs, 3, nearest.weights)
    router = load(save(Router(policy, NAMES), tmp_path / "router"))
    np.testing.assert_array_equal(router.expected_costs(inputs), policy.expected_costs(inputs))


@pytest.mark.parametrize("ranks", [[0, 1, 1], [1, 2, 3], [0, 1], [0, 1, 0.5]])
@pytest.mark.parametrize("kind", ["linear", "blend"])
def test_ranks_are_every_number_once(kind, ranks, policies, damage, tmp_path):
    folder = save(Router(policies[kind], NAMES), tmp_path / "router")
    change = damage(folder)
    change.tensors["ranks"] = np.array(ranks, float)
    change.write()
    with pytest.raises(RouterFileError, match="tensor 'ranks' must have"):
        load(folder)


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_every_tensor_of_every_kind_is_needed(kind, policies, damage, tmp_path):
    folder = save(Router(policies[kind], NAMES), tmp_path / "router")
    for name in list(damage(folder).tensors):
        if name.rpartition(".")[2] in ("centre", "ranks"):
            continue
        change = damage(folder)
        kept = change.tensors.pop(name)
        change.write()
        with pytest.raises(RouterFileError, match=f"tensor '{name}' is missing"):
            load(folder)
        change.tensors[name] = kept
        change.write()
    load(folder)
