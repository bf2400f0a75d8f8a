"""Where a result was made: package versions, the machine, the commit of the source."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mild

__all__ = ["commit", "hardware", "versions"]

GIT_SECONDS = 5.0
# Says the commit of a copy of the source that git knows nothing of.
COMMIT_VARIABLE = "MILD_COMMIT"


def versions(torch: bool = True) -> dict[str, str]:
    """Python, mild and the packages that numbers depend on; without torch where they do not."""
    found = {"python": platform.python_version(), "mild": mild.__version__}
    for name in ("numpy", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    if torch:
        import torch as package

        found["torch"] = str(package.__version__)
        if package.version.cuda is not None:
            found["cuda"] = str(package.version.cuda)
    return found


def hardware(device: str) -> str:
    """Name of the GPU, or of the processor where there is none in use."""
    if device != "cpu":
        import torch

    if device != "cpu" and torch.device(device).type == "cuda":
        return str(torch.cuda.get_device_name(torch.device(device)))
    source = Path("/proc/cpuinfo")
    if source.exists():
        for line in source.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or f"{platform.machine()} processor"


@cache
def commit() -> str | None:
    """Commit that the package is at, with "+" if any of its files was changed or added since.

    Outside a checkout it is what the environment variable MILD_COMMIT says; None without that.
    """
    package = Path(mild.__file__).resolve().parent
    # A package installed into somebody else's checkout is not of their commit.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return os.environ.get(COMMIT_VARIABLE)
    found = _git(package, "rev-parse", "HEAD")
    if found is None:
        return None
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    added = _git(package, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    # What git cannot tell in time counts as changed.
    return found if changed == added == "" else f"{found}+"


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
