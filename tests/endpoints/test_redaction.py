from mild.endpoints.expert import Expert
from mild.endpoints.redaction import redactor
from mild.endpoints.secrets import Secret


def of(*secrets, **headers):
    return redactor(
        [
            Expert(f"e{k}", "http://x/v1", "m", headers=headers, secret=Secret(value, "a test"))
            for k, value in enumerate(secrets)
        ]
    )


def test_secrets_are_taken_out_in_every_form():
    redact = of("abcdef", "abcdefgh", 'quo"te', "sla/shed", "none")
    assert redact("abcdefgh abcdef none") == "[secret] [secret] none"
    assert redact('quo"te quo\\"te') == "[secret] [secret]"
    assert redact(b"abc\\u0064ef \\u0061bcdefgh sla\\u002Fshed \\u00e9") == (
        b"[secret] [secret] [secret] \\u00e9"
    )
    assert redact(b'sla/shed sla\\/shed quo\\"te') == b"[secret] [secret] [secret]"


def test_headers_that_hold_a_key_are_secrets_too():
    redact = of("sk-123456", **{"X-Api-Token": "Basic dXNlcjpwdw==", "X-Team": "research"})
    assert redact("dXNlcjpwdw== research") == "[secret] research"
