"""A trained speaker, its own listener and their eyes, for photos."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.words import Beam, Multinomial, Without
from pipeline.data.corpus import tokenise
from pipeline.errors import UserError
from pipeline.evaluation.judges import ListenerJudge, Spoken, spoken
from pipeline.evaluation.rerank import most_telling
from pipeline.features.extractor import Seen
from pipeline.features.films import open_film
from pipeline.models.decoder import Decoder
from pipeline.models.decoding import decoding
from pipeline.models.listener import Listener
from pipeline.models.unroll import speak
from pipeline.protocols import Channel
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary
from saywhich.eyes import Eyes
from saywhich.photos import Photo, content, loaded, opened_photo
from saywhich.places import Place

AT_ONCE = 32  # photos that the network sees together
BEAM = 5


@dataclass(frozen=True)
class Caption:
    """What was said of one photo; `str` of it is the text.

    `candidates` begin with the chosen one where they were ranked. Among other photos, `rank` is the place at which the
    listener finds this one by the caption, 1 the first of `of` photos, and `margin` by how much its score lies above
    that of the best other one, below it if negative.
    """

    text: str
    candidates: tuple[str, ...] = ()
    rank: int | None = None
    of: int | None = None
    margin: float | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Found:
    """A photo that was found: its place among those that were given, and the listener's score, −1 … 1."""

    index: int
    score: float


@dataclass(frozen=True)
class Sight:
    """What M photos are to a model."""

    pooled: Tensor  # (M, P), what the listener sees
    regions: Tensor  # (M, R, D), what the speaker attends to
    mask: Tensor  # (M, R) bool: which regions there are
    boxes: Tensor | None  # (M, R, 4) as shares of width and height, where regions were detected
    vectors: Tensor  # (M, H) of length 1: the listener's
    contents: tuple[str, ...]  # names of what the network was shown

    def __len__(self) -> int:
        return len(self.contents)


@dataclass(frozen=True)
class Others:
    """What N photos are to a listener, among which others are to be told apart: vectors (N, H), and their names."""

    vectors: Tensor
    contents: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.contents)


