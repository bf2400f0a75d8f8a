"""Pickles are read without running anything."""

import io
import json
import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data.pickles import read_pickle

ROWS = np.arange(6 * 5, dtype=np.uint8).reshape(6, 5)
CONTENT = {b"labels": [3, 1, 4], b"data": ROWS, b"filenames": [b"a.png", b"b.png"]}


@pytest.fixture
def read(tmp_path):
    """Write bytes to a file and read it."""

    def write_and_read(content):
        file = tmp_path / "batch"
        file.write_bytes(content)
        return read_pickle(file)

    return write_and_read


def test_what_python_2_wrote_is_what_plain_pickle_reads_there(old_pickle):
    # The test's own writer: without this the other tests would prove little.
    found = pickle.loads(old_pickle(CONTENT), encoding="bytes")
    assert found[b"labels"] == CONTENT[b"labels"]
    np.testing.assert_array_equal(found[b"data"], ROWS)


def test_content_is_read_however_it_was_pickled(read, dump):
    found = read(dump(CONTENT))
    assert found["labels"] == [3, 1, 4]
    assert found["filenames"] == [b"a.png", b"b.png"]
    assert found["data"].dtype == np.uint8
    np.testing.assert_array_equal(found["data"], ROWS)


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_both_names_of_numpys_module_are_known(read, old_pickle, module):
    content = old_pickle(CONTENT).replace(b"numpy.core.multiarray", module.encode())
    np.testing.assert_array_equal(read(content)["data"], ROWS)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_stored_column_by_column_are_read_too(read, protocol):
    content = pickle.dumps({"data": np.asfortranarray(ROWS)}, protocol=protocol)
    np.testing.assert_array_equal(read(content)["data"], ROWS)


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
@pytest.mark.parametrize("nested", [False, True])
def test_a_pickle_that_calls_a_system_command_is_refused_and_runs_nothing(
    read, tmp_path, protocol, nested
):
    attack = Calls(os.system, f"touch {tmp_path / 'ran'}")
    content = {b"data": ROWS, b"labels": [1, attack]} if nested else attack
    with pytest.raises(DataFileError, match=r"asks for (posix|nt)\.system, so it was refused"):
        read(pickle.dumps(content, protocol=protocol))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (getattr, (ROWS, "tofile"), "getattr"),
        (eval, ("1 + 1",), "eval"),
        (open, ("file", "w"), "open"),
        (np.load, ("file", None, True), "numpy.load"),
        (bytearray, (b"1",), "bytearray"),
    ],
)
def test_any_other_name_is_refused_and_told(read, function, arguments, named):
    with pytest.raises(DataFileError, match=rf"asks for [\w.]*{named}, so it was refused"):
        read(pickle.dumps({b"data": Calls(function, *arguments)}, protocol=2))


def test_a_builtin_found_through_a_builtin_is_refused(read):
    # getattr(__import__('os'), 'system')('...'), written by hand.
    content = (
        b"\x80\x02c__builtin__\ngetattr\nc__builtin__\n__import__\nU\x02os\x85RU\x06system\x86R"
        b"U\x04true\x85R."
    )
    with pytest.raises(DataFileError, match=r"asks for __builtin__\.getattr"):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x02cos\nsystem\n)\x81.",  # NEWOBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",  # STACK_GLOBAL
    ],
)
def test_every_opcode_that_names_a_thing_is_refused(read, content):
    with pytest.raises(DataFileError, match=r"asks for os\.system"):
        read(content)


@pytest.mark.parametrize("content", [b"P1234\n.", b"\x80\x02U\x041234Q."])
def test_a_persistent_id_is_refused(read, content):
    with pytest.raises(DataFileError, match=r"outside object b?'1234'"):
        read(content)


@pytest.mark.parametrize("codec", ["utf-8", "rot13", "bz2", "latin-1", b"latin1", 7])
def test_no_codec_but_latin1_is_admitted(read, codec):
    import _codecs

    with pytest.raises(DataFileError, match="asks for the codec"):
        read(pickle.dumps({b"data": Calls(_codecs.encode, "text", codec)}, protocol=2))


def test_no_array_but_of_uint8_is_admitted(read):
    for array in (ROWS.astype(np.int64), np.array([[None, "object"]]), np.zeros(3, "u1,u1")):
        with pytest.raises(DataFileError, match=r"arrays of type uint8 \(u1\)"):
            read(pickle.dumps({b"data": array}, protocol=2))


def test_a_kind_of_array_that_is_no_plain_array_is_refused(read):
    masked = np.ma.masked_array(ROWS)
    with pytest.raises(DataFileError, match="asks for"):
        read(pickle.dumps({b"data": masked}, protocol=2))


@pytest.mark.parametrize(
    "call",
    [
        b"cnumpy\nndarray\nK\x05\x85R",  # ndarray(5)
        b"cnumpy\nndarray\n)\x81",  # ndarray.__new__
        b"cnumpy\nndarray\n}U\x01aK\x01sb",  # ndarray.__dict__.update
        b"cnumpy\ndtype\nN}U\x08__call__K\x01s\x86b",  # setattr(dtype, ...)
        b"c_codecs\nencode\nN}U\x09__class__K\x01s\x86b",  # setattr(encode, ...)
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R",
    ],
)
def test_what_stands_for_numpy_can_be_neither_called_otherwise_nor_changed(read, old_pickle, call):
    with pytest.raises(DataFileError, match="damaged"):
        read(b"\x80\x02}U\x04data" + call + b"s.")
    np.testing.assert_array_equal(read(old_pickle(CONTENT))["data"], ROWS)


