"""The file of the gateway: what it may say, and how it is refused."""

from __future__ import annotations

import dataclasses
import os
import types
import typing

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from mild.errors import DataFileError
from mild_gateway.config import (
    AccessSettings,
    LedgerSettings,
    LimitSettings,
    RoutingSettings,
    Settings,
    read_settings,
    read_store,
)

SECRET = "sk-do-not-show-me"
GOOD = """\
router = "routers/a"
host = "0.0.0.0"
port = 8000
workers = 2
store = "state/keys.sqlite"
page = false

[experts.small]
base_url = "https://api.example.com/v1/"
model = "tiny"
api_key_env = "SMALL_KEY"
headers = { x-team = "blue" }
price_in = 0.5
price_out = 1
max_tokens = 700
max_in_flight = 8
requests_per_minute = 30
first_byte_seconds = 2.5
stream_usage = false

[experts."big one"]
base_url = "http://127.0.0.1:8080/v1"
model = "big"
api_key_file = "secrets/big"
api_key_header = "api-key"
price_per_query = 0.001

[routing]
price_weight = 0.5
explore = 0.05
text = "all"
pin_sessions = false
max_attempts = 2

[limits]
max_body_bytes = 2048
max_in_flight = 10
drain_seconds = 0

[access]
require_key = true
budget_day = 20
budget_month = 200.5
requests_per_minute = 60

[ledger]
path = "logs/l.sqlite"
keep_text = true
keep_days = 7
max_bytes = 5_000_000
"""
LEAST = '[experts.a]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'


def read(tmp_path, text, environment=None):
    file = tmp_path / "mild.toml"
    file.write_text(text)
    return read_settings(file, {"SMALL_KEY": SECRET} if environment is None else environment)


def refusal(tmp_path, text, environment=None):
    with pytest.raises(DataFileError) as caught:
        read(tmp_path, text, environment)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "mild.toml"))
    assert SECRET not in message
    return message.removeprefix(str(tmp_path / "mild.toml"))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "big").write_text("big-key\n")
    (tmp_path / "secrets" / "big").chmod(0o600)
    return tmp_path


def test_everything_is_read(place):
    settings = read(place, GOOD)
    small, big = settings.experts
    assert (settings.router, settings.host, settings.port) == (place / "routers/a", "0.0.0.0", 8000)
    assert (settings.workers, settings.page) == (2, False)
    assert settings.store == str(place / "state/keys.sqlite")
    assert (small.name, small.base_url, small.model) == (
        "small",
        "https://api.example.com/v1",
        "tiny",
    )
    assert small.sent_headers() == {"x-team": "blue", "Authorization": f"Bearer {SECRET}"}
    assert (small.price_in, small.price_out, small.price_per_query) == (0.5, 1.0, None)
    assert (small.max_tokens, small.max_in_flight, small.requests_per_minute) == (700, 8, 30.0)
    assert small.first_byte_seconds == 2.5
    assert (small.stream_usage, big.stream_usage) == (False, True)
    assert big.name == "big one"
    assert big.sent_headers() == {"api-key": "big-key"}
    assert big.defined_at == f"{place / 'mild.toml'}, line 21"
    assert settings.routing == RoutingSettings(0.5, 0.05, "all", False, 2)
    assert settings.limits == LimitSettings(max_body_bytes=2048, max_in_flight=10, drain_seconds=0)
    assert settings.access == AccessSettings(True, 20.0, 200.5, 60)
    assert settings.ledger == LedgerSettings(place / "logs/l.sqlite", True, 7.0, 5_000_000)
    assert settings.expert("big one") is big
    assert settings.expert("none") is None


def test_little_is_enough(tmp_path):
    settings = read(tmp_path, LEAST)
    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 6060, 1)
    assert settings.router is None
    assert settings.store == str(tmp_path / "mild.sqlite")
    assert settings.ledger == LedgerSettings(tmp_path / "ledger.sqlite")
    assert settings.routing == RoutingSettings()
    assert settings.limits == LimitSettings()
    assert not settings.requires_key
    assert settings.experts[0].secret is None


