"""CIDEr-D on token ids as a reward: all captions of a batch at once, on their device.

Source: Vedantam, Zitnick, Parikh, "CIDEr: Consensus-based Image Description Evaluation" (2015), the D variant, as
computed by pycocoevalcap.

Occurrences of an n-gram (n = 1 … 4) in a text are counted by comparing tokens. Two texts share a bigram if their tokens
at i and j are equal, and those at i + 1 and j + 1. Only the idf needs an n-gram's key, which is looked up in a hash
table or counted in the batch. A key is an int64: the order minus one from bit 61 up, then 15 bits
per token. Positions without a token or n-gram are -1.
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
SIGMA = 6.0  # standard deviation of the length penalty, in bigrams
ID_BITS = 15
MAX_ID = (1 << ID_BITS) - 1
_ORDER_BIT = 61
_MIX = 0x1E3779B97F4A7C15  # odd, so that multiplication is injective
_IMAGES_AT_ONCE = 4096

Captions = Sequence[Sequence[Sequence[int]]]  # images → captions → token ids without EOS


def compute_document_frequencies(
    captions: Captions, *, max_words: int = 16, eos: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of images in which each n-gram of the captions occurs, from which CIDEr's idf is computed.

    `captions`: each image's captions as ids 1 … 32767. They are clipped to `max_words`; with `eos`, shorter captions
    end in the token 0. Only n-grams that a speaker can generate are thus counted. With `max_words` above the longest
    caption's length, all n-grams are counted, as in published files. Returns sorted keys (K,) int64 and counts (K,)
    int32. Raises UserError for an id out of range.
    """
    words = mask_after_end(_pad_captions(captions, max_words)[0], eos)
    distinct_keys = []
    for part in words.split(_IMAGES_AT_ONCE, dim=1):
        distinct = _mark_repetitions(_compute_ngram_keys(part).permute(2, 0, 1, 3).flatten(1))
        distinct_keys.append(distinct[distinct >= 0].numpy())
    keys, counts = np.unique(np.concatenate(distinct_keys), return_counts=True)
    return keys, counts.astype(np.int32)


def pack_ngrams(ngrams: np.ndarray) -> np.ndarray:
    """Return keys (K,) int64, in the format of `compute_document_frequencies`, of n-grams (K, n) of ids up to 32767."""
    keys = np.full(len(ngrams), ngrams.shape[1] - 1, np.int64) << _ORDER_BIT
    for position, words in enumerate(reversed(np.asarray(ngrams, np.int64).T)):
        keys |= words << position * ID_BITS
    return keys


