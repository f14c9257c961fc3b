"""Diversity of captions, over images or over the captions of one image, and shares of degenerate captions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from statistics import fmean

from pipeline.errors import UserError
from pipeline.metrics.word_lists import BAD_ENDINGS, FUNCTION_WORDS
from pipeline.vocabulary import EOS

MBLEU_CORPUS, MBLEU_PER_CAPTION = "mBLEU-4 corpus", "mBLEU-4 per caption"
SELF_BLEU_ORDERS = 5  # longest n-grams of Self-BLEU, in words


def measure_caption_diversity(
    captions: Sequence[str], tokens: Sequence[Sequence[int]], unk: int = -1
) -> dict[str, float]:
    """Return statistics of N captions, given as space-joined text and as token ids (N rows, 0 after the end).

        words_per_caption
        distinct_captions     distinct captions per caption
        words_used            distinct words
        Div-1, Div-2          distinct words and bigrams per word
        repetition            share of captions with `has_repetition`
        unfinished            share of captions without EOS
        unknown               share of captions with the token `unk`

    Shetty et al. (2017) compute Div-1 and Div-2 over several captions of one image. Here they are computed over all N
    captions, one per image. They fall with N, so only equal N are comparable. Raises UserError if there are no captions
    or if texts and ids differ in number.
    """
    if len(captions) != len(tokens) or not len(captions):
        raise UserError(
            f"diversity: {len(captions)} captions as text and {len(tokens)} as ids; give the same captions, one or more"
        )
    words = [caption.split() for caption in captions]
    count, length = len(words), sum(map(len, words))
    used = {word for caption in words for word in caption}
    pairs = {pair for caption in words for pair in pairwise(caption)}
    return {
        "words_per_caption": length / count,
        "distinct_captions": len({tuple(caption) for caption in words}) / count,
        "words_used": len(used),
        "Div-1": len(used) / max(length, 1),
        "Div-2": len(pairs) / max(length, 1),
        "repetition": sum(map(has_repetition, words)) / count,
        "unfinished": sum(EOS not in caption for caption in tokens) / count,
        "unknown": sum(unk in caption for caption in tokens) / count,
    }


def has_repetition(words: Sequence[str]) -> bool:
    """Return whether a caption has a word twice in a row, or the same bigram twice.

    Bigrams of two function words do not count ("in front of a … of a"), since human captions repeat them as well.
    """
    bigrams = list(pairwise(words))
    if any(first == second for first, second in bigrams):
        return True
    content = [bigram for bigram in bigrams if not FUNCTION_WORDS.issuperset(bigram)]
    return len(set(content)) < len(content)


def has_bad_ending(words: Sequence[str]) -> bool:
    """Return whether a caption's last word needs another word after it, or the caption has no word.

    The words are those of self-critical.pytorch's `bad_endings`.
    """
    return not words or words[-1] in BAD_ENDINGS


def measure_set_diversity(sets: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return Div-1, Div-2 and mBLEU-4 of K ≥ 2 captions for each of M images, as space-joined tokens.

    Div-n is the number of distinct n-grams of an image's captions per token, averaged over images. mBLEU-4 is BLEU-4 of
    each caption against the K − 1 others of its image; lower is more diverse (Shetty et al. 2017). `corpus` is the
    corpus BLEU of all images' k-th captions, averaged over k (self-critical.pytorch). `per caption` is the mean over
    captions, with pycocoevalcap's smoothing (Chen and Jin 2020, §3.2). Raises UserError if there are no images, if
    images differ in their number of captions, or if they have fewer than two.
    """
    if not sets or len(sets[0]) < 2 or any(len(captions) != len(sets[0]) for captions in sets):
        raise UserError(
            "diversity of sets: expected the same number of captions, two or more, for each image, found "
            f"{sorted({*map(len, sets)})} for {len(sets)} images; complete the sets"
        )
    words = [[caption.split() for caption in captions] for captions in sets]
    corpus, per_caption = zip(*(_compute_bleu_against_others(sets, k) for k in range(len(sets[0]))), strict=True)
    return {
        "Div-1": fmean(_compute_distinct_share(captions, 1) for captions in words),
        "Div-2": fmean(_compute_distinct_share(captions, 2) for captions in words),
        MBLEU_CORPUS: fmean(corpus),
        MBLEU_PER_CAPTION: fmean(per_caption),
    }


def compute_self_bleu(captions: Sequence[str], max_captions: int = 1000) -> float:
    """Return the mean sentence BLEU of the first `max_captions` captions, each against the others, 0 … 1.

    Lower is more diverse. N-grams have up to SELF_BLEU_ORDERS words. The metric follows WTF-RL's published code: NLTK's
    sentence_bleu with smoothing method1 (0.1 if no n-gram of an order matches; 0 if no word matches). It rises with the
    number of captions, so only equal numbers are comparable. Raises UserError for fewer than two captions.
    """
    words = [caption.split() for caption in captions[:max_captions]]
    if len(words) < 2:
        raise UserError(f"Self-BLEU: {len(words)} captions found, expected two or more; give more captions")
    logs = [0.0] * len(words)
    for n in range(1, SELF_BLEU_ORDERS + 1):
        counts = [Counter(_list_ngrams(caption, n)) for caption in words]
        top_counts: dict[tuple[str, ...], tuple[int, int]] = {}  # the two largest counts of each n-gram in a caption
        for ngram, count in chain.from_iterable(each.items() for each in counts):
            best, second = top_counts.get(ngram, (0, 0))
            top_counts[ngram] = (count, best) if count > best else (best, max(second, count))
        for index, each in enumerate(counts):
            pairs = ((count, top_counts[ngram][count == top_counts[ngram][0]]) for ngram, count in each.items())
            matched = sum(min(pair) for pair in pairs)
            if not matched and n == 1:
                logs[index] = -math.inf
            logs[index] += math.log((matched or 0.1) / max(1, each.total())) / SELF_BLEU_ORDERS
    lengths = Counter(map(len, words))
    return fmean(
        math.exp(log) * _compute_brevity(len(caption), lengths) for log, caption in zip(logs, words, strict=True)
    )


def _list_ngrams(words: Sequence[str], n: int) -> zip[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)


def _compute_distinct_share(captions: Sequence[Sequence[str]], n: int) -> float:
    return len({ngram for words in captions for ngram in _list_ngrams(words, n)}) / max(1, sum(map(len, captions)))


def _compute_bleu_against_others(sets: Sequence[Sequence[str]], k: int) -> tuple[float, float]:
    """Return BLEU-4 of the k-th captions against the images' other captions: corpus BLEU, and mean over captions."""
    from pycocoevalcap.bleu.bleu import Bleu

    others = {index: [*captions[:k], *captions[k + 1 :]] for index, captions in enumerate(sets)}
    hypotheses = {index: [captions[k]] for index, captions in enumerate(sets)}
    corpus, per_caption = Bleu(4).compute_score(others, hypotheses, verbose=0)
    return corpus[3], fmean(per_caption[3])


def _compute_brevity(length: int, lengths: Counter[int]) -> float:
    """Return NLTK's brevity penalty of a caption of `length` words against the closest length of another caption.

    `lengths` counts the lengths of all captions, this one included.
    """
    if not length:
        return 0.0
    others = (other for other, count in lengths.items() if count > (other == length))
    closest = min(others, key=lambda other: (abs(other - length), other))
    return 1.0 if length > closest else math.exp(1 - closest / length)
