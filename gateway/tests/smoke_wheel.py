"""Use both wheels as a user would; run by `make wheel` in an environment with nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import mild
import mild_gateway

MILD = Path(sys.executable).with_name("mild")
PATIENCE = 60
QUESTION = {"model": "mild", "messages": [{"role": "user", "content": "What is 17 * 23?"}]}


def check_environment() -> None:
    """Both wheels are what is imported, and their versions agree."""
    for package in (mild, mild_gateway):
        assert "site-packages" in package.__file__, package.__file__
    help_text = subprocess.run([MILD, "--help"], check=True, capture_output=True, text=True).stdout
    for command in ("tune", "serve", "keys", "ledger"):
        assert f"\n  {command} " in help_text, help_text


def address_of(gateway: subprocess.Popen[str]) -> str:
    """Where the gateway listens: the address in its first line."""
    assert gateway.stdout is not None
    first_line = gateway.stdout.readline()
    addresses = [word for word in first_line.split() if word.startswith("http://")]
    assert len(addresses) == 1, first_line
    return addresses[0]


def ask(address: str) -> str:
    """The expert that answers a question."""
    body = json.dumps(QUESTION).encode()
    headers = {"content-type": "application/json"}
    request = Request(f"{address}/v1/chat/completions", body, headers)
    with urlopen(request, timeout=PATIENCE) as response:
        answer = json.load(response)
        assert answer["choices"][0]["message"]["content"], answer
        expert = response.headers["x-mild-expert"]
        assert expert, response.headers
        return str(expert)


def check_page(address: str) -> None:
    """The dashboard is a file of the package: it must have come along."""
    with urlopen(address, timeout=PATIENCE) as response:
        page = response.read().decode()
    assert "<script" in page, page[:200]


def main() -> None:
    check_environment()
    command = [MILD, "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
        try:
            address = address_of(gateway)
            expert = ask(address)
            check_page(address)
        finally:
            gateway.terminate()
            gateway.communicate(timeout=PATIENCE)
    print(f"wheel of mild-gateway works: {expert} answered at {address}")


if __name__ == "__main__":
    main()
