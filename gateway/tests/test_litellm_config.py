"""``mild import-litellm``: LiteLLM's config.yaml as a mild.toml; what is left out is told, not refused."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from mild.errors import DataFileError
from mild_gateway.config import read_settings
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.secrets import Secret
from mild_gateway.litellm_config import _toml_value, import_litellm

pytest.importorskip("yaml")

SECRET = "sk-do-not-show-me-0123"
GOOD = """\
# as in LiteLLM's own examples
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o-2024
      api_key: os.environ/OPENAI_API_KEY
      organization: org-1
      rpm: 480
      tpm: 100000
      timeout: 30
      stream_timeout: 60
      max_retries: 2
      input_cost_per_token: 2.5e-6
      output_cost_per_token: 1e-5       # YAML 1.1 reads this as text
    model_info:
      id: one
      mode: chat
      max_output_tokens: 16384
      supports_vision: true
  - model_name: llama
    litellm_params:
      model: hosted_vllm/meta/llama-3
      api_base: http://127.0.0.1:8000/v1/
      api_key: none
      max_tokens: 512
      max_parallel_requests: 4
      temperature: 0.2
    model_info:
      input_cost_per_token: 0.0000001
  - model_name: llama
    litellm_params: {model: openai/other, api_base: "http://127.0.0.1:8001/v1"}
  - model_name: eu
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://x.openai.azure.com/
      api_key: os.environ/NOT_SET
  - model_name: "*"
    litellm_params: {model: "openai/*"}
  - model_name: embed
    litellm_params: {model: openai/text-embedding-3-small}
    model_info: {mode: embedding}
  - model_name: local
    litellm_params: {model: ollama/qwen}
litellm_settings:
  drop_params: true
general_settings:
  master_key: sk-master-key-in-plain-text
"""
SAMPLE = """\
model_list:
  - model_name: adder
    litellm_params:
      model: openai/small-2026
      api_base: https://api.example.com/v1
      api_key: os.environ/SMALL_KEY
      organization: org-1
      extra_headers: {x-team: blue}
      rpm: 60
      tpm: 1000
      timeout: 30
      max_tokens: 512
      max_parallel_requests: 8
      temperature: 0.5
    model_info:
      input_cost_per_token: 0.00000015
      output_cost_per_token: 0.0000006
  - model_name: poet
    litellm_params:
      model: gpt-4o-mini
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000004
  - model_name: cook
    litellm_params:
      model: openai/cook
      api_base: http://127.0.0.1:8080/v1
  - model_name: cook
    litellm_params:
      model: openai/cook-2
      api_base: http://127.0.0.1:8081/v1
  - model_name: azure
    litellm_params:
      model: azure/gpt
  - model_name: "any/*"
    litellm_params:
      model: "openai/*"
router_settings:
  routing_strategy: simple-shuffle
"""
# Ten merges of ten merges of ten ...
BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
ENVIRONMENT = {"OPENAI_API_KEY": SECRET}


def toml_of(tmp_path, text, environment=None):
    """The mild.toml of a config.yaml."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    if environment is None:
        environment = ENVIRONMENT
    return import_litellm(file, environment)


def read(tmp_path, text, environment=None):
    """The settings in the mild.toml of a config.yaml."""
    file = tmp_path / "mild.toml"
    file.write_text(toml_of(tmp_path, text, environment))
    if environment is None:
        environment = ENVIRONMENT
    return read_settings(file, environment)


def notes(tmp_path, text, environment=None):
    """What the comments say about what was left out."""
    lines = toml_of(tmp_path, text, environment).splitlines()
    path = str(tmp_path / "config.yaml")
    return [line.removeprefix(f"# - {path}") for line in lines if line.startswith("# - ")]


def refusal(tmp_path, text, environment=None):
    with pytest.raises(DataFileError) as caught:
        toml_of(tmp_path, text, environment)
    message = str(caught.value)
    assert SECRET not in message
    return message.removeprefix(str(tmp_path / "config.yaml"))


def one(params, head="model_list:\n  - model_name: a\n    litellm_params:\n"):
    return head + "".join(f"      {line}\n" for line in params)


def test_endpoints_keys_prices_and_limits_are_carried_over(tmp_path):
    settings = read(tmp_path, GOOD)
    assert [expert.name for expert in settings.experts] == ["gpt-4o", "llama", "local"]
    secret = Secret(SECRET, "the variable OPENAI_API_KEY")
    gpt = Expert(
        "gpt-4o",
        "https://api.openai.com/v1",
        "gpt-4o-2024",
        api_key_env="OPENAI_API_KEY",
        headers={"OpenAI-Organization": "org-1"},
        requests_per_minute=480,
        total_seconds=30,
        price_in=2.5,
        price_out=10,
        max_tokens=16384,
        max_output=16384,
        secret=secret,
    )
    llama = Expert(
        "llama",
        "http://127.0.0.1:8000/v1",
        "meta/llama-3",
        max_tokens=512,
        max_in_flight=4,
        price_in=0.1,
    )
    local = Expert("local", "http://127.0.0.1:11434/v1", "qwen")
    experts = [replace(expert, defined_at="") for expert in settings.experts]
    assert experts == [gpt, llama, local]


