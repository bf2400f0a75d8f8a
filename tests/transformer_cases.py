"""Tiny encoders with random weights, their tokenizer, and a task that texts decide."""

from __future__ import annotations

import json
import warnings

import numpy as np

from text_cases import COUNTRIES, make_texts

WORDS = sorted(
    {word for text in make_texts(300) for word in text.lower().replace("?", " ?").split()}
)
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def build_tokenizer():
    """A word-level tokenizer with the special tokens of BERT."""
    import tokenizers

    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return tokenizer


VOCABULARY = len(SPECIAL) + len(WORDS)


def build_config(kind, vocab_size=VOCABULARY):
    """Config of a small DeBERTa-v3 or BERT."""
    import transformers

    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
    }
    if kind == "bert":
        return transformers.BertConfig(**sizes)
    return transformers.DebertaV2Config(
        **sizes,
        relative_attention=True,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
    )


def build_model(folder, kind):
    """Write a model as transformers does: config, weights in safetensors, tokenizer."""
    import torch
    import transformers

    with torch.random.fork_rng(), warnings.catch_warnings():
        # DeBERTa's module is compiled by what torch calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(build_config(kind))
    model.save_pretrained(folder)
    build_tokenizer().save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 64,
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "unk_token": "[UNK]",
        "mask_token": "[MASK]",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


def make_task(count, seed=0):
    """Texts, and costs of three experts: sums, places and code each have one that is right."""
    texts = make_texts(count, seed)
    place = np.array([any(name in text for name in COUNTRIES) for text in texts])
    code = np.array([any(sign in text for sign in ("def", "print", "range")) for text in texts])
    right = np.where(place, 1, np.where(code, 2, 0))
    costs = 1 - np.eye(3)[right]
    return texts, costs
