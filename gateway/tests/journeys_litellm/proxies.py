"""LiteLLM's proxy as a process, with the files that the documentation shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from journeys.processes import LONGEST
from journeys.world import PRICES
from journeys_litellm import adapter
from waiting import PATIENCE, wait_until

LITELLM = Path(sys.executable).with_name("litellm")
MASTER_KEY = "sk-key-of-the-journeys-0123456789"
LOG = "proxy.log"


def write_files(folder: Path, models_url: str) -> None:
    """The files of the page, but with the experts of the journeys, whose endpoint is the model server."""
    for name, text in adapter.files_of_the_page().items():
        for page_name, expert in zip(adapter.EXPERTS_OF_THE_PAGE, PRICES, strict=True):
            text = text.replace(page_name, expert)
        text = re.sub(r"api_base: .*", f"api_base: {models_url}", text)
        # The provider for endpoints that know chat completions and nothing else.
        text = text.replace("model: openai/", "model: custom_openai/")
        (folder / name).write_text(text, encoding="utf-8")


def keys() -> dict[str, str]:
    """The keys for which the files name variables."""
    variables = {"LITELLM_MASTER_KEY": MASTER_KEY}
    for page_name, expert in zip(adapter.EXPERTS_OF_THE_PAGE, PRICES, strict=True):
        variables[f"{page_name.upper()}_KEY"] = f"key-of-{expert}"
    return variables


@dataclass
class Proxy:
    """LiteLLM's proxy in a folder."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / LOG).read_text(encoding="utf-8")

    @property
    def address(self) -> str | None:
        """Where it listens; None before it does."""
        found = re.search(r"Uvicorn running on (http://127\.0\.0\.1:\d+)", self.log)
        return found[1] if found else None

    def wait(self) -> None:
        """Wait until it listens, or has ended."""
        wait_until(lambda: self.address or self.process.poll() is not None, LONGEST)


@contextmanager
def proxy_in(folder: Path, models_url: str):
    """Start the proxy in a folder that may have a router; it is ended whatever happens."""
    write_files(folder, models_url)
    # The system chooses the port.
    words = [LITELLM, "--config", "config.yaml", "--host", "127.0.0.1", "--port", "0"]
    environment = {**os.environ, **keys(), "OMP_NUM_THREADS": "1"}
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield Proxy(folder, process)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)