def test_every_sample_leads_to_the_same_experts(tmp_path):
    environment = {"SMALL_KEY": "sk-small", "OPENAI_API_KEY": SECRET}
    settings = read(tmp_path, SAMPLE, environment)
    adder = Expert(
        "adder",
        "https://api.example.com/v1",
        "small-2026",
        api_key_env="SMALL_KEY",
        headers={"OpenAI-Organization": "org-1", "x-team": "blue"},
        price_in=0.15,
        price_out=0.6,
        max_tokens=512,
        max_in_flight=8,
        requests_per_minute=60,
        total_seconds=30,
        secret=Secret("sk-small", "a test"),
    )
    poet = Expert(
        "poet",
        "https://api.openai.com/v1",
        "gpt-4o-mini",
        api_key_env="OPENAI_API_KEY",
        price_in=1,
        price_out=4,
        secret=Secret(SECRET, "a test"),
    )
    cook = Expert("cook", "http://127.0.0.1:8080/v1", "cook")
    assert [replace(expert, defined_at="") for expert in settings.experts] == [adder, poet, cook]


def test_what_is_left_out_is_said_in_comments_and_nothing_secret(tmp_path):
    assert "sk-master" not in toml_of(tmp_path, GOOD)
    assert notes(tmp_path, GOOD) == [
        ", line 30: llama appears twice; its first endpoint is used.",
        ", line 32: eu is left out: azure has a protocol of its own: give the address of a "
        "LiteLLM proxy as api_base.",
        ", line 37: * is a pattern for many models and is left out.",
        ", line 39: embed does not answer with text (embedding) and is left out.",
        ", line 44: litellm_settings is left out.",
        ", line 46: master_key is left out; create keys with: mild keys add NAME.",
        ", line 46: general_settings is left out.",
        ": litellm_params.tpm is left out (line 3).",
        ": litellm_params.stream_timeout is left out (line 3).",
        ": litellm_params.max_retries is left out (line 3).",
        ": litellm_params.temperature is left out (line 20).",
    ]


def test_keys_stay_in_variables_that_need_not_be_set(tmp_path):
    text = toml_of(tmp_path, GOOD, {})
    assert 'api_key_env = "OPENAI_API_KEY"' in text
    assert SECRET not in text


def test_a_key_in_the_file_becomes_a_variable_and_is_not_written(tmp_path):
    text = toml_of(tmp_path, one(["model: openai/m", f"api_key: {SECRET}"]))
    assert SECRET not in text
    assert 'api_key_env = "A_API_KEY"' in text
    assert "put it into the variable A_API_KEY" in text


def test_a_secret_header_becomes_the_key_or_is_left_out(tmp_path):
    address = "api_base: http://127.0.0.1:1/v1"
    header = ["extra_headers:", "  x-api-key: os.environ/TEAM_KEY"]
    settings = read(tmp_path, one(["model: openai/m", address, *header]), {"TEAM_KEY": SECRET})
    assert settings.experts[0].sent_headers() == {"x-api-key": SECRET}
    for lines in (
        ["extra_headers:", f"  x-api-key: {SECRET}"],
        ["extra_headers:", f"  Authorization: Bearer {SECRET}"],
        ["api_key: os.environ/OTHER", *header],
    ):
        text = toml_of(tmp_path, one(["model: openai/m", address, *lines]))
        assert SECRET not in text
        assert "is a secret and is left out" in text


def test_a_name_cannot_end_a_comment(tmp_path):
    text = 'model_list:\n  - model_name: "a*\\nport = 1"\n    litellm_params: {model: openai/m}\n'
    text += "  - model_name: b\n    litellm_params: {model: ollama/m}\n"
    assert tomllib.loads(toml_of(tmp_path, text)).keys() == {"experts"}


@given(st.text(), st.text())
def test_every_text_is_written_as_toml_reads_it(key, value):
    written = f"table = {_toml_value({key: value})}"
    try:
        (key + value).encode()
    except UnicodeEncodeError:
        return
    assert tomllib.loads(written) == {"table": {key: value}}


ADDRESS = "api_base: http://127.0.0.1/v1"


