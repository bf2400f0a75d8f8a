"""One question to one expert: over HTTP, or to a program."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mild.endpoints.expert import Expert
from mild.endpoints.prices import Usage, estimate_tokens, most_tokens
from mild.endpoints.programs import run_program
from mild.endpoints.replies import NoAnswerError, Reply, read_reply
from mild.errors import MissingExtraError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Asker", "redactor"]

# A reply larger than this is not read to its end.
MOST_BYTES = 16_000_000
# Shorter words are no secrets, and hiding them would spoil every text.
SHORTEST_SECRET = 4


def redactor(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that takes secrets out of a text.

    Examples
    --------
    >>> redactor(["sk-12345"])("wrong key: sk-12345")
    'wrong key: [secret]'
    """
    forms = {
        form
        for secret in secrets
        if len(secret) >= SHORTEST_SECRET
        for form in (secret, json.dumps(secret)[1:-1])
    }
    # The longest first: one secret may begin with another.
    ordered = sorted(forms, key=len, reverse=True)

    def redact(text: str) -> str:
        for form in ordered:
            text = text.replace(form, "[secret]")
        return text

    return redact


class Asker:
    """Asks one expert; an asynchronous context manager, which keeps connections open."""

    def __init__(self, expert: Expert) -> None:
        self._expert = expert
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Asker:
        expert = self._expert
        if expert.command is not None:
            return self
        try:
            import aiohttp
        except ImportError as error:
            raise MissingExtraError(
                "asking an endpoint needs aiohttp; install mild-learn[collect]."
            ) from error
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": "mild-collect"} | expert.sent_headers(),
            connector=aiohttp.TCPConnector(limit=expert.max_in_flight or 0),
            timeout=aiohttp.ClientTimeout(
                total=expert.total_seconds, sock_connect=expert.connect_seconds
            ),
            # Proxies of the environment, but never on the way to this machine.
            trust_env=not _is_local(expert.url),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, prompt: str) -> Reply:
        """The expert's reply; raises NoAnswerError."""
        if self._expert.command is not None:
            seconds = self._expert.total_seconds
            return Reply(await run_program(self._expert.command, prompt, seconds))
        import aiohttp

        if self._session is None:
            raise RuntimeError("an Asker must be entered before it asks.")
        request = self._expert.request(prompt)
        try:
            async with self._session.post(
                request["url"], json=request["body"], allow_redirects=False
            ) as response:
                body = await _read(response)
                return read_reply(response.status, response.headers, body)
        except aiohttp.ConnectionTimeoutError:
            limit = self._expert.connect_seconds
            raise NoAnswerError(f"no connection within {limit:g} s", again=True) from None
        except TimeoutError:
            limit = self._expert.total_seconds
            raise NoAnswerError(f"no reply within {limit:g} s", again=True, paid=True) from None
        except (aiohttp.InvalidURL, aiohttp.ClientConnectorCertificateError) as error:
            raise NoAnswerError(f"no connection: {error}", closed=True) from None
        except aiohttp.ClientConnectorError as error:
            raise NoAnswerError(f"no connection: {error.os_error}", again=True) from None
        except aiohttp.ClientPayloadError:
            raise NoAnswerError("the reply was cut off", again=True, paid=True) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = f"the connection broke: {error or type(error).__name__}"
            raise NoAnswerError(reason, again=True, paid=True) from None

    def most(self, prompt: str) -> Usage | None:
        """Tokens that a request can take at most: a token is a byte or longer. None for programs."""
        if self._expert.command is not None:
            return None
        return Usage(most_tokens((self._expert.system or "") + prompt), self._expert.max_tokens)

    def guess(self, prompt: str, response: str) -> Usage | None:
        """Tokens that a request took, by the length of the texts; None for programs."""
        if self._expert.command is not None:
            return None
        sent = estimate_tokens((self._expert.system or "") + prompt)
        return Usage(sent, estimate_tokens(response), estimated=True)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for block in response.content.iter_any():
        body += block
        if len(body) > MOST_BYTES:
            raise NoAnswerError(f"the reply is longer than {MOST_BYTES:,} bytes", paid=True)
    return bytes(body)


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
