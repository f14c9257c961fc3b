"""CIDEr-D on word ids, as a reward: all captions of a batch at once, on the device where they are.

Source: Vedantam, Zitnick, Parikh, "CIDEr: Consensus-based Image Description Evaluation" (2015), the D variant, as
pycocoevalcap computes it.

How often an n-gram (n = 1 … 4) occurs in a text is counted by comparing words: two captions with the same word at i and
j, and at i + 1 and j + 1, share a bigram. Only the idf is looked up, by the n-gram's key in a hash table: an int64 of
its order minus one from bit 61 up, then 15 bits a word. Where a caption has no word or no n-gram, both are -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.runtime import devices

ORDERS = 4
SIGMA = 6.0  # of the penalty for another length than the reference's, in bigrams
ID_BITS = 15
MAX_ID = (1 << ID_BITS) - 1
_ORDER_BIT = 61
_MIX = 0x1E3779B97F4A7C15  # odd, so that no two keys become one
_IMAGES_AT_ONCE = 4096

Captions = Sequence[Sequence[Sequence[int]]]  # images → captions → ids of words, without EOS


def document_frequencies(captions: Captions, *, max_words: int = 16, eos: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """In how many images each n-gram of the captions occurs, from which CIDEr's idf is computed.

    `captions`: for each image its captions as ids 1 … 32767. Captions are clipped to `max_words`; with `eos`, those
    that are shorter end in the word 0. So only n-grams that a speaker can generate are counted, unless `max_words` is
    more than the longest caption has: published files are counted so.
    Returns sorted keys (K,) int64 and counts (K,) int32. Raises UserError for an id out of range.
    """
    words = words_of(_padded(captions, max_words)[0], eos)
    once = []
    for part in words.split(_IMAGES_AT_ONCE, dim=1):
        found = _distinct(_ngrams(part).permute(2, 0, 1, 3).flatten(1))
        once.append(found[found >= 0].numpy())
    keys, counts = np.unique(np.concatenate(once), return_counts=True)
    return keys, counts.astype(np.int32)


def pack(ngrams: np.ndarray) -> np.ndarray:
    """Keys (K,) int64, as `document_frequencies` has them, of n-grams (K, n) of ids up to 32767."""
    keys = np.full(len(ngrams), ngrams.shape[1] - 1, np.int64) << _ORDER_BIT
    for place, words in enumerate(reversed(np.asarray(ngrams, np.int64).T)):
        keys |= words << place * ID_BITS
    return keys


@dataclass(frozen=True)
class CiderD:
    """CIDEr-D of captions against the references of their images, ×10, equal to pycocoevalcap's on the same tokens.

    Created by `build`. M images, at most R references of W words each, S slots of a hash table of n-grams.
    """

    words: Tensor  # (M, R, W) int16: the references, -1 where there is no word
    bigrams: Tensor  # (M, R): bigrams in each reference, by which CIDEr-D compares lengths
    norms: Tensor  # (M, 4, R): norm of each reference's tf-idf vector, for each order
    references: Tensor  # (M,): references per image
    slots: Tensor  # (S,) int64: keys of n-grams, each in one of its two places; -1 where there is none
    idf: Tensor  # (S,): log N − log max(1, df) of the n-gram in each slot
    log_images: float  # log N
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
        frequencies: Literal["train", "batch"] = "train",
        dtype: torch.dtype = torch.float32,
    ) -> CiderD:
        """Index the references of all images, on the CPU.

        `references`: for each image its captions as ids; `keys` and `counts` come from `document_frequencies` over
        `images` (N) images, usually those of the training split. An n-gram without an entry has df 0. References are
        clipped to `max_words` and, with `eos`, end in the word 0 where they are shorter. `frequencies="batch"` takes N
        and df from the rows of each call instead (each row a document, as pycocoevalcap called on the batch would, and
        as the published PSST code does); `keys` and `counts` are then not used.
        Raises UserError for an image without references, an id out of range, or counts that `images` cannot give.
        """
        tokens, amounts = _padded(references, max_words)
        if not (tokens > 0).any():
            raise UserError("references: no words in any of them; CIDEr needs some")
        if not amounts.all():
            raise UserError(f"references: image row {int(np.argmin(amounts))} has none; CIDEr needs one for each image")
        most = int(np.max(counts, initial=0))
        if images < 1 or len(keys) != len(counts) or most > images or (np.diff(keys) <= 0).any():
            raise UserError(
                f"document frequencies: {len(keys)} n-grams with {len(counts)} counts of at most {most} "
                f"do not come from {images} images; prepare them again from the same captions"
            )
        words = words_of(tokens, eos)
        log_images = float(np.log(images))
        slots, idf = _hash_table(np.asarray(keys, np.int64), log_images - np.log(np.maximum(counts, 1)))
        parts = words.split(_IMAGES_AT_ONCE, dim=1)
        norms = [_norms(part, _look_up(_ngrams(part), slots, idf, log_images)) for part in parts]
        return cls(
            words=words.permute(1, 2, 0).contiguous(),
            bigrams=_bigrams(words).to(dtype),
            norms=torch.cat(norms, dim=1).transpose(0, 1).to(dtype, memory_format=torch.contiguous_format),
            references=torch.from_numpy(amounts).to(dtype),
            slots=slots,
            idf=idf.to(dtype),
            log_images=log_images,
            eos=eos,
            frequencies=frequencies,
        )

    def to(self, device: torch.device | str) -> CiderD:
        """The same index on `device`."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})

    def side_by_side(self, tokens: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Words (T, N) int16 of captions as `__call__` takes them, and (W, R, N) of their references; -1: no word."""
        return words_of(tokens.to(torch.int16), self.eos), self.words[images].permute(2, 1, 0).contiguous()

    def __call__(self, tokens: Tensor, images: Tensor) -> Tensor:
        """Score (N,) of captions `tokens` (N, T) int64, 0 from where each ended, of `images` (N,) int64, rows of M.

        With `eos`, a caption that ended before T has the EOS as its last word; one of T words has none. Nothing is
        read back from the device; ids above 32767 are therefore checked on the CPU only, where they raise UserError.
        """
        looked = devices.synchronous(tokens.device) and tokens.numel()
        if looked and not 0 <= int(tokens.min()) <= int(tokens.max()) <= MAX_ID:
            raise UserError(f"captions: an id lies outside 0 … {MAX_ID}; CIDEr packs {ID_BITS} bits a word")
        dtype = self.idf.dtype
        words, human = self.side_by_side(tokens, images)
        said = occurrences(words, words[:, None]).to(dtype)  # (4, T, 1, N)
        heard = occurrences(words, human).to(dtype)  # (4, T, R, N)
        keys = _ngrams(words)
        if self.frequencies == "train":
            idf, norms = _look_up(keys, self.slots, self.idf, self.log_images), self.norms[images].permute(1, 2, 0)
        else:
            idf, norms = _of_batch(keys, human, dtype)
        # these are sums over n-grams, but an n-gram that occurs k times has k places: each counts as 1/k of it
        squares = idf.square()[:, :, None]
        norm = (said * squares).sum(dim=1).sqrt()  # (4, 1, N)
        weights = squares / said.clamp(min=1)
        dot = torch.minimum(heard, said).mul_(heard).mul_(weights).sum(dim=1)  # (4, R, N)
        length = norm * norms
        cosine = (dot / torch.where(length > 0, length, 1)).mean(dim=0)
        apart = _bigrams(words) - self.bigrams[images].T
        penalty = torch.exp(-apart.square() / (2 * SIGMA**2))
        return 10 * (cosine * penalty).sum(dim=0) / self.references[images]


def _look_up(keys: Tensor, slots: Tensor, values: Tensor, otherwise: float) -> Tensor:
    """The value of each of `keys` in a hash table, or `otherwise`; for -1, which is no n-gram, either."""
    first, second = _places(keys, len(slots))
    place = torch.where(slots[first] == keys, first, second)
    return torch.where(slots[place] == keys, values[place], otherwise)


def _norms(words: Tensor, idf: Tensor) -> Tensor:
    """(4, …): norms of the tf-idf vectors of captions `words` (T, …) with `idf` (4, T, …)."""
    said = occurrences(words.flatten(1), words.reshape(len(words), 1, -1)).view_as(idf)
    return (said * idf.square()).sum(dim=1).sqrt()


def _of_batch(keys: Tensor, human: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Idf (4, T, N) of n-grams `keys` and norms (4, R, N) of references `human` (W, R, N), each row a document."""
    theirs, rows = _ngrams(human), human.shape[-1]
    pool = _distinct(theirs.permute(3, 0, 1, 2).flatten(1)).flatten().sort().values

    def idf_of(wanted: Tensor) -> Tensor:
        df = torch.searchsorted(pool, wanted, right=True) - torch.searchsorted(pool, wanted)
        share = (df.clamp_(min=1) - rows).to(dtype) / rows
        return -torch.log1p(share)  # log N − log df without the loss of digits where df is nearly N

    return idf_of(keys), _norms(human, idf_of(theirs))


def _padded(captions: Captions, max_words: int) -> tuple[Tensor, np.ndarray]:
    """Clipped captions (M, R, max_words) int16, 0 after the last word, and how many each image has (M,).

    Where an image has fewer than R, the rest is -1. Raises UserError for an id out of range.
    """
    amounts = np.fromiter(map(len, captions), np.int64, len(captions))
    tokens = np.zeros((len(amounts), max(amounts, default=0), max_words), np.int16)
    for row, image in enumerate(captions):
        tokens[row, len(image) :] = -1
        for number, words in enumerate(image):
            if wrong := [word for word in words if not 0 < word <= MAX_ID]:
                raise UserError(
                    f"captions: id {wrong[0]} in caption {number} of image row {row} lies outside 1 … {MAX_ID}; CIDEr "
                    f"takes words without EOS and packs {ID_BITS} bits a word"
                )
            tokens[row, number, : len(words)] = words[:max_words]
    return torch.from_numpy(tokens), amounts


def words_of(tokens: Tensor, eos: bool) -> Tensor:
    """Words (T, …) int16 of captions `tokens` (…, T) int16, with the EOS if it counts; after the last -1.

    Places come first, so that each operation on a place is one for all captions.
    """
    words = tokens.movedim(-1, 0).contiguous()
    ends = words == 0
    over = ends.cumsum(dim=0, dtype=torch.int16)
    return words.masked_fill_((over > ends) if eos else (over > 0), -1)


def _bigrams(words: Tensor) -> Tensor:
    return (words >= 0).sum(dim=0).sub_(1).clamp_(min=0)


def _ngrams(words: Tensor) -> Tensor:
    """Keys (4, T, …) int64 of the n-grams that begin at each place of `words` (T, …), -1 where none does."""
    words = words.long()
    keys, packed = words.new_full((ORDERS, *words.shape), -1), words
    for n in range(min(ORDERS, len(words))):
        if n:
            packed = (packed[:-1] << ID_BITS) | words[n:]  # -1 has all bits set, whatever is joined to it
        keys[n, : len(packed)] = packed | (n << _ORDER_BIT)
    return keys


def occurrences(words: Tensor, texts: Tensor) -> Tensor:
    """(4, T, S, N) int16: how often the n-gram at each place of `words` (T, N) occurs in each of `texts` (W, S, N).

    Both are int16. Where no n-gram begins, 0.
    """
    wanted = words.masked_fill(words < 0, -2)[:, None]  # equal to no word
    same = words.new_empty(len(texts), *(len(words), *texts.shape[1:]))
    torch.eq(texts[:, None], wanted, out=same)  # into int16, which the CPU compares six times as fast as into bool
    counts, run = same.new_zeros(ORDERS, *same.shape[1:]), same
    for n in range(min(ORDERS, *same.shape[:2])):
        if n:
            run = run[:-1, :-1] & same[n:, n:]
        counts[n, : run.shape[1]] = run.sum(dim=0, dtype=torch.int16)
    return counts


def _distinct(keys: Tensor) -> Tensor:
    """Each row of `keys` (M, G) sorted, -1 instead of all repetitions."""
    keys = keys.sort(dim=1).values
    keys[:, 1:].masked_fill_(keys[:, 1:] == keys[:, :-1], -1)
    return keys


def _places(keys: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """The two places of each key in a table of `slots`, a power of two."""
    mixed = (keys ^ (keys >> 30)) * _MIX
    mixed = (mixed ^ (mixed >> 29)) * _MIX
    return (mixed >> 32) & (slots - 1), mixed & (slots - 1)


def _hash_table(keys: np.ndarray, values: np.ndarray) -> tuple[Tensor, Tensor]:
    """Slots (S,) with each of the distinct `keys` (K,) at one of its two places, -1 elsewhere, and values (S,).

    Two comparisons find any key, without a loop. Source: Pagh, Rodler, "Cuckoo hashing" (2004), here all keys at once.
    """
    size = 1 << max(4, (5 * len(keys) // 2).bit_length())  # more than half full, it may find no arrangement
    while True:
        homes = torch.stack(_places(torch.tensor(keys), size)).numpy()
        lodger, turn, homeless = np.full(size, -1), np.zeros(len(keys), np.int8), np.arange(len(keys))
        for _ in range(100):
            if not len(homeless):
                table = np.append(keys, -1)[lodger], np.append(values, 0.0)[lodger]
                return torch.from_numpy(table[0]), torch.from_numpy(table[1])
            wanted = homes[turn[homeless], homeless]
            evicted = np.unique(lodger[wanted])
            lodger[wanted] = homeless  # the last one stays
            homeless = np.concatenate([homeless[lodger[wanted] != homeless], evicted[evicted >= 0]])
            turn[homeless] ^= 1
        size *= 2
