"""The pages on corpora and judges, followed in a copy of the project, need only a module and a registry entry."""

import json

import pytest
from how_to_pages import apply_page, copy_project, run_program

CORPUS = """
from pathlib import Path
from pipeline.config.load import load
from pipeline.readers import read_corpus
from pipeline.slices.corpus_formats import FORMATS

overrides = ["prepare.format=json_lines", "prepare.annotations=a.jsonl", "prepare.document_frequencies=null"]
prepare = load(Path("params.yaml"), overrides).prepare
corpus = read_corpus("mine", prepare.format, Path(), prepare.annotations, None, formats=FORMATS)
print(*((image.file, image.split, len(image.captions)) for image in corpus.images))
"""
JUDGE = """
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import torch
from pipeline.config.load import load
from pipeline.evaluation.judges import JudgeSources, build_judges, judge_retrieval, encode_judged_captions
from pipeline.slices.judge_kinds import JUDGES
from pipeline.vocabulary import Vocabulary

kinds = load(Path("params.yaml"), ["evaluate.judges={own: own, overlap: word_overlap}"]).evaluate.judges
words = [[["a", "dog"]], [["a", "cat"]], [["two", "cats"]]]
prepared = SimpleNamespace(vocabulary=Vocabulary(("a", "dog", "cat", "two", "cats", "UNK")), words=words.__getitem__)
sources = JudgeSources(Path(), Path(), prepared, torch.device("cpu"))
judges = build_judges({"overlap": kinds["overlap"]}, JUDGES, sources)
captions = encode_judged_captions(["a dog", "cats", "a cat"], prepared.vocabulary, 4)
print(judge_retrieval(judges["overlap"], captions, torch.tensor([0, 2, 1]), torch.arange(3)).by_caption.tolist())
"""


@pytest.mark.parametrize(
    ("page", "program", "files", "printed"),
    [
        (
            "corpus",
            CORPUS,
            ["pipeline/readers/json_lines.py", "pipeline/slices/corpus_formats.py"],
            "('0.jpg', 'train', 2) ('1.jpg', 'val', 2) ('2.jpg', 'test', 2)",
        ),
        (
            "judge",
            JUDGE,
            ["pipeline/evaluation/word_overlap_judge.py", "pipeline/slices/judge_kinds.py"],
            "[1, 1, 1]",
        ),
    ],
)
def test_a_module_and_an_entry_of_a_registry_are_enough(tmp_path, page, program, files, printed):
    assert apply_page(page, copy_project(tmp_path)) == files
    images = [
        {"file": f"{n}.jpg", "split": split, "captions": ["a dog", "dogs"]}
        for n, split in enumerate(("train", "val", "test"))
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(image) + "\n" for image in images))
    done = run_program(tmp_path, program)
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr
