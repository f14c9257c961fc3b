"""Small dialogs, and small models of visual dialog."""

from pathlib import Path

import numpy as np
import torch

from pipeline.data.corpus import AnnotatedCaption, Corpus, CorpusImage
from pipeline.data.feature_store import FeatureStore, FeatureWriter
from pipeline.data.prepared import PreparedData, write_prepared
from pipeline.dialog.data.dialog_corpus import Dialogs
from pipeline.dialog.data.dialog_questions import DialogBatch, DialogQuestions
from pipeline.dialog.data.prepared_dialogs import DialogLengths, write_prepared_dialogs
from pipeline.dialog.models.dialog_decoder import DialogDecoder
from pipeline.dialog.models.dialog_encoders import ENCODERS
from pipeline.dialog.models.dialog_lstm import DialogLstm
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.models.transformer import Transformer
from pipeline.vocabulary import Vocabulary

VOCABULARY, REGIONS, REGION, HIDDEN, WORDS, LONGEST = 11, 5, 6, 8, 7, 4


def make_batch(dialogs: int = 3, rounds: int = 4, options: int = 6, seed: int = 0, step: int = 0) -> DialogBatch:
    """Return all rounds of `dialogs` dialogs with answers of up to three words, the first of them empty."""
    rng = torch.Generator().manual_seed(seed)

    def draw_texts(*shape: int, least: int = 1) -> torch.Tensor:
        tokens = torch.randint(1, VOCABULARY + 1, shape, generator=rng)
        lengths = torch.randint(least, shape[-1] + 1, shape[:-1], generator=rng)
        return tokens * (torch.arange(shape[-1]) < lengths.unsqueeze(-1))

    count = dialogs * rounds
    answers = torch.cat([torch.zeros(1, LONGEST, dtype=torch.int64), draw_texts(9, LONGEST - 1).new_zeros(9, LONGEST)])
    answers[1:, : LONGEST - 1] = draw_texts(9, LONGEST - 1)
    candidates = torch.stack([torch.randperm(len(answers), generator=rng)[:options] for _ in range(count)])
    truth = torch.randint(options, (count,), generator=rng)
    regions = torch.randn(dialogs, REGIONS, REGION, generator=rng).repeat_interleave(rounds, 0)
    questions = DialogQuestions(draw_texts(count, 5), draw_texts(dialogs, rounds, 8), candidates, truth, answers)
    captions = answers[candidates.gather(1, truth.unsqueeze(1))[:, 0]]
    images = torch.arange(dialogs).repeat_interleave(rounds)
    mask = torch.ones(count, REGIONS, dtype=torch.bool)
    return DialogBatch(images, regions.mean(1), regions, mask, captions, step=step, questions=questions)


def make_encoder(kind: str = "hciae", dropout: float = 0.0, words: int = WORDS, **options: bool):
    return ENCODERS[kind](words, REGION, HIDDEN, dropout, **options)


def make_generator(
    kind: str = "hciae", decoder: str = "lstm", dropout: float = 0.0, seed: int = 0, **options: bool
) -> DialogDecoder:
    torch.manual_seed(seed)
    if decoder == "lstm":
        return DialogDecoder(
            make_encoder(kind, dropout, **options), DialogLstm(VOCABULARY, HIDDEN, WORDS, dropout, LONGEST)
        )
    inner = Transformer(VOCABULARY, HIDDEN, HIDDEN, 0, 2, 2, dropout, LONGEST)
    return DialogDecoder(make_encoder(kind, dropout, HIDDEN, **options), inner)


def make_discriminator(
    answer: str = "attention", dropout: float = 0.0, seed: int = 1, **options: bool
) -> Discriminator:
    torch.manual_seed(seed)
    return Discriminator(make_encoder("hciae", dropout), VOCABULARY, answer, dropout, **options)


# the words of prepared dialogs; the word "zz" of raw dialogs becomes UNK
DIALOG_WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]


def make_dialogs(images: int = 7, rounds: int = 3, options: int = 5, seed: int = 0) -> Dialogs:
    """Return dialogs of random words: answers of up to four, some equal after clipping, and questions of up to five."""
    rng = np.random.default_rng(seed)

    def draw_text(least: int, most: int) -> tuple[str, ...]:
        return tuple(rng.choice([*DIALOG_WORDS, "zz"], rng.integers(least, most + 1)).tolist())

    answers = [("a", "b", "c", "d"), ("a", "b", "c", "e"), *dict.fromkeys(draw_text(1, 3) for _ in range(12))]
    questions = list(dict.fromkeys(draw_text(1, 5) for _ in range(12)))
    candidates = np.stack([rng.permutation(len(answers))[:options] for _ in range(images * rounds)])
    relevance = rng.integers(0, 3, (images, rounds, options)).astype(np.float32) / 2
    relevance[0, 0] = np.nan
    kinds = rng.choice(["colour", "count"], (images, rounds))
    answer_relevance = {
        (i, r): {" ".join(answers[k]): float(rng.integers(0, 3)) / 2 for k in candidates[i * rounds + r]}
        for i in range(images)
        for r in range(rounds)
    }
    return Dialogs(
        captions=tuple(draw_text(2, 5) for _ in range(images)),
        questions=tuple(questions),
        answers=tuple(answers),
        question=rng.integers(len(questions), size=(images, rounds)).astype(np.int32),
        options=candidates.reshape(images, rounds, options).astype(np.int32),
        truth=rng.integers(options, size=(images, rounds)).astype(np.int32),
        relevance=relevance,
        kinds=kinds,
        refers=None,
        answer_relevance=answer_relevance,
    )


def write_dialog_corpus(folder: Path, dialogs: Dialogs, lengths: DialogLengths) -> tuple[PreparedData, FeatureStore]:
    """Write `dialogs` to `folder` in the prepared form, with images in alternating splits and random features."""
    images = tuple(
        CorpusImage(
            str(100 + n), f"{n}.jpg", ("train", "val", "test")[n % 3], (AnnotatedCaption(" ".join(words), words),)
        )
        for n, words in enumerate(dialogs.captions)
    )
    vocabulary = Vocabulary((*DIALOG_WORDS, "UNK"))
    write_prepared(Corpus("dialogs", images, (), vocabulary=vocabulary), folder, None, lengths.caption)
    write_prepared_dialogs(dialogs, vocabulary, lengths, folder)
    rng, features = np.random.default_rng(1), folder / "features"
    features.mkdir()
    with FeatureWriter(features, len(images), 4, (REGIONS, REGION)) as writer:
        sizes = ((len(images), 4), (len(images), REGIONS, REGION))
        writer.write(np.arange(len(images)), *(rng.normal(size=size) for size in sizes))
    return PreparedData.load(folder), FeatureStore(features)
