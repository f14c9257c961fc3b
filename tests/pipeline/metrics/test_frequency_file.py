"""Document frequencies in the pickles of self-critical.pytorch's prepro_ngrams.py, from Python 2 and 3."""

import builtins
import os
import pickle
import struct
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from pycocoevalcap.cider.cider_scorer import CiderScorer

from pipeline.errors import UserError
from pipeline.metrics.cider import MAX_ID, CiderD, compute_document_frequencies, pack_ngrams
from pipeline.metrics.frequency_file import read_document_frequencies
from pipeline.vocabulary import Vocabulary

CUT = 6
VOCABULARY = Vocabulary((*(f"w{i}" for i in range(1, 30)), "café", "UNK"))


def draw_captions(images: int, seed: int = 0) -> list[list[list[int]]]:
    """Return five captions of 1 to 8 words for each image, with frequent and rare words."""
    rng = np.random.default_rng(seed)
    words = len(VOCABULARY)
    return [[np.minimum(rng.zipf(1.5, rng.integers(1, 9)), words).tolist() for _ in range(5)] for _ in range(images)]


def count_ngrams(images: list[list[list[int]]], name=str, end="0") -> defaultdict[tuple[str, ...], float]:
    """Count the images of each n-gram in whole captions that end in `end`."""
    frequencies = defaultdict(float)
    for image in images:
        texts = [[*map(name, caption), end] for caption in image]
        for ngram in {tuple(text[i : i + n]) for text in texts for n in range(1, 5) for i in range(len(text) - n + 1)}:
            frequencies[ngram] += 1
    return frequencies


def clip_captions(images: list[list[list[int]]]) -> list[list[list[int]]]:
    return [[caption[:CUT] for caption in image] for image in images]


def dump_python_2(frequencies, ref_len: int) -> bytes:
    """Return a pickle of Python 2's protocol 2: texts are bytes, and the module of builtins is __builtin__."""

    def encode_text(word: str) -> bytes:
        return b"U" + bytes([len(word)]) + word.encode("latin-1")  # SHORT_BINSTRING

    ends = {1: b"\x85", 2: b"\x86", 3: b"\x87"}
    pairs = b"".join(
        (b"" if len(ngram) < 4 else b"(") + b"".join(map(encode_text, ngram)) + ends.get(len(ngram), b"t")  # a tuple
        + b"G" + struct.pack(">d", count)  # BINFLOAT
        for ngram, count in frequencies.items()
    )  # fmt: skip
    mapping = b"ccollections\ndefaultdict\nc__builtin__\nfloat\n\x85R(" + pairs + b"u"
    return (
        b"\x80\x02}("
        + encode_text("document_frequency")
        + mapping
        + encode_text("ref_len")
        + b"J"
        + struct.pack("<i", ref_len)
        + b"u."
    )


def dump_python_2_text(frequencies, ref_len: int) -> bytes:
    """Return a pickle of protocol 0, the default of Python 2's cPickle.dump."""
    lines = b"(dS'document_frequency'\nccollections\ndefaultdict\n(c__builtin__\nfloat\ntR"
    for ngram, count in frequencies.items():
        lines += b"(" + b"".join(b"S'%s'\n" % word.encode() for word in ngram) + b"tF%r\ns" % count
    return lines + b"sS'ref_len'\nI%d\ns." % ref_len


def make_python_3_dump(protocol):
    return lambda frequencies, ref_len: pickle.dumps({"document_frequency": frequencies, "ref_len": ref_len}, protocol)


DUMPS = {"Python 2": dump_python_2, "Python 2, protocol 0": dump_python_2_text} | {
    f"Python 3, protocol {protocol}": make_python_3_dump(protocol) for protocol in (2, 3, 4, 5)
}


@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_the_counts_are_those_of_the_file(tmp_path, dump):
    images = draw_captions(20)
    frequencies = count_ngrams(images)
    (tmp_path / "idxs.p").write_bytes(dump(frequencies, 20))
    keys, counts = read_document_frequencies(tmp_path / "idxs.p", VOCABULARY, clip_captions(images))
    assert (keys.dtype, counts.dtype) == (np.int64, np.int32)
    assert (np.diff(keys) > 0).all()
    expected = {int(pack_ngrams(np.array([ngram], int))[0]): count for ngram, count in frequencies.items()}
    assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == expected


def test_counts_over_captions_that_are_not_cut_are_the_projects_own(tmp_path):
    images = clip_captions(draw_captions(20))
    (tmp_path / "idxs.p").write_bytes(dump_python_2(count_ngrams(images), 20))
    result = read_document_frequencies(tmp_path / "idxs.p", VOCABULARY, images)
    for found, own in zip(result, compute_document_frequencies(images, max_words=CUT + 1), strict=True):
        np.testing.assert_array_equal(found, own)


