"""``save_pretrained``, ``from_pretrained`` and ``push_to_hub``, with a folder and a Hub on loopback."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import mild
from cascade_cases import EASY, HARD, cascade_router
from fake_hub import TOKEN, running_hub
from mild.errors import MildError
from mild.features import EncoderFeatures, OnnxFeatures
from mild.policies import ConstantPolicy
from onnx_cases import build_features
from text_router_cases import text_router

huggingface_hub = pytest.importorskip("huggingface_hub")
# huggingface_hub gives its HTTP client a file in a way that is out of date there.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TEXTS = [EASY, HARD, "Who wrote Faust?"]


@pytest.fixture(scope="module")
def router():
    return text_router()


@pytest.fixture
def hub(monkeypatch):
    """A Hub, to which huggingface_hub is pointed as by HF_ENDPOINT and HF_HUB_DISABLE_XET."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with running_hub() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        # It waits for seconds before it tries again.
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        yield running


def code_of(call, *arguments, **options):
    with pytest.raises(MildError) as caught:
        call(*arguments, **options)
    assert len(str(caught.value).splitlines()) == 1
    assert TOKEN not in str(caught.value)
    return caught.value.code


def same(one, other, texts=TEXTS):
    return one.route_table(texts) == other.route_table(texts)


def constant_router(features):
    policy = ConstantPolicy(np.array([0.5, 0.2]), features.n_features_)
    return mild.Router(policy, ["small", "large"], text=features)


