"""Names and settings that later versions of mild change.

They change here, and the journeys do not.
"""

from __future__ import annotations

import hashlib
import json

import mild
import mild.batch
from mild.deferral import DeferralClassifier
from mild.features import EncoderFeatures

# Tables of outcomes.

QUERY = "query"


def outcome_columns(name, scores, dollars, answers):
    """Columns of an expert: the score, the price and the text of each of its answers."""
    return {f"score__{name}": scores, f"cost__{name}": dollars, f"answer__{name}": answers}


# Estimators.

#: Checks of scikit-learn that a router fails: it predicts an expert for each row, and not one column.
FAILED_CHECKS = {
    "check_estimator_sparse_array": "one expert for each row",
    "check_estimator_sparse_matrix": "one expert for each row",
}


def neural_router(body, **settings):
    """A neural router with hidden layers of these widths, or with a network of one's own."""
    if callable(body):
        return mild.NeuralRouter(body, **settings)
    return mild.NeuralRouter(hidden=body, **settings)


def gain(verdict):
    """By how much a router costs less than the best expert alone."""
    return -verdict.estimate


def encoder(folder):
    """Features of the sentence encoder in a folder, which keep no vectors on disk."""
    return EncoderFeatures(folder, cache=False)


# A classifier and its experts.

#: Methods that train a router between a finished classifier and the experts.
TWO_STAGES = ["two_stage_tdef", "two_stage_mild"]


def deferral_classifier(loss, **settings):
    """A classifier of a method, which may be one of ``TWO_STAGES``."""
    return DeferralClassifier(loss, **settings)


# Saved routers and classifiers.

#: The numbers of a folder, and what describes them.
TENSORS = "tensors.safetensors"
MANIFEST = "router.json"
#: What a folder cannot be read with: entries of the description.
UNREADABLE = {
    "schema_version": 99,
    "format": "another",
    "kind": "unknown",
    "n_features": 1,
    "sha256": 64 * "0",
}


def without_moment(files):
    """The files of a folder, by name, without the moment at which they were written."""
    description = json.loads(files[MANIFEST])
    del description["created"]
    return {**files, MANIFEST: description}


def forge_checksum(folder):
    """Make the description of a folder fit its numbers."""
    description = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    description["sha256"] = hashlib.sha256((folder / TENSORS).read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(description), encoding="utf-8")


def save(estimator, experts, folder):
    """Write a fitted estimator, or a Pipeline that ends in one."""
    return mild.save(estimator, folder, experts=experts)


# Routing of many queries.


def route_dataset(router, source, out, columns, **settings):
    """Route the rows of Parquet files to a folder of them, with these columns and ``expert``."""
    return mild.batch.route_dataset(router, str(source), str(out), keep=columns, **settings)


def route_lines(router, source="-", query=None):
    """The words of a command that prints an answer for each line; ``query`` is a field of them."""
    words = ["route", router, source]
    return words if query is None else [*words, "--query", query]


def route_files(router, source, out, columns):
    """The words of a command that does what ``route_dataset`` does."""
    words = ["route", router, source, "--out", out]
    for column in columns:
        words += ["--keep", column]
    return words


def routed_experts(output):
    """The expert of each line of the answers."""
    return [json.loads(line)["expert"] for line in output.splitlines()]


# The Hub.


def load_from_hub(name):
    """The router of a repository such as ``owner/name``."""
    return mild.Router.from_pretrained(name)
