"""Token counts times prices per token are dollars."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mild.data import read_outcomes
from mild.data.formats.tokens import LITELLM_FILE, TokenPrice, match_price, read_prices
from mild.errors import DataFileError

SAMPLES = Path(__file__).parent / "samples"
DOLLARS = [[100 * 3e-5 + 10 * 6e-5, 100e-6 + 40e-6], [200 * 3e-5 + 10 * 6e-5, np.nan]]


def test_dollars_come_from_a_file_of_prices():
    table = read_outcomes(SAMPLES / "tokens.csv", prices=str(SAMPLES / "prices.json"))
    np.testing.assert_allclose(table.prices, DOLLARS)
    assert "prices are token counts times" in table.layout


def test_llmrouter_has_its_counts_and_its_prices():
    file, prices = SAMPLES / "llmrouter.jsonl", str(SAMPLES / "llmrouter_models.json")
    expected = [
        [104 * 0.1e-6 + 20 * 0.1e-6, 100 * 0.2e-6 + 10 * 0.4e-6],
        [60 * 0.1e-6 + 2 * 0.1e-6, 50 * 0.2e-6 + 1 * 0.4e-6],
    ]
    np.testing.assert_allclose(read_outcomes(file, prices=prices).prices, expected)
    named = read_outcomes(file, prices=prices, tokens="token_num,output_tokens")
    assert named.prices[0, 1] == pytest.approx(110 * 0.2e-6 + 10 * 0.4e-6)
    without = read_outcomes(file)
    assert without.prices is None
    assert "no prices are known for" in without.layout


def test_prices_of_litellm_are_taken_where_they_are_asked_for(tmp_path, monkeypatch):
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('it is not imported')")
    (package / LITELLM_FILE).write_text((SAMPLES / "prices.json").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    assert read_outcomes(SAMPLES / "tokens.csv").prices is None
    named = read_outcomes(SAMPLES / "tokens.csv", prices="litellm")
    np.testing.assert_allclose(named.prices, DOLLARS)


PER_MILLION = {"gpt-4": {"input": 30, "output": 60}, "small": {"input": 1, "output": 2}}


@pytest.mark.parametrize(
    "content",
    [
        PER_MILLION,
        {"models": PER_MILLION},
        {"gpt-4": {"in": 30, "out": 60}, "small": {"prompt": "1", "completion": "2"}},
        {"unit": "dollars per 1k tokens", "models": {
            "gpt-4": {"input": 0.03, "output": 0.06}, "small": {"input": 0.001, "output": 0.002}}},
        {"gpt-4": {"input_cost_per_1k_tokens": 0.03, "output_cost_per_1k_tokens": 0.06},
         "small": {"input_per_million": 1, "output_per_million": 2}},
        [{"model": name, **price} for name, price in PER_MILLION.items()],
    ],
)  # fmt: skip
def test_prices_per_million_tokens_in_the_usual_shapes(tmp_path, content):
    (tmp_path / "p.json").write_text(json.dumps(content))
    table = read_outcomes(SAMPLES / "tokens.csv", prices=str(tmp_path / "p.json"))
    np.testing.assert_allclose(table.prices, DOLLARS)


def test_the_file_states_its_unit():
    table = read_outcomes(SAMPLES / "tokens.csv", prices=str(SAMPLES / "per_million.json"))
    np.testing.assert_allclose(table.prices, DOLLARS)


@pytest.mark.parametrize(
    "content",
    [
        {"gpt-4": {"input": 3e-05, "output": 6e-05}, "small": {"input": 1, "output": 2}},
        {"gpt-4": {"input_cost_per_token": 30, "output_cost_per_token": 60}, "small": {"input": 1}},
        {"unit": "dollars per token", "models": PER_MILLION},
        {"unit": "euros per million tokens", "models": PER_MILLION},
        {"unit": "dollars per page", "models": PER_MILLION},
    ],
)
def test_a_price_in_another_unit_is_refused(tmp_path, content):
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(DataFileError, match="per million tokens") as caught:
        read_outcomes(SAMPLES / "tokens.csv", prices=str(tmp_path / "p.json"))
    assert caught.value.parameter == "prices"


def test_a_misspelt_model_of_a_price_file_is_suggested(tmp_path):
    prices = {"gtp-4": PER_MILLION["gpt-4"], "small": PER_MILLION["small"]}
    (tmp_path / "p.json").write_text(json.dumps(prices))
    with pytest.raises(DataFileError, match="Did you mean 'gtp-4'"):
        read_outcomes(SAMPLES / "tokens.csv", prices=str(tmp_path / "p.json"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.toml", '[[expert]]\nname = "gpt-4"\nprice_in = 30\nprice_out = 60\n'
                   '[[expert]]\nname = "small"\nprice_in = 1\nprice_out = 2\n'),
        ("p.csv", "model,per_million_in,per_million_out\ngpt-4,30,60\nsmall,1,2\n"),
    ],
)  # fmt: skip
def test_prices_are_toml_or_csv_as_well(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    table = read_outcomes(SAMPLES / "tokens.csv", prices=str(tmp_path / name))
    np.testing.assert_allclose(table.prices, DOLLARS)


def test_a_price_per_query_needs_no_counts(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps({"qwen2.5-7b-instruct": {"price_per_query": 0.5},
                                                 "gemma-2-9b-it": {"price_per_query": 0}}))  # fmt: skip
    table = read_outcomes(SAMPLES / "llmrouter_scores.json", experts="qwen*,gemma*")
    assert table.prices is None
    with pytest.raises(DataFileError) as caught:
        read_outcomes(SAMPLES / "llmrouter_scores.json", prices=str(tmp_path / "p.json"))
    assert caught.value.parameter == "prices"
    assert "codegemma-7b" in str(caught.value)


def test_a_model_is_found_without_its_provider_unless_that_is_ambiguous():
    cheap, dear = TokenPrice(1e-6, 1e-6), TokenPrice(2e-6, 2e-6)
    assert match_price("org/Llama-8B", {"llama-8b": cheap}) == cheap
    assert match_price("llama", {"a/llama": cheap, "b/llama": cheap}) == cheap
    assert match_price("other", {"a/llama": cheap}) is None
    with pytest.raises(DataFileError, match="a/llama, b/llama") as caught:
        match_price("llama", {"a/llama": cheap, "b/llama": dear})
    assert caught.value.parameter == "prices"


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"gpt-4": {"price_in": -1}}', '{"gpt-4": {"price_in": "dear"}}']
)
def test_a_file_that_holds_no_prices_is_refused(tmp_path, content):
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(DataFileError) as caught:
        read_prices(str(file))
    assert caught.value.parameter == "prices"


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"prices": "nowhere.json"}, "prices"),
        ({"prices": "litellm"}, "prices"),
        ({"tokens": "in_*"}, "tokens"),
        ({"tokens": "in_*,out_*"}, "tokens"),
    ],
)
def test_the_error_names_what_is_missing(options, parameter, monkeypatch):
    monkeypatch.setattr("mild.data.formats.tokens._installed_prices", lambda: None)
    with pytest.raises(DataFileError) as caught:
        read_outcomes(SAMPLES / "tokens.csv", **options)
    assert caught.value.parameter == parameter


def test_prices_per_token_without_counts_are_refused(tmp_path):
    file = tmp_path / "p.json"
    file.write_text('{"a": {"price_in": 1}}')
    log = tmp_path / "log.csv"
    log.write_text("prompt,correct__a\nx,1\n")
    with pytest.raises(DataFileError) as caught:
        read_outcomes(log, prices=str(file))
    assert caught.value.parameter == "prices"