def test_no_secret_is_in_the_repr(place):
    shown = repr(read(place, GOOD))
    assert SECRET not in shown
    assert "big-key" not in shown
    assert "SMALL_KEY" in shown


@pytest.mark.parametrize(
    ("host", "stated", "needed"),
    [
        ("127.0.0.1", None, False),
        ("localhost", None, False),
        ("::1", None, False),
        ("0.0.0.0", None, True),
        ("10.0.0.1", None, True),
        ("example.com", None, True),
        ("0.0.0.0", "false", False),
        ("127.0.0.1", "true", True),
    ],
)
def test_a_key_is_needed_unless_this_machine_alone_can_ask(tmp_path, host, stated, needed):
    access = "" if stated is None else f"[access]\nrequire_key = {stated}\n"
    assert read(tmp_path, f'host = "{host}"\n{LEAST}{access}').requires_key is needed


def test_a_target_is_read(tmp_path):
    file = tmp_path / "mild.toml"
    file.write_text(LEAST + "[routing]\ntarget = { keep_quality = 1.02, max_dollars = 4 }\n")
    found = read_settings(file).routing.target.target
    assert found.limits_by_name == {"keep_quality": 1.02, "max_dollars": 4.0}
    assert found.target_probability == 0.8


def test_the_ledger_can_be_switched_off(tmp_path):
    assert read(tmp_path, LEAST + "[ledger]\nenabled = false\n").ledger.path is None


def test_the_store_is_known_without_any_secret(place):
    file = place / "mild.toml"
    file.write_text(GOOD)
    assert read_store(file) == str(place / "state/keys.sqlite")


