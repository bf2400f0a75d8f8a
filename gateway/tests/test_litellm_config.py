"""LiteLLM's config.yaml is read as it is; what is not used is told, not refused."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st

from mild.errors import DataFileError
from mild_gateway.config import read_settings

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
# Ten merges of ten merges of ten ...
BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
ENVIRONMENT = {"OPENAI_API_KEY": SECRET}


def read(tmp_path, text, environment=None, mode=0o644):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    file.chmod(mode)
    return read_settings(file, ENVIRONMENT if environment is None else environment)


def refusal(tmp_path, text, environment=None):
    with pytest.raises(DataFileError) as caught:
        read(tmp_path, text, environment)
    message = str(caught.value)
    assert SECRET not in message
    return message.removeprefix(str(tmp_path / "config.yaml"))


def one(params, head="model_list:\n  - model_name: a\n    litellm_params:\n"):
    return head + "".join(f"      {line}\n" for line in params)


def test_endpoints_keys_prices_and_limits_are_read(tmp_path):
    settings = read(tmp_path, GOOD)
    assert [expert.name for expert in settings.experts] == ["gpt-4o", "llama", "local"]
    gpt, llama, local = settings.experts
    assert (gpt.base_url, gpt.model) == ("https://api.openai.com/v1", "gpt-4o-2024")
    assert gpt.sent_headers() == {
        "OpenAI-Organization": "org-1",
        "Authorization": f"Bearer {SECRET}",
    }
    assert (gpt.price_in, gpt.price_out) == (2.5, 10.0)
    assert (gpt.requests_per_minute, gpt.first_byte_seconds, gpt.retries) == (480.0, 30.0, 2)
    assert (gpt.max_tokens, gpt.max_output, gpt.vision, gpt.tools) == (16384, 16384, True, None)
    assert gpt.place == f"{tmp_path / 'config.yaml'}, line 3"
    assert (llama.base_url, llama.model) == ("http://127.0.0.1:8000/v1", "meta/llama-3")
    assert (llama.secret, llama.price_in, llama.price_out) == (None, 0.1, None)
    assert (llama.max_tokens, llama.max_in_flight) == (512, 4)
    assert (local.base_url, local.model) == ("http://127.0.0.1:11434/v1", "qwen")
    assert settings.store == str(tmp_path / "mild.sqlite")


def test_what_is_not_used_is_noted_and_nothing_secret(tmp_path):
    notes = [
        note.removeprefix(str(tmp_path / "config.yaml")) for note in read(tmp_path, GOOD).notes
    ]
    assert notes == [
        ", line 30: llama appears twice; its first endpoint is used.",
        ", line 32: eu is left out: azure has a protocol of its own: give the address of a "
        "LiteLLM proxy as api_base.",
        ", line 37: * is a pattern for many models and is left out.",
        ", line 39: embed does not answer with text (embedding) and is left out.",
        ", line 44: litellm_settings is not used.",
        ", line 46: master_key is not read; create keys with: mild keys add NAME.",
        ", line 46: general_settings is not used.",
        ": litellm_params.tpm is not used (line 3).",
        ": litellm_params.stream_timeout is not used (line 3).",
        ": litellm_params.temperature is not used (line 20).",
    ]


def test_a_toml_file_adds_to_it_and_changes_it(tmp_path):
    (tmp_path / "config.yaml").write_text(GOOD)
    file = tmp_path / "mild.toml"
    file.write_text(
        'litellm = "config.yaml"\n[experts.gpt-4o]\nprice_in = 9\nmax_in_flight = 3\n'
        '[experts.extra]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
    )
    settings = read_settings(file, ENVIRONMENT)
    assert [expert.name for expert in settings.experts] == ["gpt-4o", "llama", "local", "extra"]
    gpt = settings.experts[0]
    assert (gpt.price_in, gpt.price_out, gpt.max_in_flight) == (9.0, 10.0, 3)
    assert gpt.secret.value == SECRET
    assert gpt.place == f"{file}, line 2"
    assert len(settings.notes) == 10


ADDRESS = "api_base: http://127.0.0.1/v1"


@pytest.mark.parametrize(
    ("lines", "line", "key"),
    [
        (["rpm: many"], 5, "rpm must be a number above"),
        (["timeout: -1"], 5, "timeout must be a"),
        (["api_key: os.environ/NONE"], 5, "api_key names an"),
        (["api_key: os.environ/a-b"], 5, "api_key must name an"),
        (["api_base: os.environ/NONE"], 5, "api_base names an"),
        ([f"api_key: {SECRET}"], 5, "api_key is written in this"),
        (["api_base: nowhere"], 5, "api_base must be an"),
        (
            [ADDRESS, "extra_headers:", f"  x-api-key: {SECRET}"],
            7,
            "extra_headers.x-api-key is written",
        ),
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
        ("model_list: &a [*a]", ": it must have at most 100,000 values."),
        (BOMB, ": it must have at most 100,000 values."),
        ("a: !!python/object:os.system 1", ", line 1: it is not YAML: "),
        ("[" * 5000, ": it is not YAML in UTF-8, or nested too deeply."),
        ("a: \x07", ": it is not YAML in UTF-8, or nested too deeply."),
    ],
)
def test_a_file_that_is_none_of_litellms_is_refused(tmp_path, text, said):
    assert said in refusal(tmp_path, text)


def test_a_missing_key_of_a_known_provider_is_named(tmp_path):
    message = refusal(tmp_path, one(["model: gpt-4o"]), {})
    assert (
        "litellm_params must have an api_key, or the variable OPENAI_API_KEY must be set" in message
    )


def test_a_key_in_the_file_is_read_where_only_its_owner_can(tmp_path):
    settings = read(tmp_path, one(["model: openai/m", f"api_key: {SECRET}"]), {}, mode=0o600)
    assert settings.experts[0].secret.value == SECRET
    assert SECRET not in repr(settings)


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
    assert settings.notes == (f"{tmp_path / 'config.yaml'}, line 1: base is not used.",)


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
        read(tmp_path, "\n".join(lines))
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
      input_cost_per_token: 2.5e-6
"""
    text = one(["model: ollama/qwen"]).rstrip() + info
    settings = read(tmp_path, text)
    (model,) = settings.experts
    flags = (model.vision, model.tools, model.json_schema, model.reasoning)
    assert flags == (False, True, False, True)
    assert (model.context, model.max_output, model.max_tokens) == (128_000, 4096, 4096)
    assert (model.price_in, model.price_cached_in) == (2.5, 1.25)
    assert settings.notes == ()


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
        read_settings(file, {})
