"""Routers on the Hugging Face Hub, by ``huggingface_hub`` (extra ``hub``)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE
from mild.errors import MissingExtraError, RouterFileError, install_hint
from mild.features import FEATURES

#: What the name of a repository begins with, where a folder could be meant.
PREFIX = "hf://"
#: The files of a router: nothing else is downloaded, or replaced by an upload.
FILES = [
    MANIFEST_FILE,
    TENSORS_FILE,
    *sorted(set(chain.from_iterable(features.FILES for features in FEATURES.values()))),
]


def download(name: str) -> Path:
    """The local copy of a router in a repository such as ``owner/name``."""
    hub = _import_hub()
    try:
        return Path(hub.snapshot_download(name, allow_patterns=FILES))
    except Exception as error:  # its HTTP client has errors of its own
        raise RouterFileError(f"cannot load a router from {PREFIX}{name}: {error}") from error


def upload(folder: Path, name: str) -> str:
    """Put a router into a repository, in place of the one there; the address of the commit."""
    api = _import_hub().HfApi()
    # The repository's whole name: without an owner it is one of the user's own.
    repository = api.create_repo(name, exist_ok=True)
    commit = api.upload_folder(
        repo_id=repository.repo_id,
        folder_path=folder,
        delete_patterns=FILES,
        commit_message="Upload a router",
    )
    return str(commit.commit_url)


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(
            f"the Hugging Face Hub needs huggingface_hub; run: {install_hint('hub')}."
        ) from error
    return huggingface_hub