def test_files_of_words_are_read_like_files_of_ids(tmp_path):
    images = draw_captions(20)
    get_word = lambda word: VOCABULARY.words[word - 1]  # noqa: E731
    (tmp_path / "idxs.p").write_bytes(dump_python_2(count_ngrams(images), 20))
    (tmp_path / "words.p").write_bytes(dump_python_2(count_ngrams(images, get_word, "<eos>"), 20))
    assert b"caf\xe9" in (tmp_path / "words.p").read_bytes()
    results = [
        read_document_frequencies(tmp_path / f"{n}.p", VOCABULARY, clip_captions(images)) for n in ("idxs", "words")
    ]
    np.testing.assert_array_equal(results[0], results[1])


def test_cider_is_that_of_the_published_scorer_with_the_same_file(tmp_path):
    images = draw_captions(20)
    references = clip_captions(images)
    frequencies = count_ngrams(images)
    (tmp_path / "idxs.p").write_bytes(dump_python_2(frequencies, 20))
    keys, counts = read_document_frequencies(tmp_path / "idxs.p", VOCABULARY, references)
    texts = [caption[0] for caption in clip_captions(draw_captions(20, seed=1))]

    def join_ids(caption):
        return " ".join(map(str, [*caption, 0] if len(caption) < CUT else caption))

    scorer = CiderScorer()
    for caption, human in zip(texts, references, strict=True):
        scorer += (join_ids(caption), [join_ids(text) for text in human])
    scorer.document_frequency = defaultdict(float, frequencies)
    expected = np.array(scorer.compute_cider())  # the scorer takes log N from its 20 references
    tokens = torch.tensor([caption + [0] * (CUT - len(caption)) for caption in texts])
    cider = CiderD.build(references, keys, counts, 20, max_words=CUT, dtype=torch.float64)
    np.testing.assert_allclose(cider(tokens, torch.arange(20)).numpy(), expected, rtol=1e-10)
    assert expected.max() > 1