@dataclass(frozen=True)
class CiderD:
    """CIDEr-D of captions against their images' references, ×10, equal to pycocoevalcap's on the same tokens.

    `build` creates it. It holds M images with at most R references of W tokens each, and S slots of a hash table of
    n-grams.
    """

    words: Tensor  # (M, R, W) int16: the references, padded with -1
    bigrams: Tensor  # (M, R): bigrams per reference, CIDEr-D's measure of length
    norms: Tensor  # (M, 4, R): norm of each reference's tf-idf vector, per order
    references: Tensor  # (M,): references per image
    slots: Tensor  # (S,) int64: keys of n-grams, each in one of its two slots; -1 if empty
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

        `references`: each image's captions as ids. `keys` and `counts`: from `compute_document_frequencies`, of
        `images` (N) images, usually those of the training split. An n-gram without an entry has df 0. References are
        clipped to `max_words`; with `eos`, shorter references end in the token 0.

        `frequencies="batch"` takes N and df from the rows of each call, each row a document. `keys`, `counts` and
        `images` are checked, but no score depends on them. pycocoevalcap called on the batch and the published PSST
        code use the same statistics. Raises UserError for references without any word, an image without references,
        an id out of range, unsorted keys, or counts that are impossible for `images`.
        """
        tokens, reference_counts = _pad_captions(references, max_words)
        if not (tokens > 0).any():
            raise UserError("references: expected words in at least one, found none; check the captions")
        if not reference_counts.all():
            row = int(np.argmin(reference_counts))
            raise UserError(f"references: image row {row} has no reference; CIDEr needs one or more for each image")
        max_count = int(np.max(counts, initial=0))
        if images < 1 or len(keys) != len(counts) or max_count > images or (np.diff(keys) <= 0).any():
            raise UserError(
                f"document frequencies: expected sorted n-grams, and for each a count of at most {images} images, "
                f"found {len(keys)} n-grams with {len(counts)} counts of at most {max_count}, or another order; "
                "prepare them again from the same captions"
            )
        words = mask_after_end(tokens, eos)
        log_images = float(np.log(images))
        slots, idf = _build_hash_table(np.asarray(keys, np.int64), log_images - np.log(np.maximum(counts, 1)))
        parts = words.split(_IMAGES_AT_ONCE, dim=1)
        norms = [_compute_norms(part, _look_up(_compute_ngram_keys(part), slots, idf, log_images)) for part in parts]
        return cls(
            words=words.permute(1, 2, 0).contiguous(),
            bigrams=_count_bigrams(words).to(dtype),
            norms=torch.cat(norms, dim=1).transpose(0, 1).to(dtype, memory_format=torch.contiguous_format),
            references=torch.from_numpy(reference_counts).to(dtype),
            slots=slots,
            idf=idf.to(dtype),
            log_images=log_images,
            eos=eos,
            frequencies=frequencies,
        )

    def to(self, device: torch.device | str) -> CiderD:
        """Return a copy of the index on `device`."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})

    def pair_with_references(self, tokens: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return tokens (T, N) int16 of captions as for `__call__`, and (W, R, N) of references, padded with -1."""
        return mask_after_end(tokens.to(torch.int16), self.eos), self.words[images].permute(2, 1, 0).contiguous()

    def __call__(self, tokens: Tensor, images: Tensor) -> Tensor:
        """Return the score (N,) of captions `tokens` (N, T) int64, 0 after the end, of image rows `images` (N,) int64.

        With `eos`, a caption that ends before T has EOS as its last token; a caption of T words has no EOS. Nothing is
        copied from the device to the host. Ids outside 0 … 32767 are therefore checked on the CPU only; they raise
        UserError.
        """
        checkable = devices.is_synchronous(tokens.device) and tokens.numel()
        if checkable and not 0 <= int(tokens.min()) <= int(tokens.max()) <= MAX_ID:
            raise UserError(f"captions: expected ids 0 … {MAX_ID}, found {int(tokens.min())} … {int(tokens.max())}")
        dtype = self.idf.dtype
        words, references = self.pair_with_references(tokens, images)
        own = count_occurrences(words, words[:, None]).to(dtype)  # (4, T, 1, N)
        matching = count_occurrences(words, references).to(dtype)  # (4, T, R, N)
        keys = _compute_ngram_keys(words)
        if self.frequencies == "train":
            idf, norms = _look_up(keys, self.slots, self.idf, self.log_images), self.norms[images].permute(1, 2, 0)
        else:
            idf, norms = _compute_batch_statistics(keys, references, dtype)
        # the sums run over distinct n-grams: an n-gram that occurs k times has k positions, each of weight 1/k
        squares = idf.square()[:, :, None]
        norm = (own * squares).sum(dim=1).sqrt()  # (4, 1, N)
        weights = squares / own.clamp(min=1)
        dot = torch.minimum(matching, own).mul_(matching).mul_(weights).sum(dim=1)  # (4, R, N)
        norm_product = norm * norms
        cosine = (dot / torch.where(norm_product > 0, norm_product, 1)).mean(dim=0)
        length_difference = _count_bigrams(words) - self.bigrams[images].T
        penalty = torch.exp(-length_difference.square() / (2 * SIGMA**2))
        return 10 * (cosine * penalty).sum(dim=0) / self.references[images]


def _look_up(keys: Tensor, slots: Tensor, values: Tensor, default: float) -> Tensor:
    """Return the value of each of `keys` in a hash table, or `default`; the value for -1, no n-gram, is arbitrary."""
    first, second = _hash_slots(keys, len(slots))
    slot = torch.where(slots[first] == keys, first, second)
    return torch.where(slots[slot] == keys, values[slot], default)


def _compute_norms(words: Tensor, idf: Tensor) -> Tensor:
    """Return norms (4, …) of the tf-idf vectors of captions `words` (T, …) with `idf` (4, T, …)."""
    counts = count_occurrences(words.flatten(1), words.reshape(len(words), 1, -1)).view_as(idf)
    return (counts * idf.square()).sum(dim=1).sqrt()


def _compute_batch_statistics(keys: Tensor, references: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the idf (4, T, N) of n-grams `keys` and norms (4, R, N) of `references` (W, R, N); a row is a document."""
    reference_keys, rows = _compute_ngram_keys(references), references.shape[-1]
    all_keys = _mark_repetitions(reference_keys.permute(3, 0, 1, 2).flatten(1)).flatten().sort().values

    def compute_idf(ngrams: Tensor) -> Tensor:
        df = torch.searchsorted(all_keys, ngrams, right=True) - torch.searchsorted(all_keys, ngrams)
        share = (df.clamp_(min=1) - rows).to(dtype) / rows
        return -torch.log1p(share)  # log N − log df without cancellation for df close to N

    return compute_idf(keys), _compute_norms(references, compute_idf(reference_keys))


def _pad_captions(captions: Captions, max_words: int) -> tuple[Tensor, np.ndarray]:
    """Return clipped captions (M, R, max_words) int16, padded with 0, and each image's number of captions (M,).

    Rows beyond an image's own captions are -1. Raises UserError for an id out of range.
    """
    reference_counts = np.fromiter(map(len, captions), np.int64, len(captions))
    tokens = np.zeros((len(reference_counts), max(reference_counts, default=0), max_words), np.int16)
    for row, image in enumerate(captions):
        tokens[row, len(image) :] = -1
        for number, words in enumerate(image):
            if invalid := [word for word in words if not 0 < word <= MAX_ID]:
                raise UserError(
                    f"captions: id {invalid[0]} in caption {number} of image row {row} lies outside 1 … {MAX_ID}, the "
                    "ids of words that CIDEr takes; use a vocabulary of fewer words (prepare.min_count)"
                )
            tokens[row, number, : len(words)] = words[:max_words]
    return torch.from_numpy(tokens), reference_counts


def mask_after_end(tokens: Tensor, eos: bool) -> Tensor:
    """Return tokens (T, …) int16 of captions `tokens` (…, T) int16, with EOS if `eos`, and -1 after the last token.

    Time comes first, so that an operation on one time step is contiguous over all captions.
    """
    words = tokens.movedim(-1, 0).contiguous()
    ends = words == 0
    ended = ends.cumsum(dim=0, dtype=torch.int16)
    return words.masked_fill((ended > ends) if eos else (ended > 0), -1)


def _count_bigrams(words: Tensor) -> Tensor:
    return (words >= 0).sum(dim=0).sub_(1).clamp_(min=0)


def _compute_ngram_keys(words: Tensor) -> Tensor:
    """Return keys (4, T, …) int64 of the n-grams that begin at each position of `words` (T, …); -1 if none begins."""
    words = words.long()
    keys, packed = words.new_full((ORDERS, *words.shape), -1), words
    for n in range(min(ORDERS, len(words))):
        if n:
            packed = (packed[:-1] << ID_BITS) | words[n:]  # -1 has all bits set, so it stays -1
        keys[n, : len(packed)] = packed | (n << _ORDER_BIT)
    return keys


def count_occurrences(words: Tensor, texts: Tensor) -> Tensor:
    """Count occurrences of the n-gram at each position of `words` (T, N) in each of `texts` (W, S, N).

    Returns (4, T, S, N) int16; inputs are int16. The count is 0 where no n-gram begins.
    """
    tokens = words.masked_fill(words < 0, -2)[:, None]  # -2 equals no token
    same = words.new_empty(len(texts), *(len(words), *texts.shape[1:]))
    torch.eq(texts[:, None], tokens, out=same)  # int16 output is six times as fast on the CPU as bool
    counts, run = same.new_zeros(ORDERS, *same.shape[1:]), same
    for n in range(min(ORDERS, *same.shape[:2])):
        if n:
            run = run[:-1, :-1] & same[n:, n:]
        counts[n, : run.shape[1]] = run.sum(dim=0, dtype=torch.int16)
    return counts


def _mark_repetitions(keys: Tensor) -> Tensor:
    """Return each row of `keys` (M, G) sorted, with all repetitions replaced by -1."""
    keys = keys.sort(dim=1).values
    keys[:, 1:].masked_fill_(keys[:, 1:] == keys[:, :-1], -1)
    return keys


def _hash_slots(keys: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Return the two slots of each key in a table of `slots` slots, a power of two."""
    mixed = (keys ^ (keys >> 30)) * _MIX
    mixed = (mixed ^ (mixed >> 29)) * _MIX
    return (mixed >> 32) & (slots - 1), mixed & (slots - 1)


def _build_hash_table(keys: np.ndarray, values: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return slots (S,) with each of the distinct `keys` (K,) in one of its two slots, else -1, and values (S,).

    A look-up compares a key with two slots, without a loop. Source: Pagh, Rodler, "Cuckoo hashing" (2004), here for all
    keys at once.
    """
    size = 1 << max(4, (5 * len(keys) // 2).bit_length())  # a table above half full may have no arrangement
    while True:
        candidates = torch.stack(_hash_slots(torch.tensor(keys), size)).numpy()
        occupant, choice, unplaced = np.full(size, -1), np.zeros(len(keys), np.int8), np.arange(len(keys))
        for _ in range(100):
            if not len(unplaced):
                table = np.append(keys, -1)[occupant], np.append(values, 0.0)[occupant]
                return torch.from_numpy(table[0]), torch.from_numpy(table[1])
            slots = candidates[choice[unplaced], unplaced]
            evicted = np.unique(occupant[slots])
            occupant[slots] = unplaced  # if several keys have one slot, the last key stays
            unplaced = np.concatenate([unplaced[occupant[slots] != unplaced], evicted[evicted >= 0]])
            choice[unplaced] ^= 1
        size *= 2
