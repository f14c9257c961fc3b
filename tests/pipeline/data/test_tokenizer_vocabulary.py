"""Vocabularies of tokenizers: ids have no gaps, and texts of known tokens are encoded and decoded without loss."""

import json

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="tokens need the extra: pip install 'saywhich[hub]'")
transformers = pytest.importorskip("transformers", reason="tokens need the extra: pip install 'saywhich[hub]'")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

from pipeline.data.tokenizer_vocabulary import TokenizerVocabulary, load_vocabulary  # noqa: E402
from pipeline.errors import UserError  # noqa: E402
from pipeline.runtime.files import write_atomically  # noqa: E402

CAPTIONS = ["A red ball, on white.", "the ball is red", "Zwei B\u00e4lle"]
END = "<|endoftext|>"


@pytest.fixture
def folder(tmp_path):
    """Write a byte-level tokenizer such as GPT-2's, which encodes every text and has one token for BOS, EOS and UNK."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(
        CAPTIONS, trainers.BpeTrainer(vocab_size=262, special_tokens=[END], initial_alphabet=alphabet)
    )
    plain.enable_truncation(3)  # as in some published files
    special_tokens = {name: END for name in ("eos_token", "bos_token", "unk_token")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **special_tokens).save_pretrained(tmp_path / "named")
    return tmp_path / "named"


def test_texts_are_encoded_and_decoded_without_unknown_tokens(folder, tmp_path):
    tokens = TokenizerVocabulary.fetch(str(folder), tmp_path / "out", CAPTIONS, 1000)
    assert END not in tokens.words
    assert len(tokens) == len(set(tokens.words)) == len(tokens.numbers)
    assert tokens.unk == -1
    for caption in CAPTIONS:
        ids = tokens.encode(caption.split())
        assert len(ids) > 3
        assert all(0 < number <= len(tokens) for number in ids)
        assert [tokens.words[number - 1] for number in ids] != caption.split()
        assert tokens.decode([*ids, 0, 1, 2]) == caption
    write_atomically(tmp_path / "out" / "vocabulary.json", tokens.dump())
    loaded = load_vocabulary(tmp_path / "out")
    assert loaded == tokens
    assert loaded.encode(CAPTIONS[0].split()) == tokens.encode(CAPTIONS[0].split())


def test_a_tokenizer_whose_numbers_have_gaps_is_read(tmp_path):
    plain = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "ball": 2, "red": 7}, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="[UNK]").save_pretrained(tmp_path / "named")
    tokens = TokenizerVocabulary.fetch(str(tmp_path / "named"), tmp_path / "out", CAPTIONS, 1000)
    assert (tokens.words, tokens.numbers) == (("a", "ball", "red", "[UNK]"), (1, 2, 7, 0))
    write_atomically(tmp_path / "out" / "vocabulary.json", tokens.dump())
    assert load_vocabulary(tmp_path / "out") == tokens


@pytest.mark.parametrize("change", [{"words": ["b", "ball"]}, {"numbers": [5, 6]}, {"numbers": [5, 2**31 - 1]}])
def test_words_that_are_not_the_tokens_of_their_numbers_are_refused(folder, change):
    content = {"words": ["!", '"'], "numbers": [1, 2]}
    write_atomically(folder / "vocabulary.json", json.dumps(content))
    assert load_vocabulary(folder).words == ("!", '"')
    write_atomically(folder / "vocabulary.json", json.dumps(content | change))
    with pytest.raises(UserError, match=r"vocabulary.json: .* is not the token \d+ of tokenizer.json"):
        load_vocabulary(folder)


def test_a_large_vocabulary_is_reduced_to_the_tokens_of_captions(folder, tmp_path):
    reduced = TokenizerVocabulary.fetch(str(folder), tmp_path / "out", CAPTIONS[:1], 100)
    assert reduced.decode(reduced.encode(CAPTIONS[0].split())) == CAPTIONS[0]
    assert len(reduced) < 50
    assert reduced.encode(["Z"]) == []
    assert sorted(reduced.numbers) == list(reduced.numbers)
    with pytest.raises(UserError, match=r"expected at most 1 different tokens in the captions"):
        TokenizerVocabulary.fetch(str(folder), tmp_path / "out", CAPTIONS, 2)