# Lines at the top of a file, lines of an expert, and lines of tables, each with the key that is wrong.
TOP = [
    ("prot = 1", "prot"),
    ("lines = 1", "lines"),
    ("port = 70000", "port"),
    ("workers = 0", "workers"),
    ('host = "a b"', "host"),
    ('page = "yes"', "page"),
    ("page = 3", "page"),
    ("server = 1", "server"),
    ('store = "mysql://u:p@h/d"', "store"),
]
OF_EXPERT = [
    ("price = 1", "price"),
    ("price_in = -1", "price_in"),
    ('price_in = "1"', "price_in"),
    ("price_in = inf", "price_in"),
    ("max_tokens = 0", "max_tokens"),
    ("context = 0", "context"),
    ("stream_usage = 1", "stream_usage"),
    ('role = "backup"', "role"),
    ('api = "gemini"', "api"),
    ('embeddings = "yes"', "embeddings"),
    ('embeddings = true\napi = "anthropic"', "embeddings"),
    (f'api_key = "{SECRET}"', "api_key"),
    (f'api_key_env = "{SECRET}"', "api_key_env"),
    ('api_key_env = "UNSET"', "api_key_env"),
    ('api_key_file = "none"', "api_key_file"),
    ('headers = { Host = "x" }', "headers.Host"),
    ('headers = { a = "x\\ny" }', "headers.a"),
    ('headers = { "a b" = "x" }', "headers.a b"),
]
OF_TABLE = [
    ('[routing]\npin_sessions = "hard"', "routing.pin_sessions"),
    ("[routing]\nexplore = 1.5", "routing.explore"),
    ('[routing]\ntext = "first"', "routing.text"),
    ("[routing]\nsession_from_content = 1", "routing.session_from_content"),
    ('[routing]\ntarget = "max_dollars"', "routing.target"),
    ("[routing]\ntarget = { max_dollar = 2 }", "routing.target.max_dollar"),
    ("[routing.target]\nquality = 0.9", "routing.target.quality"),
    ("[routing.target]\nmax_quality_loss = 2", "routing.target.max_quality_loss"),
    ("[limits]\nmax_body = 1", "limits.max_body"),
    ("[limits]\nbody_seconds = 0", "limits.body_seconds"),
    ("[access]\nbudget = 1", "access.budget"),
    ("[access]\nrequests_per_minute = 0", "access.requests_per_minute"),
    ("[ledger]\nmax_bytes = 1", "ledger.max_bytes"),
    ("[server]\ntls_key = 1", "server.tls_key"),
    ("[server]\ncors_origins = 'https://a.example'", "server.cors_origins"),
    (f'[experts.a.headers]\nAuthorization = "{SECRET}"', "experts.a.headers.Authorization"),
]
ELSEWHERE = [
    (LEAST + "price_in = 1\nprice_cached_in = 2\n", 1, "experts.a"),
    (LEAST + 'api_key_env = "SMALL_KEY"\napi_key_file = "x"\n', 5, "experts.a.api_key_file"),
    (LEAST.replace("http:", "ftp:"), 2, "experts.a.base_url"),
    (LEAST.replace("127", f"u:{SECRET}@127"), 2, "experts.a.base_url"),
    (LEAST.replace("/v1", "/v1/chat/completions"), 2, "experts.a.base_url"),
    (LEAST.replace("/v1", "/v1/messages"), 2, "experts.a.base_url"),
    ('[experts.a]\nmodel = "m"\n', 1, "experts.a"),
    (LEAST.replace('model = "m"', ""), 1, "experts.a"),
    (LEAST.replace("experts.a", "experts.mild"), 1, "experts.mild"),
    (LEAST.replace("experts.a", 'experts."a\\nb"'), 1, "experts.a\nb"),
    (LEAST + "[routing.target]\n", 4, "routing.target"),
    (LEAST + "[routing]\nprice_weight = 1\ntarget = { max_dollars = 2 }\n", 6, "routing.target"),
]


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        *((f"{text}\n{LEAST}", 1, key) for text, key in TOP),
        *((f"{LEAST}{text}\n", 4, f"experts.a.{key}") for text, key in OF_EXPERT),
        *((f"{LEAST}{text}\n", 5, key) for text, key in OF_TABLE),
        *ELSEWHERE,
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, text, line, key):
    assert f", line {line}: {key} " in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": experts must name at least one expert: [experts.NAME]; got none."),
        ("prot = 1\n" + LEAST, ", line 1: prot is unknown; did you mean port?"),
        ("workers = 0\n" + LEAST, ", line 1: workers must be a whole number from 1 to 256; got 0."),
        (LEAST + 'price_in = "1"\n', "price_in must be a number of at least 0; got text."),
        (LEAST + "stream_usage = 1\n", "stream_usage must be true or false; got 1."),
        (LEAST + 'role = "backup"\n', 'role must be "routed" or "fallback".'),
        (LEAST + f'api_key = "{SECRET}"\n', "api_key must not be written in this file"),
        (LEAST + "[routing.target]\n", "routing.target must have at least one of keep_"),
        (LEAST + "total_second = 1\n", "total_second is unknown; did you mean total_seconds?"),
        (LEAST + "[ledger]\nenabld = true\n", "ledger.enabld is unknown; did you mean enabled?"),
        (
            LEAST + "[server]\nqqq = 1\n",
            "known names are cors_origins, trusted_proxies, tls_certificate, tls_key",
        ),
    ],
)
def test_a_message_says_the_rule_and_what_was_got(tmp_path, text, said):
    assert said in refusal(tmp_path, text)


@pytest.mark.parametrize("text", ["zzz = 1\n" + LEAST, LEAST + "zzz = 1\n"])
def test_the_known_names_are_those_that_a_file_may_have(tmp_path, text):
    known = refusal(tmp_path, text).partition("the known names are ")[2].rstrip(".").split(", ")
    assert not {"source", "lines", "name", "secret", "place"} & {*known}
    assert {"store_file", "port"} <= {*known} or {"max_in_flight", "model"} <= {*known}


