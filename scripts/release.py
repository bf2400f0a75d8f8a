"""Make a release of both distributions: ``make release VERSION=0.9.1``.

Checks the tree and the version, closes the top section of CHANGELOG.md, writes the version, builds
the sdists, the wheels and an SBOM into dist/, commits, and tags. Nothing is pushed.
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
UNRELEASED = "## Unreleased"
CHANGELOG = "CHANGELOG.md"
VERSION_FILES = ("src/mild/_version.py", "gateway/src/mild_gateway/_version.py")
# File, and the line in it that names the version: what stands before and behind it.
VERSION_LINES = [
    *((file, '__version__ = "', '"') for file in VERSION_FILES),
    # Each distribution requires the other one of the same version.
    ("pyproject.toml", 'gateway = ["mild-gateway==', '"]'),
    ("gateway/pyproject.toml", '  "mild-learn==', '",'),
]
# Lines that name the last release.
RELEASE_LINES = [
    ("CITATION.cff", "version: ", ""),
    ("deploy/kubernetes/mild.yaml", "          image: mild:", ""),
]


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


def write_line(path: Path, start: str, end: str, version: str) -> None:
    """Put the version into the one line of the file that begins and ends like this."""
    pattern = f"^{re.escape(start)}.*{re.escape(end)}$"
    text = path.read_text(encoding="utf-8")
    text, count = re.subn(pattern, f"{start}{version}{end}", text, flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"{path.name} should have one line with the version; it has {count}.")
    path.write_text(text, encoding="utf-8")


def closed_changelog(text: str, version: str, date: str) -> str:
    """The changelog with its top section named after the version, below an empty one."""
    heading = re.search(f"^{UNRELEASED}.*\n", text, re.MULTILINE)
    if heading is None:
        raise ReleaseError(f"CHANGELOG.md has no section {UNRELEASED!r}.")
    before, rest = text[: heading.start()], text[heading.end() :]
    if f"\n## {version} " in rest:
        raise ReleaseError(f"CHANGELOG.md already has a section {version}.")
    section = rest.partition("\n## ")[0]
    if not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError(f"The section {UNRELEASED!r} of CHANGELOG.md has no entries.")
    return f"{before}{UNRELEASED}\n\n## {version} - {date}\n{rest}"


def current_version(root: Path) -> str:
    """The version of both distributions, or that which they are on the way to: 0.10.0 of 0.10.0.dev0."""
    versions = []
    for file in VERSION_FILES:
        text = (root / file).read_text(encoding="utf-8")
        line = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
        if line is None:
            raise ReleaseError(f"{file} has no line with the version.")
        versions.append(line[1])
    if versions[0] != versions[1]:
        raise ReleaseError(f"The library is {versions[0]} and the gateway {versions[1]}.")
    release, _, _ = versions[0].partition(".dev")
    return release


def checked(root: Path, version: str, date: str) -> str:
    """The new changelog, if the version can be released."""
    if git(root, "status", "--porcelain"):
        raise ReleaseError("The tree has changes that are not committed.")
    if git(root, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"The tag v{version} exists.")
    new = parsed(version)
    current = current_version(root)
    if new < parsed(current):
        raise ReleaseError(f"The version is {current}; {version} goes back.")
    for tag in git(root, "tag", "--list", "v*").split():
        if re.fullmatch(r"v\d+\.\d+\.\d+", tag) and new < parsed(tag[1:]):
            raise ReleaseError(f"{tag} was released; {version} goes back.")
    return closed_changelog((root / CHANGELOG).read_text("utf-8"), version, date)


def write_version(root: Path, version: str) -> None:
    """Write the version of both distributions, which may be one in development."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", version):
        raise ReleaseError(f"A version is like 0.9.1 or 0.10.0.dev0; got {version!r}.")
    for file, start, end in VERSION_LINES:
        write_line(root / file, start, end, version)


def write_release(root: Path, version: str, changelog: str) -> None:
    write_version(root, version)
    for file, start, end in RELEASE_LINES:
        write_line(root / file, start, end, version)
    (root / CHANGELOG).write_text(changelog, encoding="utf-8")


def build(root: Path) -> None:
    """The sdists and wheels, and the SBOM of both wheels in an environment with nothing else."""
    dist = root / "dist"
    clean = root / ".venv-wheel"
    for folder in (dist, clean):
        shutil.rmtree(folder, ignore_errors=True)
    for project in (".", "gateway"):
        command = [sys.executable, "-m", "build", "--outdir", str(dist), project]
        subprocess.run(command, cwd=root, check=True)
    library = next(dist.glob("mild_learn-*.whl"))
    venv.create(clean, with_pip=True)
    python = str(clean / "bin" / "python")
    pip = [python, "-m", "pip"]
    install = [*pip, "install", "--quiet", "--constraint", "constraints.txt"]
    wheels = ["--find-links", str(dist), f"{library}[gateway]"]
    subprocess.run([*install, *wheels], cwd=root, check=True)
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "pip", "setuptools"], check=True)
    sbom = ["environment", python, "--of", "JSON", "--pyproject", "pyproject.toml"]
    target = str(dist / "sbom.cdx.json")
    command = [sys.executable, "-m", "cyclonedx_py", *sbom, "--output-file", target]
    subprocess.run(command, cwd=root, check=True)
    shutil.rmtree(clean)


def release(root: Path, version: str, date: str, *, with_build: bool = True) -> None:
    changelog = checked(root, version, date)
    try:
        write_release(root, version, changelog)
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
    parser.add_argument(
        "--only-write", action="store_true", help="only write the version, such as 0.10.0.dev0"
    )
    given = parser.parse_args(arguments)
    try:
        if given.only_build:
            build(root)
            return 0
        if given.only_write:
            write_version(root, given.version)
            return 0
        release(root, given.version, given.date, with_build=not given.no_build)
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"v{given.version} is committed and tagged. To publish: git push --follow-tags")
    return 0


if __name__ == "__main__":
    sys.exit(main())
