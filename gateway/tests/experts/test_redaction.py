import json
import resource
import time

import pytest

from mild_gateway.experts.expert import Expert
from mild_gateway.experts.redaction import Redactor, StreamRedactor
from mild_gateway.experts.secrets import Secret

KEY = "sk-proj-0123456789abcdef"


def of(*secrets, **headers):
    return Redactor(
        Expert(f"e{k}", "http://x/v1", "m", headers=headers, secret=Secret(value, "a test"))
        for k, value in enumerate(secrets)
    )


def escaped(text):
    return "".join(f"\\u{ord(mark):04X}" for mark in text)


def test_long_secrets_are_taken_out_wherever_they_stand():
    redact = of("abcdefghijkl", "abcdefghijklmn")
    assert redact("xabcdefghijklmny abcdefghijkl") == "x[secret]y [secret]"
    assert redact(b"abcdefghijk abcdefghijkm") == b"abcdefghijk abcdefghijkm"


@pytest.mark.parametrize("secret", ['quo"te/slash\\es', "plain-secret-1", "sla//shed/secret"])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_no_way_of_escaping_hides_a_secret(secret, depth):
    redact = of(secret)
    for shown in (secret, secret.replace("/", "\\/", 1)):
        for _ in range(depth):
            shown = json.dumps(shown)[1:-1]
        assert redact(f"a {shown} b") == "a [secret] b"
    mixed = escaped(secret[:3]) + json.dumps(secret[3:])[1:-1] + "\\u0020\\u00e9"
    for _ in range(depth):
        mixed = json.dumps(mixed)[1:-1]
    assert redact(mixed).startswith("[secret]\\")


@pytest.mark.parametrize("text", ["Install ollama.", "ollama", "my-ollama ollama2 ollamas"])
def test_short_secrets_stay_in_answers(text):
    assert of("ollama")(text) == text
    assert of("ollama")(text.encode()) == text.encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wrong key: ollama.", "wrong key: [secret]."),
        (json.dumps({"error": 'key:\n"ollama"\tollama'}), '{"error": "key:\\n\\"[secret]\\"\\t[secret]"}'),
        ("my-ollama ollama2 ollamas ollama-7b", "my-ollama ollama2 ollamas ollama-7b"),
        (f"xx{KEY}xx", "xx[secret]xx"),
    ],
)  # fmt: skip
def test_in_errors_short_secrets_are_taken_out_as_whole_words(text, expected):
    assert of("ollama", KEY, "any")(text, error=True) == expected


def test_headers_that_hold_a_key_are_secrets_too():
    redact = of(KEY, **{"X-Api-Token": "Basic dXNlcjpwdw==", "X-Team": "research-and-more"})
    assert redact("dXNlcjpwdw== research-and-more") == "[secret] research-and-more"


def test_many_backslashes_take_no_longer():
    content = b"\\" * 100_000 + KEY.encode()
    start = time.process_time()
    assert KEY.encode() not in of(KEY)(content)
    assert time.process_time() - start < 1.0


def test_an_event_of_escapes_takes_little_more_than_its_bytes():
    event = b'data: {"content": "' + b"\\\\" * 500_000 + b"\\u0041" * 150_000 + b'"}\n\n'
    stream = StreamRedactor(of("sk-0123456789abcdefA"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert stream(event) == event
    # The memory of regular expressions is not traced.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


def chunk(text, field="content"):
    return f'data: {{"choices": [{{"delta": {{"{field}": "{text}"}}}}]}}\n\n'.encode()


def relayed(parts, redact, field="content"):
    """What a client puts together of the text in these parts, and how much came before the last."""
    stream = StreamRedactor(redact)
    sent = [stream(chunk(part, field)) for part in parts]
    early = len(b"".join(sent))
    sent.append(stream(b"data: [DONE]\n\n", last=True))
    events = b"".join(sent).decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events[:-2]]
    assert len(deltas) == len(parts)
    return "".join(delta[field] for delta in deltas), early


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 23, 24, 50])
@pytest.mark.parametrize("field", ["content", "reasoning_content", "arguments", "text"])
def test_a_secret_that_is_spread_over_events_is_taken_out(size, field):
    text = f"Your key is {KEY}, keep it."
    parts = [text[k : k + size] for k in range(0, len(text), size)]
    found, _ = relayed(parts, of(KEY, "sk-proj-another-secret"), field)
    assert found.endswith("[secret], keep it.")
    # At most three characters of it were sent before the stream was held.
    assert KEY[:4] not in found


@pytest.mark.parametrize("size", [1, 2, 3])
def test_escapes_do_not_hide_a_secret_that_is_spread_over_events(size):
    parts = [escaped(KEY[k : k + size]) for k in range(0, len(KEY), size)]
    found, _ = relayed(["a ", *parts, " b"], of(KEY))
    assert found.endswith("[secret] b")
    assert KEY[:4] not in found


@pytest.mark.parametrize("size", [1, 5, 11])
def test_the_same_text_in_two_fields_hides_no_secret(size):
    stream = StreamRedactor(of(KEY))
    parts = [KEY[k : k + size] for k in range(0, len(KEY), size)]
    sent = b"".join(stream(chunk(part, f'reasoning": "{part}", "content')) for part in parts)
    sent += stream(b"data: [DONE]\n\n", last=True)
    deltas = [json.loads(e[6:])["choices"][0]["delta"] for e in sent.decode().split("\n\n")[:-2]]
    for field in ("reasoning", "content"):
        found = "".join(delta[field] for delta in deltas)
        assert found.endswith("[secret]")
        assert KEY[:4] not in found


def test_text_that_only_begins_like_a_secret_is_sent_unchanged():
    parts = ["write sk", "-pro", "j-01", "99 or", " sk-proj", "-0123456789abcde", "!", " sk-proj-"]
    found, early = relayed(parts, of(KEY))
    assert found == "".join(parts)
    # Only the end waits: it could still become a secret.
    assert early == sum(len(chunk(part)) for part in parts[:-1])


def test_two_secrets_one_after_the_other_are_both_taken_out():
    text = f"{KEY} {KEY}{KEY}"
    found, _ = relayed([text[k : k + 7] for k in range(0, len(text), 7)], of(KEY))
    assert found == "[secret] sk-[secret][secret]"


def test_a_stream_without_secrets_is_not_looked_at():
    stream = StreamRedactor(of("ollama"))
    assert stream(chunk("ollama")) == chunk("ollama")
