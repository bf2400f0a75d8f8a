"""Routers on the Hugging Face Hub. ``huggingface_hub`` is imported only when a repository is used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Any

from mild._version import __version__
from mild.artifact.manifest import MANIFEST_FILE, TENSORS_FILE
from mild.artifact.served import VERSIONS_FILE, VERSIONS_FOLDER
from mild.core.arrays import invalid
from mild.errors import MildError, MissingExtraError, RouterFileError, install_hint
from mild.features import FEATURES

# ``owner/name``; a name without an owner is a folder when it is loaded.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"{_NAME}/{_NAME}")
_FILES = (
    MANIFEST_FILE,
    TENSORS_FILE,
    *sorted(set(chain.from_iterable(features.FILES for features in FEATURES.values()))),
)
#: The files of a router, and of the versions in a folder that was uploaded by other means.
PATTERNS = [*_FILES, VERSIONS_FILE, *(f"{VERSIONS_FOLDER}/*/{name}" for name in _FILES)]
# Packages in which versions of huggingface_hub raise errors of the connection.
_CLIENTS = ("httpx", "httpx2", "requests")


def find_folder(
    source: str | os.PathLike[str],
    revision: str | None,
    token: str | bool | None,
    cache_dir: str | os.PathLike[str] | None,
    local_files_only: bool,
) -> Path:
    """Return the folder of a router.

    This is ``source`` itself if it is a folder, otherwise the local copy of that repository of the Hub,
    which is downloaded if needed.
    """
    if not isinstance(source, (str, os.PathLike)):
        rule = f"must be a folder, or a repository such as owner/name; got {source!r}."
        raise invalid("path_or_repo", rule)
    # A path object is always a folder; only a string can name a repository.
    if isinstance(source, os.PathLike) or os.path.isdir(source):
        if revision is not None:
            rule = f"is for repositories such as owner/name; {os.fspath(source)!r} is a folder."
            raise invalid("revision", rule)
        return Path(source)
    if _REPOSITORY.fullmatch(source) is None:
        problem = (
            f"{source!r} is neither a folder here nor the name of a repository, such as owner/name."
        )
        raise RouterFileError(problem)
    hub = _import_hub(f"{source!r} is not a folder here, and a repository")
    with _translating_errors(hub, f"cannot load a router from the repository {source!r}", revision):
        folder = hub.snapshot_download(
            source,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=PATTERNS,
            library_name="mild",
            library_version=__version__,
        )
    download = Path(folder)
    if not (download / MANIFEST_FILE).is_file():
        problem = f"the repository {source!r} must hold a router; it has no {MANIFEST_FILE}."
        raise RouterFileError(problem, code="not_a_router")
    return download


def push_folder(
    folder: Path,
    repo_id: str,
    private: bool | None,
    token: str | bool | None,
    revision: str | None,
    commit_message: str,
) -> str:
    """Put the files of a folder into a repository, in one commit; the address of the commit.

    Files of another router that was there before are deleted in the same commit.
    """
    hub = _import_hub("push_to_hub")
    api = hub.HfApi(token=token, library_name="mild", library_version=__version__)
    with _translating_errors(hub, f"cannot push to the repository {repo_id!r}", revision):
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        info = api.repo_info(repo_id)
        if private and info.private is False:
            problem = f"but the repository {repo_id!r} exists and is public; nothing was pushed."
            raise invalid("private", f"is True, {problem}")
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
            info = api.repo_info(repo_id, revision=revision)
        names_there = [entry.rfilename for entry in info.siblings or ()]
        # One commit: a push that is killed leaves the router that was there. Its parent is the commit that
        # was looked at, so that two pushes at the same time do not mix.
        commit = api.create_commit(
            repo_id,
            _operations(hub, folder, names_there),
            commit_message=commit_message,
            revision=revision,
            parent_commit=info.sha,
        )
    return str(commit.commit_url)


def _operations(hub: Any, folder: Path, names_there: Sequence[str]) -> list[Any]:
    """What a commit does: it adds the files of a folder, and deletes those of another router."""
    operations = []
    new_names = set()
    for file in sorted(folder.iterdir()):
        if file.is_file():
            operations.append(hub.CommitOperationAdd(file.name, str(file)))
            new_names.add(file.name)
    for name in names_there:
        if name not in new_names and _is_of_router(name):
            operations.append(hub.CommitOperationDelete(name))
    return operations


def _is_of_router(name: str) -> bool:
    """Whether a file in a repository belongs to a router."""
    return any(fnmatch(name, pattern) for pattern in PATTERNS)


def check_repository(repo_id: object) -> str:
    """Refuse, before anything is written, what cannot be the name of a repository."""
    if isinstance(repo_id, str) and re.fullmatch(rf"({_NAME}/)?{_NAME}", repo_id):
        return repo_id
    rule = "must be a name or owner/name, of letters, digits, '-', '_' and '.'"
    raise invalid("repo_id", f"{rule}; got {repo_id!r}.")


def _import_hub(user: str) -> Any:
    """The package huggingface_hub; ``user`` says what needs it."""
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise MissingExtraError(f"{user} needs huggingface_hub: {install_hint('hub')}.") from error
    return huggingface_hub


@contextmanager
def _translating_errors(hub: Any, failure: str, revision: str | None) -> Iterator[None]:
    """Turn errors of huggingface_hub into those of mild; ``failure`` says what could not be done."""
    try:
        yield
    except MildError:
        raise
    except Exception as error:  # its uploader raises RuntimeError, its checks ValueError
        raise _translated(hub.errors, failure, revision, error) from error


def _translated(
    hub_errors: Any, failure: str, revision: str | None, error: BaseException
) -> MildError:
    """One sentence and a code for an error of huggingface_hub."""
    causes = _chain_of(error)
    status, message = _answer_of(causes)
    reason = " ".join(message.split()).rstrip(".") or type(causes[-1]).__name__
    log_in = "Log in with `hf auth login`, or give a token."
    if isinstance(error, hub_errors.HFValidationError):
        return invalid("repo_id", f"must be the name of a repository; {reason}.")
    if isinstance(error, hub_errors.GatedRepoError):
        problem = f"access to it must be asked for. {log_in}"
        return RouterFileError(f"{failure}: {problem}", code="hub_refused")
    if isinstance(error, hub_errors.RepositoryNotFoundError):
        problem = f"there is none, or it is private. {log_in}"
        return RouterFileError(f"{failure}: {problem}", code="repository_not_found")
    if isinstance(error, hub_errors.RevisionNotFoundError):
        problem = f"it has no revision {revision or 'main'!r}."
        return RouterFileError(f"{failure}: {problem}", code="revision_not_found")
    if status in (401, 403) or isinstance(error, hub_errors.LocalTokenNotFoundError):
        problem = f"the Hub refused it ({reason}). {log_in}"
        return RouterFileError(f"{failure}: {problem}", code="hub_refused")
    if status is not None:
        problem = f"the Hub answered with status {status} ({reason})."
        return RouterFileError(f"{failure}: {problem}", code="hub_failed")
    if any(_is_of_connection(cause, hub_errors) for cause in causes):
        problem = f"the Hub cannot be reached ({reason})."
        return RouterFileError(f"{failure}: {problem}", code="hub_unreachable")
    return RouterFileError(f"{failure}: {reason}.", code="hub_failed")


def _chain_of(error: BaseException) -> list[BaseException]:
    """An error, what caused it, and so on."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    return causes


def _answer_of(causes: Sequence[BaseException]) -> tuple[int | None, str]:
    """Status and message of the answer of the Hub; without an answer, the message of the last cause.

    The first error says less than what caused it, such as that an upload failed.
    """
    for error in causes:
        response = getattr(error, "response", None)
        if response is not None:
            status = getattr(response, "status_code", None)
            return status, getattr(error, "server_message", None) or str(causes[-1])
    return None, str(causes[-1])


def _is_of_connection(error: BaseException, hub_errors: Any) -> bool:
    """Whether an error says that the Hub cannot be reached."""
    if isinstance(error, (ConnectionError, TimeoutError, hub_errors.LocalEntryNotFoundError)):
        return True
    return type(error).__module__.partition(".")[0] in _CLIENTS
