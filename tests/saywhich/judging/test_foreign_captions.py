"""Captions in scripts that are foreign to a tokenizer, found with small tokenizers of one language and of many."""

import io

import pytest
import sentencepiece
from captions_in_scripts import LATIN, OTHER_SCRIPTS

from pipeline.runtime.hub_loading import import_transformers
from saywhich.judging.foreign_captions import find_foreign_captions, find_foreign_to_hub_tokenizer


def train_tokenizer(sentences, tmp_path, vocab_size=600, **options):
    """Train a tokenizer of transformers on sentences."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences] * 20), model_writer=model, model_type="unigram", vocab_size=vocab_size,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, hard_vocab_limit=False, num_threads=1, **options,
    )  # fmt: skip
    (tmp_path / "spiece.model").write_bytes(model.getvalue())
    return import_transformers().SiglipTokenizer(str(tmp_path / "spiece.model"))


def test_the_rule_by_hand():
    tokens = {"né": ["n", "Ã", "©"], "犬 が": ["犬", "が"], "犬": ["?"], "é é a": ["?", "?", "a"], "é a": ["?", "a"]}
    assert find_foreign_captions(["plain", *tokens], lambda text: tokens[text], "?") == ["né", "犬", "é é a"]


def test_a_tokenizer_with_an_unknown_token(tmp_path):
    tokenizer = train_tokenizer(["a brown dog runs along the beach with a red ball"], tmp_path)
    assert find_foreign_to_hub_tokenizer(["a dog", *OTHER_SCRIPTS], tokenizer) == OTHER_SCRIPTS


@pytest.mark.parametrize("options", [{}, {"byte_fallback": True, "vocab_size": 900}], ids=["unknown", "bytes"])
def test_captions_are_not_foreign_to_a_multilingual_tokenizer(tmp_path, options):
    sentences = [*LATIN, *OTHER_SCRIPTS]
    tokenizer = train_tokenizer(sentences, tmp_path, character_coverage=1.0, **options)
    assert find_foreign_to_hub_tokenizer([*sentences, "犬が走る", "две собаки"], tokenizer) == []