@pytest.mark.parametrize(
    ("lines", "line", "key"),
    [
        (["rpm: many"], 5, "rpm must be a number above"),
        (["timeout: -1"], 5, "timeout must be a"),
        (["api_key: os.environ/a-b"], 5, "api_key must name an"),
        (["api_base: os.environ/NONE"], 5, "api_base names an"),
        (["api_base: nowhere"], 5, "api_base must be an"),
        ([ADDRESS, "extra_headers:", '  "a b": x'], 7, "extra_headers.a b must be the name"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, lines, line, key):
    said = refusal(tmp_path, one(["model: openai/m", *lines]))
    assert f", line {line}: model_list.1.litellm_params.{key}" in said


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("api_key: none", ", line 2: model_list.1 must have model_name, and litellm_params with a"),
        ("model: bedrock/m", ", line 1: model_list must name at least one model that can be asked"),
    ],
)
def test_a_list_of_models_must_have_one(tmp_path, params, said):
    assert said in refusal(tmp_path, one([params]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model_list: [", ", line 1: it is not YAML: "),
        ("a: b: c", ", line 1: it is not YAML: mapping values are not allowed here."),
        ("- 1", ": it must have model_list, a list of models; is it a config.yaml of LiteLLM?"),
        ("", ": it must have model_list, a list of models; is it a config.yaml of LiteLLM?"),
        ("model_list: 3", ": it must have model_list, a list of models;"),
        ("model_list: [{model_name: a}, 3]", ": each entry of model_list must be a mapping with"),
        ("model_list: &a [*a]", ": it must have at most 100,000 values."),
        (BOMB, ": it must have at most 100,000 values."),
        ("a: !!python/object:os.system 1", ", line 1: it is not YAML: "),
        ("[" * 5000, ": it is not YAML in UTF-8, or nested too deeply."),
        ("a: \x07", ": it is not YAML in UTF-8, or nested too deeply."),
    ],
)
def test_a_file_that_is_none_of_litellms_is_refused(tmp_path, text, said):
    assert said in refusal(tmp_path, text)


def test_a_providers_own_key_never_goes_to_another_address(tmp_path):
    settings = read(tmp_path, one(["model: openai/m", "api_base: http://127.0.0.1:1/v1"]))
    assert settings.experts[0].secret is None


def test_merge_keys_of_yaml_work(tmp_path):
    text = (
        "base: &base {api_base: 'http://127.0.0.1:1/v1', rpm: 5}\n"
        "model_list:\n  - model_name: a\n    litellm_params: {<<: *base, model: openai/m}\n"
    )
    settings = read(tmp_path, text)
    assert settings.experts[0].requests_per_minute == 5.0
    assert notes(tmp_path, text) == [", line 1: base is left out."]


@given_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path, data):
    lines = GOOD.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "value", "indent"]))
        if kind == "drop":
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "value":
            value = data.draw(
                st.sampled_from(["1", "-1", "x", "true", "[]", "{}", "1e400", ".nan", "~", "? ?"])
            )
            lines[at] = f"{lines[at].split(':')[0]}: {value}"
        else:
            lines[at] = f"  {lines[at]}"
    said = ""
    try:
        said = toml_of(tmp_path, "\n".join(lines))
        tomllib.loads(said)
    except DataFileError as error:
        said = str(error)
    assert SECRET not in said
    assert "sk-master" not in said


def test_what_a_model_can_serve_is_read(tmp_path):
    info = """
    model_info:
      supports_vision: false
      supports_function_calling: true
      supports_response_schema: false
      supports_reasoning: true
      supports_audio_input: true
      max_input_tokens: 128000
      max_output_tokens: "4096"
      cache_read_input_token_cost: 1.25e-6
      cache_creation_input_token_cost: 3.125e-6
      input_cost_per_token: 2.5e-6
"""
    text = one(["model: ollama/qwen"]).rstrip() + info
    settings = read(tmp_path, text)
    (model,) = settings.experts
    assert model.unsupported == ("images", "json_schema")
    assert (model.context, model.max_output, model.max_tokens) == (128_000, 4096, 4096)
    assert (model.price_in, model.price_cached_in, model.price_cache_write) == (2.5, 1.25, 3.125)
    assert notes(tmp_path, text) == []


def test_a_capability_that_is_no_flag_is_named_with_its_line(tmp_path):
    text = one(["model: ollama/qwen"]) + "    model_info: {supports_vision: 5}\n"
    said = refusal(tmp_path, text)
    assert ", line 5: model_list.1.model_info.supports_vision must be true or false" in said


def merges(depth, width):
    lines = ["a0: &a0 {x: 1}"]
    for n in range(1, depth):
        lines.append(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        merges(12, 9),
        "a: &a {<<: *a}",
        "".join(" " * n + "a:\n" for n in range(600)),
        "- " * 5000 + "x",
        "? " * 3000 + "x",
        "# " + "x" * 250_000,
    ],
    ids=["merge bomb", "merges itself", "indents", "lists", "keys", "long"],
)
def test_a_file_that_would_exhaust_the_reader_is_refused(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(DataFileError, match=r"must have at most|nested too deeply"):
        import_litellm(file, {})


@pytest.mark.parametrize("name", ["config.yaml", "config.yml"])
def test_the_file_itself_is_refused_with_the_command_that_imports_it(tmp_path, name):
    file = tmp_path / name
    file.write_text(GOOD)
    with pytest.raises(DataFileError, match=f"mild import-litellm .*{name} > mild.toml") as caught:
        read_settings(file, {})
    assert caught.value.code == "invalid_data_file"


def test_the_command_prints_a_file_that_can_be_checked(mild, tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD)
    done = mild("import-litellm", tmp_path / "config.yaml")
    assert done.code == 0, done.err
    assert list(tomllib.loads(done.out)["experts"]) == ["gpt-4o", "llama", "local"]
    done = mild("import-litellm", tmp_path / "none.yaml")
    assert done.code == 1
    assert "cannot be read" in done.err
