"""CIDEr-D on word ids, as a reward: whole batches at once, on the device where the captions are.

Source: Vedantam, Zitnick, Parikh, "CIDEr: Consensus-based Image Description Evaluation" (2015), the D variant, as
pycocoevalcap computes it.

An n-gram (n = 1 … 4) is one int64: its order minus one from bit 61 up, then 15 bits a word. A flag in bit 60 marks a
place where no n-gram begins; such keys stay with their order when a row is sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError

ORDERS = 4
ID_BITS = 15
MAX_ID = (1 << ID_BITS) - 1
_ORDER_BIT = 61
_ABSENT = 1 << 60
_PADDING = torch.iinfo(torch.int32).max
_IMAGES_AT_ONCE = 4096

Captions = Sequence[Sequence[Sequence[int]]]  # images → captions → ids of words, without EOS


def document_frequencies(captions: Captions, *, max_words: int = 16, eos: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """In how many images each n-gram of the captions occurs: what CIDEr's idf is made of.

    `captions` holds, an image, its captions as ids 1 … 32767. Captions are clipped to `max_words`; with `eos`, those
    that are shorter end in the word 0. What is counted is therefore what a speaker can say; files of document
    frequencies published elsewhere are counted over unclipped captions and differ in the n-grams of long captions.
    Returns sorted keys (K,) int64 and counts (K,) int32. Raises UserError for an id out of range.
    """
    return _count(*_padded(captions, max_words), eos)


def pack(ngrams: np.ndarray) -> np.ndarray:
    """Keys (K,) int64, as `document_frequencies` has them, of n-grams (K, n) of ids up to 32767."""
    keys = np.full(len(ngrams), ngrams.shape[1] - 1, np.int64) << _ORDER_BIT
    for place, words in enumerate(reversed(np.asarray(ngrams, np.int64).T)):
        keys |= words << place * ID_BITS
    return keys


@dataclass(frozen=True)
class CiderD:
    """CIDEr-D of captions against the references of their images, ×10, equal to pycocoevalcap's on the same tokens.

    Made by `build`. M images, at most R references each, K n-grams, E pairs of an image and an n-gram it holds.
    """

    table: Tensor  # (K+1,) int64: sorted keys, then one that is greater than all
    idf: Tensor  # (K+1,): log N − log max(1, df)
    order_starts: Tensor  # (3,) int32: where bigrams, trigrams and 4-grams begin in the table
    starts: Tensor  # (M,) int64: where the n-grams of an image begin in `ids` and `tf`
    sizes: Tensor  # (M,) int64: how many they are
    ids: Tensor  # (E,) int32: places in the table, ascending within an image
    tf: Tensor  # (E, R) uint8: how often each reference says the n-gram
    norms: Tensor  # (M, 4, R): length of each reference's tf-idf vector, an order
    bigrams: Tensor  # (M, R): bigrams in each reference
    references: Tensor  # (M,): references an image
    widest: int  # the greatest of `sizes`
    log_images: float  # log N
    sigma: float
    eos: bool
    frequencies: Literal["train", "batch"]

    @classmethod
    def build(
        cls,
        references: Captions,
        keys: np.ndarray,
        counts: np.ndarray,
        images: int,
        *,
        max_words: int = 16,
        eos: bool = True,
        sigma: float = 6.0,
        frequencies: Literal["train", "batch"] = "train",
        dtype: torch.dtype = torch.float32,
    ) -> CiderD:
        """Index the references of all images, on the CPU.

        `references` holds, an image, its captions as ids; `keys` and `counts` come from `document_frequencies` over
        `images` (N) images, usually those of the training split. An n-gram without an entry has df 0. References are
        clipped to `max_words` and, with `eos`, end in the word 0 where they are shorter. `frequencies="batch"` takes N
        and df from the rows of each call instead (each row a document, as pycocoevalcap called on the batch would, and
        as the published PSST code does); `keys` and `counts` are then not used.
        Raises UserError for an image without references, an id out of range, or counts that `images` cannot give.
        """
        tokens, amounts = _padded(references, max_words)
        if not tokens.any():
            raise UserError("references: no words in any of them; CIDEr needs some")
        if not amounts.all():
            raise UserError(f"references: image row {int(np.argmin(amounts))} has none; CIDEr needs one for each image")
        if images < 1 or len(keys) != len(counts) or (len(counts) and int(counts.max()) > images):
            raise UserError(
                f"document frequencies: {len(keys)} n-grams with {len(counts)} counts of at most "
                f"{max(counts, default=0)} do not come from {images} images; prepare them again from the same captions"
            )
        table, idf = _table(np.asarray(keys, np.int64), counts, images, _count(tokens, amounts, eos)[0])
        order_starts = np.searchsorted(table, np.arange(1, ORDERS) << _ORDER_BIT)
        parts = [
            _index(tokens[low:high], amounts[low:high], table, idf, order_starts, eos)
            for low, high in _chunks(len(tokens))
        ]
        sizes, ids, tf, norms = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(
            table=torch.from_numpy(table),
            idf=torch.from_numpy(idf).to(dtype),
            order_starts=torch.from_numpy(order_starts.astype(np.int32)),
            starts=torch.from_numpy(np.cumsum(sizes) - sizes),
            sizes=torch.from_numpy(sizes),
            ids=torch.from_numpy(ids),
            tf=torch.from_numpy(tf),
            norms=torch.from_numpy(norms).to(dtype),
            bigrams=(_lengths(tokens, eos) - 1).clamp_(min=0).to(dtype),
            references=torch.from_numpy(amounts).to(dtype),
            widest=int(sizes.max(initial=1)),
            log_images=float(np.log(images)),
            sigma=sigma,
            eos=eos,
            frequencies=frequencies,
        )

    def to(self, device: torch.device | str) -> CiderD:
        """The same index on `device`."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})

    def __call__(self, tokens: Tensor, images: Tensor) -> Tensor:
        """Score (N,) of captions `tokens` (N, T) int64, 0 from where each ended, of `images` (N,) int64, rows of M.

        With `eos`, a caption that ended before T has the EOS as its last word; one of T words has none. Nothing is
        read back from the device; ids above 32767 are therefore looked for on the CPU only, where they raise UserError.
        """
        if tokens.device.type == "cpu" and tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) <= MAX_ID:
            raise UserError(f"captions: an id lies outside 0 … {MAX_ID}; CIDEr packs {ID_BITS} bits a word")
        orders = _order_sizes(tokens.shape[1])
        keys = _ngrams(tokens, self.eos).sort(dim=1).values
        first = torch.ones_like(keys, dtype=torch.bool)  # where an n-gram stands for all its repetitions
        torch.ne(keys[:, 1:], keys[:, :-1], out=first[:, 1:])
        first &= (keys & _ABSENT) == 0
        places = torch.arange(keys.shape[1], device=keys.device)
        said = (torch.searchsorted(keys, keys, right=True) - places) * first  # term frequency, at the first place only

        found = torch.searchsorted(self.table, keys)
        known = self.table[found] == keys
        ids = torch.where(known, found, -1).int()
        starts = self.starts[images, None]
        own = self._own(starts, self.sizes[images, None])
        place = torch.searchsorted(own, ids).clamp_(max=self.widest - 1)
        hit = own.gather(1, place) == ids
        tf = self.tf[(starts + place).clamp_(max=len(self.ids) - 1)].to(self.idf.dtype)

        if self.frequencies == "train":
            idf = torch.where(known, self.idf[found], self.log_images)
            norms = self.norms[images]
        else:
            idf, norms = self._of_batch(own, ids, starts)
        said = said.to(idf.dtype)
        weight = (idf * idf * hit)[:, :, None]
        dot = _sum_by_order(torch.minimum(tf, said[:, :, None]) * tf * weight, orders)  # (N, 4, R)
        norm = _sum_by_order((said * idf).square()[:, :, None], orders).sqrt()  # (N, 4, 1)
        length = norm * norms
        cosine = (dot / torch.where(length > 0, length, 1)).mean(dim=1)
        bigrams = (_lengths(tokens, self.eos) - 1).clamp_(min=0)
        apart = bigrams[:, None] - self.bigrams[images]
        penalty = torch.exp(-apart.square() / (2 * self.sigma**2))
        return 10 * (cosine * penalty).sum(dim=1) / self.references[images]

    def _own(self, starts: Tensor, sizes: Tensor) -> Tensor:
        """(N, widest) int32: the ids of each row's image, ascending, then padding greater than all."""
        offsets = torch.arange(self.widest, device=starts.device)
        ids = self.ids[(starts + offsets).clamp_(max=len(self.ids) - 1)]
        return torch.where(offsets < sizes, ids, _PADDING)

    def _of_batch(self, own: Tensor, ids: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Idf (N, G) of the captions' n-grams and norms (N, 4, R) of the references, the rows being the documents."""
        pool, rows = own.flatten().sort().values, len(own)

        def idf_of(wanted: Tensor) -> Tensor:
            df = torch.searchsorted(pool, wanted, right=True) - torch.searchsorted(pool, wanted)
            share = (df.clamp_(min=1) - rows).to(self.idf.dtype) / rows
            return -torch.log1p(share)  # log N − log df without the loss of digits where df is nearly N

        order = torch.bucketize(own, self.order_starts, right=True)
        is_order = order[:, :, None] == torch.arange(ORDERS, device=own.device)
        there = is_order & (own != _PADDING)[:, :, None]
        slots = (starts + torch.arange(self.widest, device=own.device)).clamp_(max=len(self.ids) - 1)
        squares = self.tf[slots].to(self.idf.dtype).square() * idf_of(own).square()[:, :, None]
        return idf_of(ids), torch.bmm(there.to(squares.dtype).transpose(1, 2), squares).sqrt()


def _padded(captions: Captions, max_words: int) -> tuple[Tensor, np.ndarray]:
    """Clipped captions (M, R, max_words) int16, 0 after the last word, and how many each image has (M,)."""
    amounts = np.fromiter(map(len, captions), np.int64, len(captions))
    tokens = np.zeros((len(amounts), max(amounts, default=0), max_words), np.int16)
    for low, high in _chunks(len(amounts)):
        flat = list(chain.from_iterable(captions[low:high]))
        lengths = np.fromiter(map(len, flat), np.int64, len(flat))
        words = np.fromiter(chain.from_iterable(flat), np.int64, int(lengths.sum()))
        image, number = _spread(amounts[low:high])
        caption, place = _spread(lengths)
        image, number = image[caption] + low, number[caption]
        wrong = (words < 1) | (words > MAX_ID)
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise UserError(
                f"captions: id {words[bad]} in caption {number[bad]} of image row {image[bad]} lies outside "
                f"1 … {MAX_ID}; CIDEr takes words without EOS and packs {ID_BITS} bits a word"
            )
        kept = place < max_words
        tokens[image[kept], number[kept], place[kept]] = words[kept]
    return torch.from_numpy(tokens), amounts


def _spread(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of groups of these sizes laid end to end: each member's group and its number in the group."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    return group, np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group]


def _chunks(images: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + _IMAGES_AT_ONCE, images)) for low in range(0, images, _IMAGES_AT_ONCE))


