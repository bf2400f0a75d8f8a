from mild_gateway.experts.expert import Expert
from mild_gateway.experts.redaction import Redactor
from mild_gateway.experts.secrets import Secret

KEY = "sk-proj-0123456789abcdef"


def of(*secrets, **headers):
    return Redactor(
        Expert(f"e{k}", "http://x/v1", "m", headers=headers, secret=Secret(value, "a test"))
        for k, value in enumerate(secrets)
    )


def test_secrets_are_taken_out_wherever_they_stand():
    redact = of("abcdefghijkl", "abcdefghijklmn")
    assert redact("xabcdefghijklmny abcdefghijkl") == "x[secret]y [secret]"
    assert redact("abcdefghijk abcdefghijkm") == "abcdefghijk abcdefghijkm"


def test_a_word_that_is_given_as_a_key_stays():
    redact = of("ollama", "any", KEY)
    assert redact(f"Install ollama with any key, not {KEY}.") == (
        "Install ollama with any key, not [secret]."
    )


def test_headers_that_hold_a_key_are_secrets_too():
    redact = of(KEY, **{"X-Api-Token": "Basic dXNlcjpwdw==", "X-Team": "research-and-more"})
    assert redact("dXNlcjpwdw== research-and-more") == "[secret] research-and-more"
