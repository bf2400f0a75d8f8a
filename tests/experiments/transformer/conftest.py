"""Models on disk, built once."""

from __future__ import annotations

import pytest

from transformer_cases import build_model

KINDS = ("deberta", "bert")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Kind of model -> its folder."""
    for package in ("torch", "transformers", "tokenizers"):
        pytest.importorskip(package, reason="a transformer router is fitted with it")
    root = tmp_path_factory.mktemp("models")
    folders = {}
    for kind in KINDS:
        (root / kind).mkdir()
        folders[kind] = build_model(root / kind, kind)
    return folders


@pytest.fixture(scope="session", params=KINDS)
def folder(request, models):
    """Folder of a tiny model, DeBERTa's and BERT's in turn."""
    return models[request.param]