def _order_sizes(width: int) -> list[int]:
    """How many n-grams of each order begin in `width` words."""
    return [max(width - n, 0) for n in range(ORDERS)]


def _lengths(tokens: Tensor, eos: bool) -> Tensor:
    """Words (…,) before the first 0 of each row of `tokens` (…, T), and the EOS if it counts and is there."""
    words = (tokens != 0).cumprod(-1, dtype=torch.uint8).sum(-1)
    return (words + 1).clamp_(max=tokens.shape[-1]) if eos else words


def _ngrams(tokens: Tensor, eos: bool) -> Tensor:
    """Keys (…, G) int64 of all n-grams of `tokens` (…, T): G = 4T − 6 places, those of one order side by side."""
    tokens = tokens.long()
    width = tokens.shape[-1]
    left = _lengths(tokens, eos)[..., None] - torch.arange(width, device=tokens.device)  # words from here to the end
    keys, packed = [], torch.zeros_like(tokens)
    for n in range(min(ORDERS, width)):
        packed = (packed[..., : width - n] << ID_BITS) | tokens[..., n:]
        there = left[..., : width - n] > n
        keys.append(torch.where(there, packed, _ABSENT) | (n << _ORDER_BIT))
    return torch.cat(keys, dim=-1)


def _sum_by_order(values: Tensor, orders: list[int]) -> Tensor:
    """Sums (N, 4, …) of `values` (N, G, …) over the places of each order."""
    return torch.stack([part.sum(dim=1) for part in values.split(orders, dim=1)], dim=1)


