"""Encoders are found and loaded as they lie on disk and on the hub; the rest is refused in a sentence."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from experiments.llm.transformer.pretrained import find_folder, load_pretrained
from mild.errors import DataFileError
from transformer_cases import build_config

torch = pytest.importorskip("torch", reason="encoders are loaded with it")
transformers = pytest.importorskip("transformers", reason="encoders are loaded with it")


@pytest.fixture
def copied(models, tmp_path):
    return shutil.copytree(models["bert"], tmp_path / "tiny")


def test_what_a_model_needs_is_read_from_its_folder(folder):
    loaded = load_pretrained(str(folder))
    assert (loaded.pad, loaded.longest, loaded.width) == (0, 64, 16)
    assert loaded.pooling == "cls"
    assert "[CLS]" in json.loads(loaded.tokenizer)["model"]["vocab"]


def test_a_sentence_encoder_keeps_its_pooling(copied):
    (copied / "1_Pooling").mkdir()
    (copied / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    assert load_pretrained(str(copied)).pooling == "mean"
    (copied / "1_Pooling/config.json").write_text("{")
    with pytest.raises(DataFileError, match="must be JSON"):
        load_pretrained(str(copied))


def test_the_pooler_that_is_not_used_is_gone(models):
    assert load_pretrained(str(models["bert"])).model.pooler is None


def test_a_model_is_found_in_the_folder_of_models(copied, monkeypatch):
    monkeypatch.setenv("MILD_MODELS", str(copied.parent))
    assert find_folder("someone/tiny") == copied


def test_the_layout_of_deberta_on_the_hub_is_read(models, tmp_path):
    """Weights as ``pytorch_model.bin``, the tokenizer as ``spm.model``."""
    pieces = pytest.importorskip("sentencepiece", reason="DeBERTa's own tokenizer is of this kind")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("what is the sum of two numbers and where does a river lie\n" * 50)
    folder = tmp_path / "hub"
    folder.mkdir()
    pieces.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(folder / "spm"),
        vocab_size=40,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        pad_piece="[PAD]",
        bos_piece="[CLS]",
        eos_piece="[SEP]",
        unk_piece="[UNK]",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "spm.vocab").unlink()
    (folder / "tokenizer_config.json").write_text('{"vocab_type": "spm", "do_lower_case": false}')
    model = transformers.AutoModel.from_config(build_config("deberta", 64))
    model.config.save_pretrained(folder)
    state = {f"deberta.{name}": value for name, value in model.state_dict().items()}
    torch.save({**state, "lm_predictions.bias": torch.zeros(4)}, folder / "pytorch_model.bin")
    loaded = load_pretrained(str(folder))
    assert loaded.pooling == "cls"
    name, value = next(iter(model.state_dict().items()))
    np.testing.assert_array_equal(loaded.model.state_dict()[name].numpy(), value.numpy())
    from mild.features.pretrained import Tokens

    (ids,) = Tokens(loaded.tokenizer, 16, loaded.pad).ids(["what is the sum"])
    assert ids[0] == 1
    assert ids[-1] == 2
    assert len(ids) > 3


def test_weights_that_run_code_are_refused(copied, capfd):
    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    (copied / "model.safetensors").unlink()
    torch.save({"embeddings": Evil()}, copied / "pytorch_model.bin")
    with pytest.raises(DataFileError, match=r"pytorch_model.bin in .* must hold only tensors"):
        load_pretrained(str(copied))
    assert capfd.readouterr().out == ""


def test_weights_of_another_model_are_refused(copied):
    from safetensors.torch import load_file, save_file

    state = load_file(copied / "model.safetensors")
    kept = {name: value for name, value in state.items() if "layer.1" not in name}
    save_file(kept, copied / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataFileError, match=r"\d+ are missing, such as 'encoder.layer.1"):
        load_pretrained(str(copied))


def test_an_unknown_name_is_refused_with_what_would_do():
    with pytest.raises(DataFileError, match=r"found none. With download=True"):
        load_pretrained("no/such-model")


def test_a_folder_without_weights_is_refused(copied):
    (copied / "model.safetensors").unlink()
    with pytest.raises(DataFileError, match="must have weights"):
        load_pretrained(str(copied))


def test_damage_is_one_sentence(copied):
    (copied / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataFileError, match="cannot be loaded") as caught:
        load_pretrained(str(copied))
    assert "\n" not in str(caught.value)


def test_an_encoder_and_decoder_is_refused(copied):
    config = transformers.T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    transformers.AutoModel.from_config(config).save_pretrained(copied)
    with pytest.raises(DataFileError, match="must be an encoder; got an encoder-decoder"):
        load_pretrained(str(copied))


def test_loading_says_nothing(copied, capfd):
    load_pretrained(str(copied))
    said = capfd.readouterr()
    assert said.out == said.err == ""
