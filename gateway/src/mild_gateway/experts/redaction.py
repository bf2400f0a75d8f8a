"""Configured secrets taken out of what experts say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import AnyStr

from mild_gateway.experts.expert import Expert

#: Shorter secrets are words of ordinary answers: they are taken out of errors only.
LONG = 12
# Shorter ones yet, such as "any", are no secrets.
_SHORTEST = 4
_MARK = b"[secret]"
_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
# The fields of events whose values are put together by a client, each by itself.
_TEXT = re.compile(
    rb'"(content|text|delta|arguments|partial_json|thinking|reasoning|reasoning_content|refusal)"'
    rb'\s*+:\s*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"',
    re.DOTALL,
)
# A stream is held back from so many characters of a secret on, and so many bytes at most.
_BEGINNING = 4
_MAX_HELD = 65_536
# Bytes of text that was sent in which the first characters of a secret may be, escaped.
_SENT = 8 * _BEGINNING


class Redactor:
    """Takes the secrets of experts out of text or bytes, however JSON escapes them.

    >>> from mild_gateway.experts.secrets import Secret
    >>> secrets = [Secret("sk-0123456789", "a test"), Secret("ollama", "a test")]
    >>> redact = Redactor(Expert(f"e{k}", secret=secret) for k, secret in enumerate(secrets))
    >>> redact("Install ollama, not sk-0123456789 or \\\\u0073k-0123456789")
    'Install ollama, not [secret] or [secret]'
    >>> redact("wrong key: ollama", error=True)
    'wrong key: [secret]'
    """

    def __init__(self, experts: Iterable[Expert]) -> None:
        found: set[str] = set()
        for expert in experts:
            values = [v for name, v in expert.headers.items() if _SECRET_HEADER.search(name)]
            found.update(values, (value.partition(" ")[2] for value in values))
            if expert.secret is not None:
                found.add(expert.secret.value)
        # The longest first: one secret may begin with another.
        ordered = sorted(found, key=len, reverse=True)
        secrets = [secret for secret in ordered if len(secret) >= LONG]
        short = [secret for secret in ordered if _SHORTEST <= len(secret) < LONG]
        # Characters of secrets as JSON may write them.
        marks = [mark for mark in set("".join(secrets)) if ord(mark) < 256]
        self._escapes = [
            (code % ord(mark), mark.encode())
            for mark in marks
            for code in (b"\\u00%02x", b"\\u00%02X")
        ]
        self._long = [self.unescape(secret.encode()) for secret in secrets]
        # What a text may end with that becomes a secret, and what is in every such text.
        sizes = range(_BEGINNING, max(map(len, self._long), default=0))
        self.starts = tuple({secret[:size] for secret in self._long for size in sizes})
        self.beginnings = {secret[:_BEGINNING] for secret in self._long}
        self.pattern = re.compile(b"|".join(map(_escaped, secrets)))
        # Whole words; an escape such as \n ends the word before.
        words = b"|".join(map(_escaped, short)) or b"(?!)"
        self._short = re.compile(rb"(?:(?<![\w-])|(?<=\\[bfnrt]))(?:%b)(?![\w-])" % words)

    def __call__(self, content: AnyStr, *, error: bool = False) -> AnyStr:
        """Without the secrets of ``LONG`` or more characters; in errors, without the shorter ones."""
        if isinstance(content, str):
            raw = self(content.encode("utf-8", "surrogatepass"), error=error)
            return raw.decode("utf-8", "surrogatepass")
        if any(map(self.unescape(content).__contains__, self._long)):
            content = self.pattern.sub(_MARK, content)
        return self._short.sub(_MARK, content) if error else content

    def unescape(self, content: bytes | bytearray) -> bytes | bytearray:
        """Content without any backslash; ``\\u00..`` is replaced by the character if a secret has it."""
        if b"\\" not in content:
            return content
        if b"\\u00" in content:
            for code, mark in self._escapes:
                content = content.replace(code, mark)
        return content.replace(b"\\", b"")


class StreamRedactor:
    """Takes secrets out of the events of a stream, also those whose text is spread over several events.

    Events are held back while their text ends with the beginning of a secret. At most the first three
    characters of a secret are sent.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redact = redactor
        self._held = b""
        # The end of the text that was sent, by field.
        self._sent: dict[bytes, bytearray] = {}

    def __call__(self, events: bytes, *, last: bool = False) -> bytes:
        """The events to send now; with the ``last``, all of them."""
        beginnings = self._redact.beginnings
        if not beginnings:
            return events
        events = self._held + self._redact(events)
        texts, unescape = self._texts(events), self._redact.unescape
        if any(map(b"\n".join(map(unescape, texts.values())).__contains__, beginnings)):
            events = self._without_secrets(events, texts)
            texts = self._texts(events)
            unclear = any(unescape(text).endswith(self._redact.starts) for text in texts.values())
            if unclear and not last and len(events) < _MAX_HELD:
                self._held = events
                return b""
        self._held, self._sent = b"", {name: text[-_SENT:] for name, text in texts.items()}
        return events

    def _texts(self, events: bytes) -> dict[bytes, bytearray]:
        """The text of each field, behind the end of what was sent."""
        texts = {name: text[:] for name, text in self._sent.items()}
        for name, value in _TEXT.findall(events):
            texts.setdefault(name, bytearray()).extend(value)
        return texts

    def _without_secrets(self, events: bytes, texts: dict[bytes, bytearray]) -> bytes:
        """Cut the secrets in the text of the events out of the fields that hold their parts."""
        # Neither byte is part of a JSON string; the last is always in an event that was not sent.
        cuts = {
            name: self._redact.pattern.sub(lambda m: b"\0" * (len(m[0]) - 1) + b"\1", text)
            for name, text in texts.items()
        }
        places = {name: len(self._sent.get(name, b"")) for name in texts}

        def replace(field: re.Match[bytes]) -> bytes:
            name, size = field[1], len(field[2])
            start, places[name] = places[name], places[name] + size
            value = cuts[name][start : start + size].replace(b"\0", b"").replace(b"\1", _MARK)
            return field[0][: -size - 1] + value + b'"'

        return _TEXT.sub(replace, events)


def _escaped(secret: str) -> bytes:
    """A pattern for a secret with any of its characters escaped, up to four times."""
    # Not "\\*": the time would grow with the square of the backslashes in a row.
    return b"".join(
        rb"\\{0,15}(?:%b|(?i:u%04x))" % (re.escape(mark.encode()), ord(mark)) for mark in secret
    )