class CallPickle:
    """An object whose pickle calls `function`."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def make_malicious_contents(folder: Path) -> dict[str, object]:
    touch = f"touch {folder / 'done'}"
    command = f"__import__('os').system({touch!r})"
    nested = {"document_frequency": defaultdict(float, {("1",): CallPickle(os.system, touch)}), "ref_len": 1}
    return {
        f"{os.system.__module__}.system": CallPickle(os.system, touch),
        "eval": CallPickle(builtins.eval, command),
        "exec": CallPickle(builtins.exec, command),
        "getattr": CallPickle(builtins.getattr, CallPickle(builtins.__import__, "os"), "system"),
        "system": nested,
        "OrderedDict": {"document_frequency": OrderedDict({("1",): 1.0}), "ref_len": 1},
        "scalar": {"document_frequency": {("1",): 1.0}, "ref_len": np.float64(1)},
    }


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("name", make_malicious_contents(Path()))
def test_a_pickle_that_names_another_type_is_refused_and_not_executed(tmp_path, name, protocol):
    (content,) = (value for key, value in make_malicious_contents(tmp_path).items() if key == name)
    (tmp_path / "idxs.p").write_bytes(pickle.dumps(content, protocol))
    function = name.rpartition(".")[2]
    with pytest.raises(UserError, match=rf"names \S+\.{function}, which no file of document frequencies needs"):
        read_document_frequencies(tmp_path / "idxs.p", VOCABULARY, [[[1]]])
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8c\x08builtins\x8c\x05float\x8c\x00\x93.",  # no name
        b"\x80\x04\x8c\x08builtins\x8c\x14float.__subclasses__\x93)R.",  # a name with a dot
        b"c__builtin__\nfloat\n(S'__init__'\nI1\ndb.",  # BUILD: sets attributes of a type
        b"Pos.system\n.",  # a persistent id
        b"\x82\x01.",  # a registered extension
        b"\x80\x02}",
        b"",
        b"not a pickle",
        b"\x80\x02" + b"(" * 100_000 + b".",
    ],
)
def test_another_pickle_is_reported(tmp_path, content):
    (tmp_path / "idxs.p").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_document_frequencies(tmp_path / "idxs.p", VOCABULARY, [[[1]]])
    assert str(caught.value).startswith(f"{tmp_path / 'idxs.p'}: ")
    assert "\n" not in caught.value.args[0]
    assert not isinstance(getattr(float, "__init__", None), int)


def test_another_type_in_a_right_pickle_is_reported(tmp_path):
    def catch_error(content: object) -> str:
        (tmp_path / "idxs.p").write_bytes(pickle.dumps(content))
        with pytest.raises(UserError) as caught:
            read_document_frequencies(tmp_path / "idxs.p", VOCABULARY, [[[1]]])
        return str(caught.value)

    assert "a dict with document_frequency and ref_len" in catch_error([1])
    assert "no mapping of n-grams" in catch_error({"document_frequency": {}, "ref_len": 1})
    assert "has ref_len 0.5" in catch_error({"document_frequency": {("1",): 1.0}, "ref_len": 0.5})
    assert "has ref_len x" in catch_error({"document_frequency": {("1",): 1.0}, "ref_len": "x"})
    assert "has ref_len nan" in catch_error({"document_frequency": {("1",): 1.0}, "ref_len": float("nan")})
    assert "has ref_len inf" in catch_error({"document_frequency": {("1",): 1.0}, "ref_len": float("inf")})
    for key in ("1", (), (1,), ("1",) * 5, ("1", ("2",))):
        assert "must be a tuple of 1 to 4 words" in catch_error({"document_frequency": {key: 1.0}, "ref_len": 1})
    for count, pattern in (
        ("1", "counts 1 for"),
        (True, "counts True for"),
        (0.5, "not an integer"),
        (2.0, "from 2 to 2, but"),
    ):
        assert pattern in catch_error({"document_frequency": {("1",): count}, "ref_len": 1})
    assert "not an integer" in catch_error({"document_frequency": {("1",): 1.0, ("2",): float("nan")}, "ref_len": 1})
    # Python converts 10**5000 neither to text nor to float64
    assert "has ref_len of type int, which" in catch_error({"document_frequency": {("1",): 1.0}, "ref_len": 10**5000})
    assert "counts of type int for ('1',), which" in catch_error(
        {"document_frequency": {("1",): 10**5000}, "ref_len": 1}
    )
    assert "has the key of type tuple, which" in catch_error({"document_frequency": {(10**5000,): 1}, "ref_len": 1})
    assert "counts 1000" in catch_error({"document_frequency": {("1",): 10**400}, "ref_len": 1})
    assert len(catch_error({"document_frequency": {("1" * 10_000,): 1.0}, "ref_len": 1})) < 400
    with pytest.raises(UserError, match="the file of document frequencies is missing"):
        read_document_frequencies(tmp_path / "nowhere.p", VOCABULARY, [[[1]]])


def test_ids_that_a_key_cannot_hold_are_refused(tmp_path):
    vocabulary = Vocabulary((*(f"w{i}" for i in range(MAX_ID)), "UNK"))
    for last in (MAX_ID, MAX_ID + 1):
        content = {"document_frequency": {("1",): 1.0, (str(last),): 1.0, ("1", str(last)): 1.0}, "ref_len": 1}
        (tmp_path / "idxs.p").write_bytes(pickle.dumps(content))
        if last == MAX_ID:
            assert len(read_document_frequencies(tmp_path / "idxs.p", vocabulary, [[[1, last]]])[0]) == 3
    with pytest.raises(UserError, match="holds the id 32768, but CIDEr takes ids up to 32,767"):
        read_document_frequencies(tmp_path / "idxs.p", vocabulary, [[[1, last]]])


def test_a_file_of_other_images_words_or_captions_is_refused(tmp_path):
    images = draw_captions(200)

    def catch_error(frequencies, ref_len=200, vocabulary=VOCABULARY) -> str:
        (tmp_path / "idxs.p").write_bytes(dump_python_2(frequencies, ref_len))
        with pytest.raises(UserError) as caught:
            read_document_frequencies(tmp_path / "idxs.p", vocabulary, clip_captions(images))
        return str(caught.value)

    assert "was counted over 201 images, but the training split has 200" in catch_error(count_ngrams(images), 201)
    words = Vocabulary((*VOCABULARY.words[:20], "UNK"))
    assert "none of the vocabulary's 21 words" in catch_error(count_ngrams(images), vocabulary=words)
    assert "holds 'zebra', which is none" in catch_error(count_ngrams(images, lambda word: "zebra", "<eos>"))
    order = np.random.default_rng(0).permutation(len(VOCABULARY)) + 1
    shuffled = catch_error(count_ngrams(images, lambda word: str(order[word - 1])))
    assert "use the file of the same vocabulary and captions" in shuffled
    assert "counts word " in shuffled
    swapped = catch_error(count_ngrams(images, lambda word: str({1: 2, 2: 1}.get(word, word))))  # two words of 31
    assert "counts word 1, 'w1', in" in swapped
    message = catch_error(count_ngrams(draw_captions(200, seed=5)))
    assert "words are counted too low" in message
