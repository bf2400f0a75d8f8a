"""One question to one expert: over HTTP, or to a program."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from mild.endpoints.kinds import CommandExpert, Expert, HttpExpert
from mild.endpoints.prices import Usage, estimate_tokens, most_tokens
from mild.endpoints.programs import run_program
from mild.endpoints.replies import NoAnswerError, Reply, read_reply
from mild.errors import MissingExtraError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Asker", "CommandAsker", "HttpAsker", "make_asker", "redactor"]

# A reply larger than this is not read to its end.
MOST_BYTES = 16_000_000
# Shorter words are no secrets, and hiding them would spoil every text.
SHORTEST_SECRET = 4


class Asker(Protocol):
    """Asks one expert; an asynchronous context manager."""

    async def ask(self, prompt: str) -> Reply:
        """The expert's reply; raises NoAnswerError."""

    def most(self, prompt: str) -> Usage | None:
        """Tokens that a request can take at most, None where tokens do not count."""

    def guess(self, prompt: str, response: str) -> Usage | None:
        """Tokens that a request took, about."""

    async def __aenter__(self) -> Asker: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def make_asker(expert: Expert, secret: str | None) -> Asker:
    """The asker for an expert."""
    if isinstance(expert, HttpExpert):
        return HttpAsker(expert, secret)
    if isinstance(expert, CommandExpert):
        return CommandAsker(expert)
    raise TypeError(f"there is no way to ask a {type(expert).__name__}.")


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


class CommandAsker:
    """Asks a program."""

    def __init__(self, expert: CommandExpert) -> None:
        self._expert = expert

    async def ask(self, prompt: str) -> Reply:
        """What the program prints."""
        return Reply(await run_program(self._expert.command, prompt, self._expert.timeout_s))

    def most(self, prompt: str) -> Usage | None:
        """Programs take no tokens."""
        return None

    def guess(self, prompt: str, response: str) -> Usage | None:
        """Programs take no tokens."""
        return None

    async def __aenter__(self) -> CommandAsker:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class HttpAsker:
    """Asks a chat endpoint, over connections that are kept open."""

    def __init__(self, expert: HttpExpert, secret: str | None) -> None:
        self._expert = expert
        self._secret = secret
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> HttpAsker:
        try:
            import aiohttp
        except ImportError as error:
            raise MissingExtraError(
                "asking an endpoint needs aiohttp; install mild-learn[collect]."
            ) from error
        expert = self._expert
        headers = {"User-Agent": "mild-collect"}
        if self._secret is not None:
            bearer = expert.api_key_header.lower() == "authorization"
            headers[expert.api_key_header] = f"Bearer {self._secret}" if bearer else self._secret
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=expert.concurrency),
            timeout=aiohttp.ClientTimeout(
                total=expert.timeout_s, sock_connect=expert.connect_timeout_s
            ),
            # Proxies of the environment, but never on the way to this machine.
            trust_env=not _is_local(expert.url),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, prompt: str) -> Reply:
        """Send one request and read the reply."""
        import aiohttp

        if self._session is None:
            raise RuntimeError("HttpAsker must be entered before it asks.")
        request = self._expert.request(prompt)
        try:
            async with self._session.post(
                request["url"], json=request["body"], allow_redirects=False
            ) as response:
                body = await _read(response)
                return read_reply(response.status, response.headers, body)
        except aiohttp.ConnectionTimeoutError:
            limit = self._expert.connect_timeout_s
            raise NoAnswerError(f"no connection within {limit:g} s", again=True) from None
        except TimeoutError:
            limit = self._expert.timeout_s
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
        """As many tokens as bytes go in, and as many as allowed come out."""
        return Usage(most_tokens((self._expert.system or "") + prompt), self._expert.max_tokens)

    def guess(self, prompt: str, response: str) -> Usage | None:
        """Tokens by the length of the texts."""
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