def test_a_folder_holds_the_router_and_its_card_and_needs_no_hub(router, tmp_path):
    folder = router.save_pretrained(tmp_path / "router", license="mit")
    names = {file.name for file in folder.iterdir()}
    assert names == {"README.md", "router.json", "tensors.safetensors"}
    assert "license: mit" in (folder / "README.md").read_text()
    code = (
        "import sys; sys.modules['huggingface_hub'] = None; import mild\n"
        f"router = mild.Router.from_pretrained({str(folder)!r})\n"
        f"print(router.route({TEXTS!r})); mild.Router.from_pretrained('anna/router')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == str(router.route(TEXTS))
    assert "MissingExtraError: 'anna/router' is not a folder here" in done.stderr
    assert "[hub]" in done.stderr


def test_a_card_is_replaced_with_the_router_and_a_readme_of_others_is_kept(router, tmp_path):
    folder = router.save_pretrained(tmp_path / "router")
    router.save_pretrained(folder, overwrite=True, license="mit")
    assert "license: mit" in (folder / "README.md").read_text()
    router.save(folder, overwrite=True)
    assert not (folder / "README.md").exists()
    (folder / "README.md").write_text("# Mine\n")
    assert code_of(router.save_pretrained, folder, overwrite=True) == "output_exists"
    assert (folder / "README.md").read_text() == "# Mine\n"


def test_a_pushed_router_is_the_one_that_is_downloaded(router, hub, tmp_path):
    url = router.push_to_hub("anna/router", private=True, token=TOKEN, commit_message="A router")
    commit = url.rpartition("/")[2]
    assert hub.repositories["anna/router"]["main"] == commit
    assert (hub.messages, hub.private) == (["A router"], {"anna/router"})
    assert hub.objects  # the tensors went as a large file
    files = hub.files("anna/router")
    assert b'from_pretrained("anna/router")' in files["README.md"]
    hub.commit("anna/router", "main", {**files, "model.pkl": b"\x80\x04.", "big.bin": b"x"})
    found = mild.Router.from_pretrained("anna/router", cache_dir=tmp_path)
    assert same(found, router)
    assert same(mild.Router.from_pretrained("anna/router", commit, cache_dir=tmp_path), router)
    fetched = {path.rpartition("/")[2] for _, path in hub.requests if "/resolve/" in path}
    assert fetched == {"router.json", "tensors.safetensors"}
    cached = {"cache_dir": tmp_path, "local_files_only": True}
    assert same(mild.Router.from_pretrained("anna/router", **cached), router)
    assert code_of(mild.Router.from_pretrained, "anna/other", **cached) == "hub_unreachable"


def test_a_push_leaves_nothing_of_the_router_before(router, hub, tmp_path):
    old = {"versions.json": b"{}", "versions/0002/router.json": b"{}", "tokenizer.json": b"{}"}
    hub.commit("anna/router", "main", {**old, "notes.txt": b"mine"})
    router.push_to_hub("anna/router", token=TOKEN)
    left = {"README.md", "router.json", "tensors.safetensors", "notes.txt"}
    assert set(hub.files("anna/router")) == left
    other = router.without(router.experts[0])
    other.push_to_hub("router", token=TOKEN, revision="smaller")
    read = mild.Router.from_pretrained
    assert same(read("anna/router", "smaller", cache_dir=tmp_path), other)
    assert same(read("anna/router", cache_dir=tmp_path), router)


@pytest.mark.parametrize("step", ["/preupload/", "/lfs/", "/commit/"])
def test_a_push_that_fails_leaves_the_router_that_was_there(router, hub, tmp_path, step):
    router.push_to_hub("anna/router", token=TOKEN)
    hub.fail_on = step
    other = router.without(router.experts[0])
    assert code_of(other.push_to_hub, "anna/router", token=TOKEN) == "hub_unreachable"
    hub.fail_on = None
    assert same(mild.Router.from_pretrained("anna/router", cache_dir=tmp_path), router)


def test_a_download_that_breaks_off_is_refused_and_can_be_repeated(router, hub, tmp_path):
    router.push_to_hub("anna/router", token=TOKEN)
    hub.fail_on = "tensors.safetensors"
    read = mild.Router.from_pretrained
    assert code_of(read, "anna/router", cache_dir=tmp_path) == "hub_unreachable"
    hub.fail_on = None
    assert same(read("anna/router", cache_dir=tmp_path), router)


def test_a_push_beside_another_one_is_refused(router, hub, monkeypatch):
    hub.commit("anna/router", "main", {"notes.txt": b""})
    send = huggingface_hub.HfApi.create_commit

    def send_late(*words, **options):
        hub.commit("anna/router", "main", {"router.json": b"{}"})
        return send(*words, **options)

    monkeypatch.setattr(huggingface_hub.HfApi, "create_commit", send_late)
    with pytest.raises(MildError, match=r"status 412 \(A commit has happened since\)") as caught:
        router.push_to_hub("anna/router", token=TOKEN)
    assert caught.value.code == "hub_failed"
    assert hub.files("anna/router") == {"router.json": b"{}"}


def test_errors_have_codes(router, hub, tmp_path):
    read, push = mild.Router.from_pretrained, router.push_to_hub
    assert code_of(read, "anna/none", cache_dir=tmp_path) == "repository_not_found"
    hub.commit("anna/other", "main", {"config.json": b"{}"})
    assert code_of(read, "anna/other", cache_dir=tmp_path) == "not_a_router"
    assert code_of(read, "anna/other", "v9", cache_dir=tmp_path) == "revision_not_found"
    assert code_of(read, "anna/x..y", cache_dir=tmp_path) == "invalid_repo_id"
    hub.commit("anna/bad", "main", {"router.json": b"{", "tensors.safetensors": b""})
    assert code_of(read, "anna/bad", cache_dir=tmp_path) == "invalid_router_file"
    assert code_of(push, "anna/router", token="hf_wrong") == "hub_refused"
    assert code_of(push, "anna/other", token=TOKEN, private=True) == "invalid_private"
    assert set(hub.files("anna/other")) == {"config.json"}
    hub.fail_on = "/"
    assert code_of(read, "anna/later", cache_dir=tmp_path) == "hub_unreachable"
    assert code_of(push, "anna/router", token=TOKEN) == "hub_unreachable"


@pytest.mark.parametrize(
    "name",
    ["", "a b/c", "../router", "anna/router/x", "anna/", "né/x", "a/b\n", "anna/-r", None, 3],
)
def test_invalid_names_of_repositories_are_refused_before_anything_is_sent(router, name, tmp_path):
    assert code_of(router.push_to_hub, name, token=TOKEN) == "invalid_repo_id"
    wanted = "invalid_router_file" if isinstance(name, str) else "invalid_path_or_repo"
    assert code_of(mild.Router.from_pretrained, name) == wanted


def test_wrong_arguments(router, tmp_path):
    folder = router.save_pretrained(tmp_path / "router")
    read = mild.Router.from_pretrained
    assert code_of(read, folder, revision="main") == "invalid_revision"
    assert code_of(read, folder, revison="main") == "invalid_revison"
    assert code_of(router.push_to_hub, "a/b", commit_message="") == "invalid_commit_message"
    assert code_of(router.card, license="MIT\ntags: x") == "invalid_license"


def test_cascades_and_routers_with_onnx_travel_whole(hub, tmp_path):
    cascade = cascade_router()
    cascade.push_to_hub("anna/cascade", token=TOKEN)
    found = mild.Router.from_pretrained("anna/cascade", cache_dir=tmp_path)
    assert found.next(HARD, {}) == cascade.next(HARD, {})
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    onnx = constant_router(build_features().fit(TEXTS))
    onnx.push_to_hub("anna/cascade", token=TOKEN)
    assert set(OnnxFeatures.FILES) <= set(hub.files("anna/cascade"))
    found = mild.Router.from_pretrained("anna/cascade", cache_dir=tmp_path)
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
    saved = router.save_pretrained(tmp_path / "router")
    router.push_to_hub("anna/encoder", token=TOKEN)
    kept = json.loads((saved / "router.json").read_text())["text"]["settings"]
    pushed = json.loads(hub.files("anna/encoder")["router.json"])["text"]["settings"]
    assert kept == {**pushed, "path": str(tmp_path / "tiny")}
    assert pushed["path"] is None
    assert "needs the model tiny, which it does not contain" in (saved / "README.md").read_text()
