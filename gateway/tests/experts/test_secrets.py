"""Secrets come from safe places and are shown nowhere."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import traceback

import pytest

from mild_gateway.experts.secrets import (
    Secret,
    SecretError,
    secret_from_environment,
    secret_from_file,
)

VALUE = "sk-never-shown-0123456789"


def test_no_way_of_showing_a_secret_shows_it(caplog):
    secret = Secret(VALUE, "the variable A")
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("any").warning("%s %r %s", secret, secret, {"key": secret})
    shown = [repr(secret), str(secret), f"{secret}", caplog.text, repr([secret])]
    assert not any(VALUE in text for text in shown)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)
    assert secret.value == VALUE


def test_secrets_are_equal_by_value():
    assert Secret(VALUE, "a") == Secret(VALUE, "b")
    assert Secret(VALUE, "a") != Secret("other", "a")
    assert len({Secret(VALUE, "a"), Secret(VALUE, "b")}) == 1


def test_a_variable_is_stripped_and_named_as_the_source():
    secret = secret_from_environment("A", {"A": f" {VALUE}\n"})
    assert secret.value == VALUE
    assert secret.source == "the variable A"


@pytest.mark.parametrize("value", [None, "", "  ", "a b", "a\nb", "ключ", "a\x00b"])
def test_a_variable_without_a_plain_word_is_refused_unseen(value):
    environment = {} if value is None else {"A": value}
    with pytest.raises(SecretError) as caught:
        secret_from_environment("A", environment)
    if value and value.strip():
        assert value not in str(caught.value)


def write(tmp_path, content, mode):
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_its_owners_alone_is_read(tmp_path, mode):
    secret = secret_from_file(write(tmp_path, f"{VALUE}\n".encode(), mode))
    assert secret.value == VALUE


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_use_is_refused_with_the_remedy(tmp_path, mode):
    with pytest.raises(SecretError, match=rf"mode {mode:04o}.*chmod 600") as caught:
        secret_from_file(write(tmp_path, VALUE.encode(), mode))
    assert VALUE not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"a\nb", b"\xff", b"x" * 20_000])
def test_a_file_that_holds_no_single_key_is_refused(tmp_path, content):
    with pytest.raises(SecretError):
        secret_from_file(write(tmp_path, content, 0o600))


def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pytest.raises(SecretError, match="not a regular file"):
        secret_from_file(pipe)
    with pytest.raises(SecretError):
        secret_from_file(tmp_path)
    with pytest.raises(SecretError, match="cannot be read"):
        secret_from_file(tmp_path / "none")
