"""Make a release: ``make release VERSION=0.9.1``.

Checks the tree and the version, closes the top section of CHANGELOG.md, writes the version, builds
the sdist, the wheel and an SBOM into dist/, commits, and tags. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "## [Unreleased]"
CHANGELOG, CITATION, VERSION = "CHANGELOG.md", "CITATION.cff", "src/mild/_version.py"


class ReleaseError(Exception):
    """Why there is no release, in one sentence."""


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def parsed(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ReleaseError(f"A version has three numbers, such as 0.9.1; got {version!r}.")
    return tuple(int(part) for part in version.split("."))


def replaced(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"{path.name} should have one line with the version; it has {count}.")
    path.write_text(text, encoding="utf-8")


def closed_changelog(text: str, version: str, date: str) -> str:
    """The changelog with its top section named after the version, below an empty one."""
    _, found, rest = text.partition(UNRELEASED + "\n")
    if not found:
        raise ReleaseError(f"CHANGELOG.md has no section {UNRELEASED!r}.")
    if f"\n## [{version}]" in rest:
        raise ReleaseError(f"CHANGELOG.md already has a section {version}.")
    section = rest.partition("\n## ")[0]
    if not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError(f"The section {UNRELEASED!r} of CHANGELOG.md has no entries.")
    return text.replace(UNRELEASED, f"{UNRELEASED}\n\n## [{version}] - {date}", 1)


def checked(root: Path, version: str, date: str) -> str:
    """The new changelog, if the version can be released."""
    if git(root, "status", "--porcelain"):
        raise ReleaseError("The tree has changes that are not committed.")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"The tag v{version} exists.")
    new = parsed(version)
    # The tree may already have the version that is released now, or be on the way to it: 0.10.0.dev0.
    current = re.search(
        r'^__version__ = "(.+?)(\.dev\d+)?"', (root / VERSION).read_text("utf-8"), re.MULTILINE
    )
    if current and new < parsed(current[1]):
        raise ReleaseError(f"The version is {current[1]}; {version} goes back.")
    for tag in git(root, "tag", "--list", "v*").split():
        if re.fullmatch(r"v\d+\.\d+\.\d+", tag) and new < parsed(tag[1:]):
            raise ReleaseError(f"{tag} was released; {version} goes back.")
    return closed_changelog((root / CHANGELOG).read_text("utf-8"), version, date)


def write(root: Path, version: str, changelog: str) -> None:
    replaced(root / VERSION, r'^__version__ = ".*"', f'__version__ = "{version}"')
    replaced(root / CITATION, r"^version: .*", f"version: {version}")
    (root / CHANGELOG).write_text(changelog, encoding="utf-8")


def build(root: Path) -> None:
    """The sdist, the wheel, and the SBOM of the wheel in an environment with nothing else."""
    dist, clean = root / "dist", root / ".venv-wheel"
    for folder in (dist, clean):
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist)], cwd=root, check=True)
    venv.create(clean, with_pip=True)
    python, wheel = clean / "bin" / "python", next(dist.glob("*.whl"))
    install = [str(python), "-m", "pip", "install", "--quiet", f"{wheel}[gateway]"]
    subprocess.run([*install, "--constraint", "constraints.txt"], cwd=root, check=True)
    subprocess.run(
        [str(python), "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"], check=True
    )
    sbom = ["environment", str(python), "--of", "JSON", "--pyproject", "pyproject.toml"]
    target = str(dist / "sbom.cdx.json")
    command = [sys.executable, "-m", "cyclonedx_py", *sbom, "--output-file", target]
    subprocess.run(command, cwd=root, check=True)
    shutil.rmtree(clean)


def release(root: Path, version: str, date: str, *, with_build: bool = True) -> None:
    changelog = checked(root, version, date)
    try:
        write(root, version, changelog)
        if with_build:
            build(root)
        git(root, "commit", "--quiet", "--all", "--message", f"Release {version}")
    except BaseException:
        git(root, "checkout", "--quiet", "HEAD", "--", ".")
        raise
    git(root, "tag", "--annotate", f"v{version}", "--message", f"mild {version}")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("version", nargs="?", default="", help="such as 0.9.1")
    parser.add_argument("--date", default=datetime.datetime.now(datetime.UTC).date().isoformat())
    parser.add_argument("--no-build", action="store_true", help="only check, commit and tag")
    parser.add_argument("--only-build", action="store_true", help="only build, as the tree is")
    given = parser.parse_args(arguments)
    try:
        if given.only_build:
            build(root)
            return 0
        release(root, given.version, given.date, with_build=not given.no_build)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"v{given.version} is committed and tagged. To publish: git push --follow-tags")
    return 0


if __name__ == "__main__":
    sys.exit(main())
