"""Where the store is: a file or an address, whose password stays a secret."""

import os

import pytest

from mild.errors import DataFileError
from mild_gateway.config import read_ledger_location, read_settings, read_store
from mild_gateway.config_checks import find_problems
from mild_gateway.database import Address

SECRET = "hush-hush"
URL = f"postgresql://me:{SECRET}@db:5433/mild"
EXPERT = '[experts.a]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n'


@pytest.fixture
def write(tmp_path):
    def write(text, mode=0o600):
        file = tmp_path / "mild.toml"
        file.write_text(text + "\n" + EXPERT)
        file.chmod(mode)
        return file

    return write


def check_found(file, environment=os.environ):
    settings = read_settings(file, environment)
    assert isinstance(settings.store, Address)
    assert settings.store.value == URL
    assert read_store(file, environment) == settings.store
    assert SECRET not in repr(settings)
    return settings


def test_an_address_may_stand_in_the_file_in_a_variable_or_in_a_file(write, tmp_path):
    check_found(write(f'store = "{URL}"'))
    check_found(write('store = "env:STORE"', 0o644), {"STORE": URL})
    words = tmp_path / "words"
    words.write_text(URL + "\n")
    words.chmod(0o600)
    check_found(write('store_file = "words"', 0o644))


def test_the_ledger_is_in_the_same_database_unless_a_file_is_named(write, tmp_path):
    file = write(f'store = "{URL}"')
    settings = read_settings(file)
    assert settings.ledger.path == settings.store
    assert read_ledger_location(file) == settings.store
    assert not [finding for finding in find_problems(settings) if "ledger" in finding.text]
    named = read_settings(write(f'store = "{URL}"\n[ledger]\npath = "l.sqlite"'))
    assert named.ledger.path == tmp_path / "l.sqlite"
    assert any("file on this machine only" in finding.text for finding in find_problems(named))
    without = write(f'store = "{URL}"\n[ledger]\nenabled = false')
    assert read_settings(without).ledger.path is None
    assert read_ledger_location(without) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'store = "postgersql://me:{SECRET}@db/mild"', "line 1: store must be the path of an SQL"),
        (f'store = "postgresql://me:{SECRET}@db:x/mild"', "line 1: store must name a host and a p"),
        (f'store = "postgresql://me:{SECRET}@@db/mild"', "line 1: store must have the form"),
        ('store = "env:NOWHERE"', "line 1: store names an environment variable that is not set"),
        ('store_file = "nowhere"', "line 1: store_file names a file that cannot be read"),
        ('store_file = 5', "line 1: store_file must be text"),
        ('store = ""', "line 1: store must be the path of an SQLite file"),
        ('store = "x"\nstore_file = "y"', "line 2: store_file must not be given together"),
        (f'store = "{URL}"\n[ledger]\npath = "{URL}"', "line 3: ledger.path must be a path"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_never_quoted(write, text, said):
    with pytest.raises(DataFileError) as caught:
        read_settings(write(text), {})
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_password_needs_a_file_that_others_cannot_read(write):
    with pytest.raises(DataFileError) as caught:
        read_settings(write(f'store = "{URL}"', 0o644))
    assert "line 1: store holds a password" in str(caught.value)
    assert "chmod 600" in str(caught.value)
    assert SECRET not in str(caught.value)
    # Without one, anybody may read it.
    assert isinstance(
        read_settings(write('store = "postgresql://me@db/mild"', 0o644)).store, Address
    )


def test_a_secret_in_a_variable_that_is_no_address_is_not_quoted(write):
    with pytest.raises(DataFileError) as caught:
        read_settings(write('store = "env:STORE"'), {"STORE": SECRET})
    assert "store must be the path of an SQLite file, or begin with" in str(caught.value)
    assert SECRET not in str(caught.value)