def _reference_keys(tokens: Tensor, amounts: np.ndarray, eos: bool) -> np.ndarray:
    """Keys (M, R, G) of `tokens` (M, R, T); those of references that do not exist are flagged absent."""
    keys = _ngrams(tokens, eos).numpy()
    keys[np.arange(tokens.shape[1]) >= amounts[:, None]] |= _ABSENT
    return keys


def _count(tokens: Tensor, amounts: np.ndarray, eos: bool) -> tuple[np.ndarray, np.ndarray]:
    once = [np.zeros(0, np.int64)]
    for low, high in _chunks(len(tokens)):
        keys = _reference_keys(tokens[low:high], amounts[low:high], eos).reshape(high - low, -1)
        keys.sort(axis=1)
        there = (keys & _ABSENT) == 0
        there[:, 1:] &= keys[:, 1:] != keys[:, :-1]
        once.append(keys[there])
    keys, counts = np.unique(np.concatenate(once), return_counts=True)
    return keys, counts.astype(np.int32)


def _table(keys: np.ndarray, counts: np.ndarray, images: int, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys with those of `more` that were not counted, closed by one greater than all, and their idf."""
    last = np.iinfo(np.int64).max
    uncounted = more[np.append(keys, last)[np.searchsorted(keys, more)] != more]
    table = np.sort(np.concatenate([keys, uncounted, [last]]))
    df = np.ones(len(table))
    df[np.searchsorted(table, keys)] = counts
    return table, np.log(images) - np.log(np.maximum(df, 1))


def _index(
    tokens: Tensor, amounts: np.ndarray, table: np.ndarray, idf: np.ndarray, order_starts: np.ndarray, eos: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of some images: n-grams an image (m,), their ids (e,), term frequencies (e, R) and norms (m, 4, R)."""
    keys = _reference_keys(tokens, amounts, eos)
    image, reference, place = np.nonzero((keys & _ABSENT) == 0)
    wanted = keys[image, reference, place]
    by_key = np.argsort(wanted)
    ids = np.empty(len(wanted), np.int64)
    ids[by_key] = np.searchsorted(table, wanted[by_key])  # in order of the keys: ten times as fast
    shape = (len(tokens), len(table), tokens.shape[1])
    triples, tf = np.unique(np.ravel_multi_index((image, ids, reference), shape), return_counts=True)
    image, ids, reference = np.unravel_index(triples, shape)

    order = np.searchsorted(order_starts, ids, side="right")
    cell = np.ravel_multi_index((image, order, reference), (len(tokens), ORDERS, tokens.shape[1]))
    squares = np.bincount(cell, (tf * idf[ids]) ** 2, len(tokens) * ORDERS * tokens.shape[1])

    new = np.ones(len(ids), bool)
    new[1:] = (image[1:] != image[:-1]) | (ids[1:] != ids[:-1])
    entry = np.cumsum(new) - 1
    frequencies = np.zeros((np.count_nonzero(new), tokens.shape[1]), np.uint8)
    frequencies[entry, reference] = tf
    sizes = np.bincount(image[new], minlength=len(tokens))
    return sizes, ids[new].astype(np.int32), frequencies, np.sqrt(squares).reshape(len(tokens), ORDERS, -1)
