"""The file of experts: what it may say, and how it is refused."""

from __future__ import annotations

import pytest

from mild.errors import DataFileError, OptionError
from mild_gateway.collect.config import find_experts, read_experts
from mild_gateway.experts.prices import Price

SECRET = "sk-do-not-show-me"
GOOD = """\
# comment
[experts.small]
base_url = "https://api.example.com/v1/"
model = "tiny"
api_key_env = "SMALL_KEY"
system = '''
[not.a.table]
model = 3
'''
max_tokens = 7
extra.temperature = 0
extra.seed = 1
price_in = 0.5
price_out = 1
max_in_flight = 2
requests_per_minute = 30

[experts.rules]
base_url = "http://127.0.0.1:8133/v1"
model = "rules"
price_per_query = 0.001

[prompts]
numeric = "{query}!"
"""


def read(tmp_path, text, environment=None):
    file = tmp_path / "experts.toml"
    file.write_text(text)
    return read_experts(file, {"SMALL_KEY": SECRET} if environment is None else environment)


def refusal(tmp_path, text, **more):
    with pytest.raises(DataFileError) as caught:
        read(tmp_path, text, **more)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "experts.toml"))
    assert SECRET not in message
    return message.replace(str(tmp_path / "experts.toml"), "")


def test_everything_is_read(tmp_path):
    file = read(tmp_path, GOOD)
    small, rules = file.experts
    assert small.url == "https://api.example.com/v1/chat/completions"
    assert small.price == Price(0.5, 1.0, None)
    assert (small.max_tokens, small.extra) == (7, {"temperature": 0, "seed": 1})
    assert (small.max_in_flight, small.requests_per_minute) == (2, 30.0)
    assert (rules.max_tokens, rules.max_in_flight, rules.total_seconds) == (512, 4, 120.0)
    assert file.prompts["numeric"] == "{query}!"
    assert file.prompts["exact"].startswith("{query}")
    assert small.secret.value == SECRET
    assert rules.secret is None


def test_the_request_is_what_is_sent_and_no_secret_is_in_it(tmp_path):
    small = read(tmp_path, GOOD).experts[0]
    request = small.request("Hi")
    assert request["body"] == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "[not.a.table]\nmodel = 3\n"},
            {"role": "user", "content": "Hi"},
        ],
        "max_tokens": 7,
        "temperature": 0.0,
        "seed": 1,
    }
    assert SECRET not in repr(small) + repr(request) + repr(read(tmp_path, GOOD))


# Rules that the gateway's file has, too, are tested there.
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "max_tokens = 7",
            "max_tokens = true",
            "line 10: experts.small.max_tokens must be a whole",
        ),
        ("max_tokens = 7", "max_token = 7", "line 10: experts.small.max_token is unknown"),
        ("price_in = 0.5", "price_in = nan", "line 13: experts.small.price_in must be a number"),
        ('model = "tiny"', "", "line 2: experts.small must have a model"),
        ('model = "tiny"', "model = 1", "line 4: experts.small.model must be text in quotes"),
        (
            'base_url = "http://127.0.0.1:8133/v1"',
            "",
            "line 18: experts.rules must have an address",
        ),
        (
            "extra.seed = 1",
            'extra.model = "x"',
            "line 12: experts.small.extra.model must not be set",
        ),
        ("extra.seed = 1", "extra.at = 2024-01-01", "line 11: experts.small.extra must hold only"),
        ("[prompts]", "[prompt]", "line 23: prompt is unknown; did you mean prompts?"),
        (
            'numeric = "{query}!"',
            'numeric = "hm"',
            "line 24: prompts.numeric must hold {query}; got text.",
        ),
        ("[experts.rules]", "[experts.'']", "line 18: experts. must have a name"),
        (
            "max_tokens = 7",
            "max_tokens =",
            "it is not TOML: Invalid value (at line 10, column 13).",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, old, new, said):
    assert old in GOOD
    assert said in refusal(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('api_key_env = "SMALL_KEY"', f'api_key = "{SECRET}"'),
        ('api_key_env = "SMALL_KEY"', f'api_key_env = "{SECRET}"'),
        ("https://api.example.com/v1/", f"https://me:{SECRET}@api.example.com/v1"),
        ("https://api.example.com/v1/", f"https://api.example.com/v1?key={SECRET}"),
        ("https://api.example.com/v1/", f"{SECRET}"),
        ("extra.seed = 1", f'extra.api_key = "{SECRET}"'),
        ("max_tokens = 7", f'max_tokens = "{SECRET}"'),
        ("extra.seed = 1", f'unknown = "{SECRET}"'),
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_shown(tmp_path, old, new):
    assert ", line " in refusal(tmp_path, GOOD.replace(old, new))


def test_a_variable_that_is_not_set_is_named_by_its_line(tmp_path):
    expected = ", line 5: experts.small.api_key_env names an environment variable that is not set; "
    assert refusal(tmp_path, GOOD, environment={}).startswith(expected)
    assert refusal(tmp_path, GOOD, environment={"SMALL_KEY": " "}).startswith(expected)
    assert "one word of plain ASCII" in refusal(tmp_path, GOOD, environment={"SMALL_KEY": "a\nb"})


def test_two_names_for_the_same_requests_are_refused(tmp_path):
    twin = '\n[experts.{}]\nbase_url = "http://h/v1"\nmodel = "m"\nprice_in = {}\n'
    message = refusal(tmp_path, twin.format("a", 1) + twin.format("b", 2))
    assert message == (
        ", line 7: experts.b must differ from 'a' in what it asks; remove one, or set extra.seed."
    )


def test_a_file_without_experts_or_no_file_is_refused(tmp_path):
    assert refusal(tmp_path, "") == (
        ": experts must name at least one expert: [experts.NAME]; got none."
    )
    with pytest.raises(DataFileError, match="No such file"):
        read_experts(tmp_path / "none.toml")
    (tmp_path / "experts.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(DataFileError, match="must be UTF-8; byte 5 is not"):
        read_experts(tmp_path / "experts.toml")


def test_experts_are_chosen_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_KEY", SECRET)
    every = read(tmp_path, GOOD)
    file = tmp_path / "experts.toml"
    assert [one.name for one in find_experts(file, "rules, small").experts] == ["rules", "small"]
    assert find_experts(file).experts == find_experts(every.experts).experts == every.experts
    with pytest.raises(OptionError, match="experts must be among small, rules; got 'big'"):
        find_experts(file, "small,big")
