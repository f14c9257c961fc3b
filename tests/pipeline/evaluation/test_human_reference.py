import pytest
import torch

from pipeline.data.corpus import AnnotatedCaption, Corpus, CorpusImage
from pipeline.data.prepared import PreparedData, write_objects, write_prepared
from pipeline.evaluation.human_reference import measure_against_references, measure_human_reference


@pytest.fixture
def prepared_data(tmp_path):
    """Return prepared data of two images, one with three captions and one with one.

    Words that occur twice or more are known: a 1, ball 2, dog 3, red 4, UNK 5. Tokens are cut after four words.
    """
    captions = (("A red dog, a ball.", "a dog", "a red cat"), ("a ball",))
    words = ((("a", "red", "dog", "a", "ball"), ("a", "dog"), ("a", "red", "cat")), (("a", "ball"),))
    images = tuple(
        CorpusImage(str(n), f"{n}.jpg", "train", tuple(map(AnnotatedCaption, texts, lists)))
        for n, (texts, lists) in enumerate(zip(captions, words, strict=True))
    )
    source = tmp_path / "source"
    source.write_text("")
    write_prepared(Corpus("toy", images, (source,)), tmp_path / "out", min_count=1, max_words=4)
    return PreparedData.load(tmp_path / "out")


def test_statistics_of_a_speaker_are_computed_against_human_captions(prepared_data):
    assert sorted(prepared_data.vocabulary.words[:-1]) == ["a", "ball", "dog", "red"]
    texts = ["a red ball", "a red dog ball"]
    tokens = torch.tensor([[*prepared_data.vocabulary.encode(text.split()), 0][:4] for text in texts])
    found = measure_against_references(texts, tokens, prepared_data, prepared_data.rows("train"))
    assert found["reader"] == {"repeated": 0, "content_words": 3 / 5, "colour_words": 1 / 2}
    assert found["chair"] == {"CHAIR_i": 1 / 3, "CHAIR_s": 1 / 2, "objects": 3 / 2}
    assert {name: found["diversity"][name] for name in ("unknown", "unfinished", "words_used")} == {
        "unknown": 0, "unfinished": 1 / 2, "words_used": 4
    }  # fmt: skip


def test_human_captions_are_compared_unclipped_with_the_images_other_captions(prepared_data):
    found = measure_human_reference(prepared_data, prepared_data.rows("train"))
    # red dog ball* | dog | red cat* (*: in no other caption); image 1 has no second caption
    assert found["human_reader"] == {"repeated": 0, "content_words": 4 / 6, "colour_words": 1}
    assert found["human_chair"] == {"CHAIR_i": 2 / 4, "CHAIR_s": 2 / 3, "objects": 4 / 3}
    first = found["human_diversity"]  # a red dog a ball, a ball
    assert (first["words_per_caption"], first["words_used"], first["unfinished"]) == (7 / 2, 4, 1 / 2)


def test_annotated_objects_count_for_generated_and_human_captions(prepared_data):
    write_objects({"0": ["cat", "sports ball"]}, ["0", "1"], prepared_data.folder)
    tokens = torch.ones(2, 4, dtype=torch.int64)
    rows = prepared_data.rows("train")
    found = measure_against_references(["a cat", "a cat"], tokens, prepared_data, rows)
    assert found["chair"] == {"CHAIR_i": 1 / 2, "CHAIR_s": 1 / 2, "objects": 1}
    found = measure_human_reference(prepared_data, rows)
    assert found["human_chair"] == {"CHAIR_i": 0, "CHAIR_s": 0, "objects": 4 / 3}  # dog ball | dog | cat


def test_unknown_words_of_human_captions_are_counted(prepared_data):
    prepared_data.tokens[0, 1] = prepared_data.vocabulary.unk
    found = measure_human_reference(prepared_data, prepared_data.rows("train"))
    assert found["human_diversity"]["unknown"] == 1 / 2


def test_images_with_one_caption_have_no_human_reference(prepared_data):
    found = measure_human_reference(prepared_data, prepared_data.rows("train")[1:])
    assert not {"human_reader", "human_chair"} & set(found)
