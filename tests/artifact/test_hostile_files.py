"""Files made to exhaust whoever loads them are refused before they are read."""

import hashlib
import json
import os

import pytest

from gateway.gateway_cases import priced_router
from mild.artifact import content, load, save
from mild.errors import ArtifactError

SPARSE_BYTES = 40 * 1024**3


@pytest.fixture
def folder(tmp_path):
    save(priced_router(), tmp_path / "router")
    return tmp_path / "router"


def with_tensor(folder, shape):
    """The folder with one tensor of a shape and without content; manifest and checksum fit."""
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    content = len(header).to_bytes(8, "little") + header
    (folder / "tensors.safetensors").write_bytes(content)
    manifest = json.loads((folder / "router.json").read_text())
    manifest["sha256"] = hashlib.sha256(content).hexdigest()
    manifest["tensors"] = {"a": {"shape": shape, "dtype": "float32"}}
    (folder / "router.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("shape", [[0, 2**62], [2**62, 0, 4], [0] * 70, [2**63], [0, 2**64]])
def test_a_shape_that_no_array_can_have_is_refused(folder, shape):
    with_tensor(folder, shape)
    with pytest.raises(ArtifactError):
        load(folder)


@pytest.mark.parametrize("name", ["tensors.safetensors", "router.json"])
def test_a_sparse_file_is_refused_unread(folder, name, monkeypatch):
    try:
        os.truncate(folder / name, SPARSE_BYTES)
    except OSError as error:
        pytest.skip(f"no sparse files here: {error.strerror}")
    monkeypatch.setattr(content.Path, "read_bytes", None)
    with pytest.raises(ArtifactError, match=f"{SPARSE_BYTES:,}"):
        load(folder)


def test_a_file_larger_than_the_memory_is_refused():
    size = 2**62
    status = os.stat_result((0o100600, 0, 0, 1, 0, 0, size, 0, 0, 0), {"st_blocks": size // 512})
    with pytest.raises(ArtifactError, match=f"{size:,}"):
        content._check_size("tensors.safetensors", status)


def test_a_manifest_nested_deeply_is_refused(folder):
    (folder / "router.json").write_text("[" * 200_000)
    with pytest.raises(ArtifactError, match="not valid JSON"):
        load(folder)