def test_a_file_with_a_secret_that_others_can_read_is_refused(place):
    (place / "secrets" / "big").chmod(0o644)
    message = refusal(place, GOOD)
    assert ", line 24: experts.big one.api_key_file names a file" in message
    assert "chmod 600" in message
    assert "big-key" not in message


@given_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(place, data):
    """Lines dropped, doubled or broken: never another error, never the secret."""
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "value", "cut"]))
        if kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "value" and "=" in lines[at]:
            value = data.draw(
                st.sampled_from(["1", "-1", '"x"', "true", "[]", "{}", "1e400", "nan"])
            )
            lines[at] = f"{lines[at].split('=')[0]}= {value}"
        else:
            lines[at] = lines[at][: data.draw(st.integers(0, 10))]
    said = ""
    try:
        read(place, "\n".join(lines))
    except DataFileError as error:
        said = str(error)
    assert SECRET not in said
    assert "big-key" not in said


def test_the_real_environment_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "A_KEY", SECRET)
    file = tmp_path / "mild.toml"
    file.write_text(LEAST + 'api_key_env = "A_KEY"\n')
    assert read_settings(file).experts[0].secret.value == SECRET


def test_a_page_may_be_public(tmp_path):
    assert read(tmp_path, 'page = "public"\n' + LEAST).page == "public"


def test_what_an_expert_can_serve_is_read_and_not_assumed(tmp_path):
    text = """
unsupported = ["tools", "json_schema"]
context = 128_000
max_output = 4096
role = "fallback"
price_in = 2
price_cached_in = 0.2
price_cache_write = 2.5
[routing]
pin_sessions = "soft"
session_from_content = true
"""
    settings = read(tmp_path, LEAST + text)
    (one,) = settings.experts
    assert one.unsupported == ("tools", "json_schema")
    assert (one.context, one.max_output, one.role) == (128_000, 4096, "fallback")
    assert one.price.per_million_cached_in == 0.2
    assert one.price.per_million_cache_write == 2.5
    routing = settings.routing
    assert (routing.pin_sessions, routing.session_from_content) == ("soft", True)
    (plain,) = read(tmp_path, LEAST).experts
    assert plain.unsupported == ()
    prices = (plain.price_cached_in, plain.price_cache_write)
    assert {plain.context, plain.max_output, *prices} == {None}
    assert plain.role == "routed"


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ('"images"', "must be a list with any of"),
        ("true", "must be a list with any of"),
        ('["images", "vision"]', "entry 2 is none of them"),
        ('[["images"]]', "entry 1 is none of them"),
    ],
)
def test_what_is_unsupported_must_be_known(value, rule, tmp_path):
    with pytest.raises(DataFileError) as caught:
        read(tmp_path, f"{LEAST}unsupported = {value}\n")
    said = str(caught.value)
    assert "unsupported must" in said
    assert rule in said
    assert '"images", "tools", "json_schema", "reasoning"' in said


def test_a_price_of_cache_writes_needs_one_of_input(tmp_path):
    with pytest.raises(DataFileError, match="must have a price_in"):
        read(tmp_path, LEAST + "price_cache_write = 2.5\n")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5000 + "]" * 5000,
        "a = " + "{a = " * 5000 + "1" + "}" * 5000,
        ".".join(["a"] * 5000) + " = 1",
        " . ".join(['"a"'] * 5000) + " = 1",
        "x = {" + ".".join(["a"] * 5000) + " = 1}",
        "[" + ".".join(["a"] * 5000) + "]",
        "[[" + ".".join(["a"] * 5000) + "]]",
        "server." + ".".join(["a"] * 5000) + " = 1",
    ],
)
def test_a_file_that_is_nested_deeply_is_refused(tmp_path, text):
    file = tmp_path / "mild.toml"
    file.write_text(text)
    with pytest.raises(DataFileError, match="nested too deeply"):
        read_settings(file, {})


