import numpy as np
import pytest

from mild.exceptions import DataFileError, InvalidInputError, OptionError
from mild.reproduce.llm.inputs import make_inputs, read_vectors

QUERIES = [f"{word} number {i}" for i, word in enumerate(["sum", "poem"] * 20)]
TRAIN, TEST = np.arange(30), np.arange(30, 40)


def test_text_features_are_learned_from_the_training_rows_alone():
    inputs = make_inputs("hashing", QUERIES)
    train, test = inputs.features(TRAIN, TEST)
    assert (len(train), len(test)) == (30, 10)
    others = [*QUERIES[:30], *(["another text altogether"] * 10)]
    again, _ = make_inputs("hashing", others).features(TRAIN, TEST)
    np.testing.assert_array_equal(train, again)
    assert inputs.identity == {"kind": "hashing"}


def test_vectors_are_centred_and_scaled_by_one_number_of_the_training_rows():
    vectors = np.random.default_rng(0).normal(3.0, [1.0, 5.0], size=(40, 2)).astype(np.float32)
    train, test = make_inputs("vectors", QUERIES, vectors, "mine").features(TRAIN, TEST)
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    assert train.var(axis=0).mean() == pytest.approx(1, rel=1e-4)
    ratio = (test - test[0])[1:] / (vectors[TEST] - vectors[TEST][0])[1:]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)


def test_other_vectors_have_another_identity():
    vectors = np.zeros((40, 2), np.float32)
    first = make_inputs("vectors", QUERIES, vectors, "mine").identity
    assert first["model"] == "mine"
    assert (
        make_inputs("vectors", QUERIES, vectors + 1, "mine").identity["sha256"] != first["sha256"]
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "hasing"}, "Did you mean 'hashing'"),
        ({"kind": "vectors"}, "need vectors.*--vectors"),
        ({"kind": "hashing", "model": "m"}, "model must be left out for hashing"),
    ],
)
def test_inputs_that_cannot_be_made_are_one_sentence(options, sentence):
    with pytest.raises((OptionError, InvalidInputError), match=sentence):
        make_inputs(queries=QUERIES, **options)


def test_files_of_vectors_are_checked(tmp_path):
    file = tmp_path / "v.npy"
    np.save(file, np.ones((3, 2), np.float32))
    assert read_vectors(file, 3).shape == (3, 2)
    with pytest.raises(DataFileError, match="one vector per row of the table, 4; got 3"):
        read_vectors(file, 4)
    np.save(file, np.ones(3))
    with pytest.raises(DataFileError, match="must hold vectors"):
        read_vectors(file, 3)
    np.save(file, np.full((3, 2), np.nan))
    with pytest.raises(DataFileError, match="finite"):
        read_vectors(file, 3)
    np.save(file, np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(DataFileError, match=r"must be a \.npy file"):
        read_vectors(file, 1)
    file.write_bytes(b"notes")
    with pytest.raises(DataFileError, match=r"must be a \.npy file"):
        read_vectors(file, 1)
    with pytest.raises(DataFileError, match=r"must be a \.npy file"):
        read_vectors(tmp_path / "none.npy", 1)