@dataclass(frozen=True)
class Model:
    """A speaker, its own listener and their eyes, on the CPU or an accelerator; what it says depends on nothing else.

    Images are paths, images of Pillow, or arrays (H, W, 3) of uint8; of a model of films, paths of films, too:
    an image is one in which nothing moves.
    """

    speaker: Decoder
    listener: Listener
    eyes: Eyes
    vocabulary: Vocabulary
    place: Place
    device: torch.device

    def caption(
        self,
        images: Sequence[Photo],
        *,
        beam: int = BEAM,
        samples: int | None = None,
        among: Sequence[Photo] | None = None,
        seed: int = 0,
    ) -> list[Caption]:
        """A caption of each of M images: the best of a beam, or of `samples` captions drawn at random.

        With `among`, N other images, the beam's captions or the samples are candidates, and the one is taken by which
        the listener finds the image most surely among them; an image of theirs that is the same does not count.
        Without `among` the first sample is the caption. What is drawn of an image depends on it and on `seed`.

        >>> caption = model.caption(["a.jpg"], samples=20, among=["a.jpg", "b.jpg", "c.jpg"])[0]
        >>> 1 <= caption.rank <= caption.of == 3
        True
        """
        sight = self.see(images)
        others = None if among is None else self.others(among)
        return self.say(sight, beam=beam, samples=samples, among=others, seed=seed)

    def score(self, captions: Sequence[str], images: Sequence[Photo]) -> np.ndarray:
        """(N, M) float32: how well each of N captions fits each of M images, by the listener, −1 … 1.

        >>> model.score(["a dog", "two boats"], ["a.jpg", "b.jpg", "c.jpg"]).shape
        (2, 3)
        """
        return (self.hear(captions) @ self.see(images).vectors.T).numpy()

    def find(self, text: str, images: Sequence[Photo], top: int | None = 10) -> list[Found]:
        """The `top` of M images that fit `text` best, the best first; None: all of them.

        >>> found = model.find("two boats", ["a.jpg", "b.jpg", "c.jpg"], top=2)
        >>> len(found), found[0].score >= found[1].score
        (2, True)
        """
        return best(self.hear([text])[0], self.see(images).vectors, top)

    def see(self, images: Sequence[Photo]) -> Sight:
        """What M images are to this model; UserError for the first that cannot be read."""
        parts = []
        for part in loaded(images, self.prepare, AT_ONCE):
            for _, tensor in part:
                if isinstance(tensor, UserError):
                    raise tensor
            parts.append(self.look([tensor for _, tensor in part if isinstance(tensor, Tensor)]))
        return joined(parts) if parts else self._nothing()

    def prepare(self, photo: Photo) -> Tensor:
        """Prepare a photo as the network's input (3, S, S), or the frames (F, 3, S, S) of a film.

        Raises as `opened_photo` does.
        """
        if self.eyes.frames is None or not isinstance(photo, str | Path):
            with opened_photo(photo, self.eyes.bytes_per_pixel) as image:
                return self.eyes.prepare(image)
        try:
            return self.eyes.prepare(open_film(Path(photo), self.eyes.frames, self.eyes.manifest.get("rate")))
        except FileNotFoundError:
            raise UserError(f"{photo}: no such photo") from None

    def others(self, images: Sequence[Photo]) -> Others:
        """N images as those among which others are told apart."""
        seen = self.see(images)
        return Others(seen.vectors, seen.contents)

    def look(self, prepared: Sequence[Tensor]) -> Sight:
        """What M images, as `prepare` makes them, are to this model."""
        seen = self.eyes(prepared)
        mirrored = self.eyes(prepared, mirrored=True) if self.eyes.mirrored else None
        judge = self._judge(seen, mirrored)
        mask = torch.arange(seen.regions.shape[1]) < seen.region_count.unsqueeze(1)
        vectors = judge.look(torch.arange(len(prepared))).cpu()
        return Sight(seen.pooled, seen.regions, mask, seen.boxes, vectors, tuple(map(content, prepared)))

    def hear(self, captions: Sequence[str]) -> Tensor:
        """(N, H) of length 1: what the listener makes of N captions."""
        vocabulary = self.vocabulary
        texts = [text if vocabulary.reads_text else " ".join(tokenise(text)) for text in captions]
        return self._judge().hear(spoken(texts, vocabulary, self.speaker.max_words)).cpu()

    @torch.no_grad()
    def say(
        self,
        sight: Sight,
        *,
        beam: int = BEAM,
        samples: int | None = None,
        among: Others | None = None,
        seed: int = 0,
    ) -> list[Caption]:
        """`caption` of images that were seen already."""
        if min(beam, 1 if samples is None else samples) < 1:
            raise UserError(f"beam {beam}, samples {samples}: give 1 or more")
        if not len(sight):
            return []
        channel: Channel = Beam(beam, 1 if among is None else beam)
        if samples is not None:
            channel = Multinomial(samples, learns=False)
        parts = parts_of(sight, AT_ONCE if samples is None else 1)  # what is drawn depends on no other image
        tokens = torch.cat([self._spoken(part, channel, seed) for part in parts])
        texts = [[self.vocabulary.decode(row) for row in rows] for rows in tokens.tolist()]
        if among is None:
            return [Caption(said[0], tuple(said)) for said in texts]
        flat = Spoken(tokens.flatten(0, 1), [text for said in texts for text in said])
        heard = self._judge().hear(flat).cpu().unflatten(0, tokens.shape[:2])
        same = torch.tensor([[mine == other for other in among.contents] for mine in sight.contents])
        chosen = most_telling(heard, sight.vectors, among.vectors, same.view(len(sight), len(among)))
        captions = []
        for row, (said, which) in enumerate(zip(texts, chosen.best.tolist(), strict=True)):
            candidates = (said[which], *said[:which], *said[which + 1 :])
            rank, margin = int(chosen.ranks[row, which]), float(chosen.margins[row, which])
            of = 1 + int((~same[row]).sum()) if len(among) else 1
            captions.append(Caption(said[which], candidates, rank, of, margin))
        return captions

    def _spoken(self, sight: Sight, channel: Channel, seed: int) -> Tensor:
        """(M, K, T) through `channel`; the word UNK is never said."""
        channel = Without(channel, self.vocabulary.unk) if self.vocabulary.unk >= 0 else channel
        drawn = int(hashlib.sha256(f"{seed} {sight.contents[0]}".encode()).hexdigest()[:15], 16)
        rng = torch.Generator(self.device).manual_seed(drawn)
        speaker = decoding(self.speaker.to(self.device).eval())
        tokens = speak(speaker, batch_of(sight).to(self.device), channel, rng).tokens.cpu()
        return pad(tokens, (0, speaker.max_words - tokens.shape[1])).unflatten(0, (len(sight), -1))

    def _judge(self, seen: Seen | None = None, mirrored: Seen | None = None) -> ListenerJudge:
        def of(these: Seen | None) -> Any:
            return None if these is None else lambda rows: these.pooled[rows]

        return ListenerJudge(self.listener, of(seen), self.device, of(mirrored))

    def _nothing(self) -> Sight:
        """No photo at all."""
        regions = torch.zeros(0, *self.eyes.network.regions_shape)
        empty = torch.zeros(0, self.eyes.network.pooled_size)
        vectors = torch.zeros(0, self.listener.image.out_features)
        return Sight(empty, regions, regions.any(2), None, vectors, ())


def batch_of(sight: Sight, tokens: Tensor | None = None) -> Batch:
    """Photos as a batch, with captions (M, T), if there are any."""
    captions = torch.zeros(len(sight), 1, dtype=torch.int64) if tokens is None else tokens
    return Batch(torch.arange(len(sight)), sight.pooled, sight.regions, sight.mask, captions)


def joined(parts: Sequence[Sight]) -> Sight:
    """Photos that were seen one batch after the other."""
    boxes = [part.boxes for part in parts if part.boxes is not None]
    tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in ("pooled", "regions", "mask")}
    vectors, contents = torch.cat([part.vectors for part in parts]), tuple(c for part in parts for c in part.contents)
    return Sight(**tensors, boxes=torch.cat(boxes) if boxes else None, vectors=vectors, contents=contents)


def best(heard: Tensor, vectors: Tensor, top: int | None) -> list[Found]:
    """The `top` of M images with vectors (M, H) for one text (H,); of equal ones the first comes first."""
    scores = vectors @ heard
    order = scores.argsort(descending=True, stable=True)[:top]
    return [Found(int(index), float(scores[index])) for index in order]


def parts_of(sight: Sight, size: int) -> Iterator[Sight]:
    """Those photos, `size` at once."""
    for first in range(0, len(sight), size):
        some = slice(first, first + size)
        tensors = {name: getattr(sight, name)[some] for name in ("pooled", "regions", "mask", "vectors", "contents")}
        yield Sight(**tensors, boxes=None if sight.boxes is None else sight.boxes[some])
