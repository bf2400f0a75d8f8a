import json
import resource
import time

import pytest

from mild_gateway.experts.expert import Expert
from mild_gateway.experts.redaction import Redactor
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


def test_an_answer_of_escapes_takes_little_more_than_its_bytes():
    answer = b'{"content": "' + b"\\\\" * 500_000 + b"\\u0041" * 150_000 + b'"}'
    redact = of("sk-0123456789abcdefA")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert redact(answer) == answer
    # The memory of regular expressions is not traced.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