def test_a_file_that_is_no_configuration_is_refused_unread(tmp_path):
    file = tmp_path / "mild.toml"
    file.write_text("# " + "x" * 250_000)
    with pytest.raises(DataFileError, match="at most 250,000 bytes"):
        read_settings(file, {})


def test_of_many_problems_the_first_are_told(tmp_path):
    file = tmp_path / "mild.toml"
    file.write_text("".join(f"k{n} = 1\n" for n in range(500)) + "[experts.a]\nmodel = 'm'\n")
    with pytest.raises(DataFileError) as caught:
        read_settings(file, {})
    assert "k19 is unknown" in str(caught.value)
    assert "k20 is unknown" not in str(caught.value)
    assert "There are 480 more problems." in str(caught.value)


def test_the_server_table(tmp_path):
    file = tmp_path / "mild.toml"
    expert = "[experts.a]\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n"
    file.write_text(
        expert + "[server]\ncors_origins = ['https://app.example.com', 'http://localhost:3000']\n"
        "trusted_proxies = ['10.0.0.0/8', '::1']\n"
        "tls_certificate = 'tls/cert.pem'\ntls_key = '/etc/key.pem'\n"
        "[limits]\ntotal_seconds = 90\nmax_body_bytes = 2048\n"
    )
    settings = read_settings(file, {})
    assert settings.server.cors_origins == ("https://app.example.com", "http://localhost:3000")
    assert [str(network) for network in settings.server.trusted_proxies] == [
        "10.0.0.0/8",
        "::1/128",
    ]
    assert settings.server.tls_certificate == tmp_path / "tls" / "cert.pem"
    assert str(settings.server.tls_key) == "/etc/key.pem"
    assert settings.longest_request == 90
    assert settings.limits.max_body_bytes == 2048
    file.write_text(
        expert + "[server]\ncors_origins = ['*']\ntrusted_proxies = ['proxy']\ntls_key = 'k'\n"
    )
    with pytest.raises(DataFileError) as caught:
        read_settings(file, {})
    for line, key in ((5, "cors_origins.0"), (6, "trusted_proxies.0"), (7, "tls_key")):
        assert f"line {line}: server.{key} must" in str(caught.value)


def test_an_expert_may_speak_anthropics_api(tmp_path):
    (plain,) = read(tmp_path, LEAST).experts
    assert (plain.api, plain.embeddings) == ("openai", False)
    (found,) = read(tmp_path, LEAST + 'api = "anthropic"\n').experts
    assert found.api == "anthropic"
    (found,) = read(tmp_path, LEAST + "embeddings = true\n").experts
    assert found.embeddings


def _table_of(annotation):
    """The class behind a setting that is a table of settings, or a list of such; None for a value."""
    if dataclasses.is_dataclass(annotation) and hasattr(annotation, "__pydantic_validator__"):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, tuple):
        for kind in typing.get_args(annotation):
            table = _table_of(kind)
            if table is not None:
                return table
    return None


def _names_of_settings(table, prefix=""):
    """The settings of a table and of the tables in it, without the internal ones."""
    annotations = typing.get_type_hints(table)
    for field in dataclasses.fields(table):
        if field.name in getattr(table, "internal", ()) or not field.init:
            continue
        inner = _table_of(annotations[field.name])
        if inner is None:
            yield prefix + field.name
        else:
            yield from _names_of_settings(inner, f"{prefix}{field.name}.")
    for name in getattr(table, "other_keys", ()):
        yield prefix + name


def test_there_are_at_most_eighty_settings():
    names = list(_names_of_settings(Settings))
    assert {"port", "store_file", "experts.base_url", "routing.target.max_dollars"} <= set(names)
    assert len(names) == len(set(names))
    assert len(names) <= 80, sorted(names)
