"""``push_to_hub``, and ``load`` from a Hub on loopback."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import mild
from cascade_cases import EASY, HARD, cascade_router
from fake_hub import TOKEN, running_hub
from mild.errors import RouterFileError
from mild.features import EncoderFeatures, OnnxFeatures
from mild.policies import ConstantPolicy
from onnx_cases import build_features
from text_router_cases import text_router

pytest.importorskip("huggingface_hub")
# huggingface_hub gives its HTTP client a file in a way that is out of date there.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TEXTS = [EASY, HARD, "Who wrote Faust?"]


@pytest.fixture(scope="module")
def router():
    return text_router()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub, to which huggingface_hub is pointed as by HF_ENDPOINT, HF_HUB_CACHE and HF_TOKEN."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with running_hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        # It waits for seconds before it tries again.
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        yield running


def same(one, other, texts=TEXTS):
    return one.route_table(texts) == other.route_table(texts)


def constant_router(features):
    policy = ConstantPolicy(np.array([0.5, 0.2]), features.n_features_)
    return mild.Router(policy, ["small", "large"], text=features)


def test_without_huggingface_hub_the_extra_is_named():
    code = "import sys; sys.modules['huggingface_hub'] = None; import mild; mild.load('hf://a/b')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtraError: the Hugging Face Hub needs huggingface_hub; run: pip" in done.stderr
    assert "[hub]" in done.stderr


def test_a_pushed_router_is_the_one_that_is_loaded(router, hub):
    url = router.push_to_hub("anna/router")
    assert url.rpartition("/")[2] == hub.repositories["anna/router"]["main"]
    assert hub.objects  # the tensors went as a large file
    files = hub.files("anna/router")
    hub.commit("anna/router", "main", {**files, "model.pkl": b"\x80\x04.", "big.bin": b"x"})
    assert same(mild.load("hf://anna/router"), router)
    fetched = {path.rpartition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert fetched == {"router.json", "tensors.safetensors"}


def test_a_push_leaves_nothing_of_the_router_before_and_all_other_files(router, hub):
    hub.commit("anna/router", "main", {"tokenizer.json": b"{}", "README.md": b"mine"})
    router.push_to_hub("anna/router")
    assert set(hub.files("anna/router")) == {"README.md", "router.json", "tensors.safetensors"}


@pytest.mark.parametrize("step", ["/preupload/", "/lfs/", "/commit/"])
def test_a_push_that_fails_leaves_the_router_that_was_there(router, hub, step):
    router.push_to_hub("anna/router")
    hub.fail_on = step
    with pytest.raises(Exception, match=r".") as caught:
        router.without(router.experts[0]).push_to_hub("anna/router")
    assert TOKEN not in str(caught.value)
    hub.fail_on = None
    assert same(mild.load("hf://anna/router"), router)


def test_what_cannot_be_loaded_is_an_error_of_mild(router, hub):
    hub.commit("anna/other", "main", {"config.json": b"{}"})
    hub.commit("anna/bad", "main", {"router.json": b"{", "tensors.safetensors": b""})
    for name in ("anna/none", "anna/other", "anna/bad", "anna/x..y", ""):
        with pytest.raises(RouterFileError) as caught:
            mild.load(f"hf://{name}")
        assert caught.value.code == "invalid_router_file"
        assert TOKEN not in str(caught.value)
    router.push_to_hub("anna/router")
    hub.fail_on = "tensors.safetensors"
    with pytest.raises(RouterFileError):
        mild.load("hf://anna/router")
    hub.fail_on = None
    assert same(mild.load("hf://anna/router"), router)


def test_cascades_and_routers_with_onnx_travel_whole(hub):
    cascade = cascade_router()
    cascade.push_to_hub("anna/cascade")
    found = mild.load("hf://anna/cascade")
    assert found.next(HARD, {}) == cascade.next(HARD, {})
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    onnx = constant_router(build_features().fit(TEXTS))
    onnx.push_to_hub("anna/cascade")
    assert set(OnnxFeatures.FILES) <= set(hub.files("anna/cascade"))
    found = mild.load("hf://anna/cascade")
    assert (found.features(TEXTS) == onnx.features(TEXTS)).all()


def test_the_path_of_a_model_outside_the_router_is_not_pushed(hub, tmp_path):
    """Only its name is pushed; a saved folder keeps both."""
    settings = {
        "name": "tiny",
        "path": str(tmp_path / "tiny"),
        "sha256": "0" * 64,
        "pooling": "mean",
        "normalize": True,
        "max_length": 256,
    }
    scale = {"centre": np.zeros(5, np.float32), "scale": np.ones(1, np.float32)}
    router = constant_router(EncoderFeatures.from_state(settings, scale))
    saved = router.save(tmp_path / "router")
    router.push_to_hub("anna/encoder")
    kept = json.loads((saved / "router.json").read_text())["text"]["settings"]
    pushed = json.loads(hub.files("anna/encoder")["router.json"])["text"]["settings"]
    assert kept == {**pushed, "path": str(tmp_path / "tiny")}
    assert pushed["path"] is None