def test_an_array_without_content_is_refused(read):
    call = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    with pytest.raises(DataFileError, match="without content"):
        read(b"\x80\x02}U\x04data" + call + b"s.")


def test_every_shorter_piece_of_a_pickle_is_refused(read, dump):
    content = dump(CONTENT)
    for length in range(len(content)):
        with pytest.raises(DataFileError):
            read(content[:length])


def test_damage_anywhere_is_an_error_of_ours_or_no_error(read, dump):
    rng = random.Random(0)
    sound = dump(CONTENT)
    refused = 0
    for _ in range(300):
        content = bytearray(sound)
        for _ in range(rng.randint(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        try:
            assert isinstance(read(bytes(content)), dict)
        except DataFileError:
            refused += 1
    assert refused > 100


def test_a_size_that_the_bytes_do_not_fill_is_refused(read, old_pickle):
    content = old_pickle(CONTENT).replace(b"J\x06\0\0\0J\x05", b"J\x06\0\0\0J\x09")
    with pytest.raises(DataFileError, match=r"damaged.*reshape"):
        read(content)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1, 2], "must hold a dictionary; it holds a list"),
        (ROWS, "must hold a dictionary; it holds an array"),
        ({1: 2}, "text for keys"),
    ],
)
def test_anything_but_a_dictionary_with_text_for_keys_is_refused(read, value, said):
    with pytest.raises(DataFileError, match=said):
        read(pickle.dumps(value, protocol=2))


def test_a_folder_is_not_read(tmp_path):
    with pytest.raises(DataFileError, match="cannot be read"):
        read_pickle(tmp_path)


def test_a_pickle_that_wants_all_memory_is_refused(read):
    # A place in the memo far beyond what was ever stored, and a text longer than the file.
    assert read(b"\x80\x02}r\xff\xff\xff\xff.") == {}
    with pytest.raises(DataFileError):
        read(b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc.")


def doubled(kind, depth=60):
    """Opcodes of a list or tuple that holds the one before twice, and so on: 2^depth in the end."""
    if kind is tuple:
        return b")" + b"".join(b"q%ch%c\x86" % (k, k) for k in range(depth))
    return b"]" + b"".join(b"q%c0](h%ch%ce" % (k, k, k) for k in range(depth))


LISTS, TUPLES = doubled(list), doubled(tuple)
EMPTY_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
BOMBS = {
    "type": (b"cnumpy\ndtype\n" + LISTS + b"K\x00K\x01\x87R.", "(u1); it holds a list"),
    "codec": (b"c_codecs\nencode\nU\x01a" + LISTS + b"\x86R.", "asks for the codec a list"),
    "text": (b"c_codecs\nencode\n" + LISTS + b"X\x06\0\0\0latin1\x86R.", "asks for the codec"),
    "id": (LISTS + b"Q.", "asks for the outside object a list"),
    "key": (b"}" + TUPLES + b"K\x01s.", "text for keys; a key is a tuple"),
    "keys": (b"}(" + TUPLES + b"K\x01u.", "text for keys; a key is a tuple"),
    "marked": (b"(" + TUPLES + b"K\x01d.", "text for keys; a key is a tuple"),
    "frozenset": (b"(" + TUPLES + b"\x91.", "it holds a set"),
    "set": (b"\x8f(" + TUPLES + b"\x90.", "it holds a set"),
    "value": (b"}U\x06labels" + LISTS + b"s.", "'labels' is a list with a list"),
    "tuple": (b"}U\x06labels" + TUPLES + b"s.", "'labels' is a tuple"),
    "state": (EMPTY_ARRAY + LISTS + b"b.", "damaged"),
    "all": (LISTS + b".", "must hold a dictionary; it holds a list"),
}


def test_the_bombs_are_what_they_are_said_to_be():
    assert pickle.loads(b"\x80\x02" + doubled(list, 2) + b".") == [[[], []], [[], []]]
    assert pickle.loads(b"\x80\x02" + doubled(tuple, 2) + b".") == (((), ()), ((), ()))


READ_ALL = """
import json, sys
from pathlib import Path
from mild.exceptions import DataFileError
from mild.reproduce.data.pickles import read_pickle
said = {}
for path in Path(sys.argv[1]).iterdir():
    try:
        read_pickle(path)
    except DataFileError as error:
        said[path.name] = str(error)
print(json.dumps(said))
"""


def test_a_few_bytes_that_stand_for_endless_lists_are_refused_at_once(tmp_path):
    for name, (content, _) in BOMBS.items():
        (tmp_path / name).write_bytes(b"\x80\x04" + content)
        assert len(content) < 700
    # In a process of its own: what hangs in C cannot be stopped here.
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said.keys() == BOMBS.keys()
    for name, (_, reason) in BOMBS.items():
        assert reason in said[name]
        assert len(said[name]) < 250


def test_plain_pickle_would_have_run_the_attack(tmp_path):
    # What the refusals above are worth: the same bytes do run elsewhere.
    made = tmp_path / "ran"
    content = pickle.dumps(Calls(os.mkdir, str(made)), protocol=2)
    pickle.load(io.BytesIO(content))
    assert made.exists()
