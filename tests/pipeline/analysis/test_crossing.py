"""Cross-play: every method's listener of a seed ranks images by every method's captions of that seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.analysis.crossing import measure_cross_play
from pipeline.analysis.results import Point, Run
from pipeline.data.feature_store import FeatureWriter
from pipeline.evaluation.judges import JUDGES
from pipeline.models.agent_files import load_agent, save_agents
from pipeline.models.listener import Listener
from pipeline.types import Message, make_caption_mask
from pipeline.vocabulary import Vocabulary

CPU = torch.device("cpu")
IMAGES, FIRST_TEST = 50, 20  # the last 30 images are the test split
WORDS = tuple("abcdefghi")
SEEDS = {"psst": (1, 2), "luo": (3, 2, 1)}  # seeds in the order of the runs
POOLED = np.random.default_rng(0).normal(size=(IMAGES, 5)).astype(np.float32)


class FakePreparedData:
    vocabulary, max_words = Vocabulary((*WORDS, "UNK")), 3

    def __len__(self) -> int:
        return IMAGES

    def rows(self, split: str) -> np.ndarray:
        return np.arange(FIRST_TEST, IMAGES) if split == "test" else np.arange(FIRST_TEST)


@pytest.fixture
def root(tmp_path):
    """Write captions, a pretrained listener, and each run's own and adapted listeners; return the folder."""
    (tmp_path / "features/main").mkdir(parents=True)
    with FeatureWriter(tmp_path / "features/main", IMAGES, 5, (1, 7)) as writer:
        writer.write(np.arange(IMAGES), POOLED, np.zeros((IMAGES, 1, 7)))
    torch.manual_seed(0)
    folders = [f"cells/{method}/seed={seed}" for method, seeds in SEEDS.items() for seed in seeds]
    for folder in ("pretrained/listener", *folders, *(f"{folder}/adapted" for folder in folders)):
        listener = Listener(10, 5, words=4, hidden=6)
        torch.nn.init.normal_(listener.word.weight)
        save_agents(tmp_path / folder / "weights.safetensors", {"listener": listener})
    draw = np.random.default_rng(1)
    rows = [
        {"split": split, "method": method, "cell": f"seed={seed}", "image": image}
        | {"caption": " ".join(draw.choice(WORDS, 3))}
        for method, seeds in SEEDS.items()
        for seed in seeds
        for image in range(IMAGES)
        for split in (["test"] if image >= FIRST_TEST else ["val"])
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "captions.parquet")
    return tmp_path


def make_points(root) -> dict[str, Point]:
    def make_run(method: str, seed: int) -> Run:
        return Run(method, {"seed": seed}, "", {}, {}, root / "captions.parquet", cell=f"seed={seed}")

    return {method: Point(tuple(make_run(method, seed) for seed in seeds)) for method, seeds in SEEDS.items()}


def compute_recall(root, method: str, seed: int, folder: str) -> float:
    """Return R@10 of a run's test captions by the listener in a folder, with ranks counted one by one."""
    rows = pq.read_table(root / "captions.parquet").to_pylist()
    key = (method, f"seed={seed}", "test")
    captions = [row["caption"].split() for row in rows if (row["method"], row["cell"], row["split"]) == key]
    tokens = torch.tensor([[WORDS.index(word) + 1 for word in caption] for caption in captions])
    listener = load_agent(root / folder / "weights.safetensors", "listener")
    with torch.no_grad():
        text_vectors = listener.encode_text(
            Message(tokens, make_caption_mask(tokens), torch.zeros(len(captions), dtype=torch.int64), 1)
        )
        scores = text_vectors @ listener.encode_image(torch.from_numpy(POOLED[FIRST_TEST:])).T
    ranks = [int((row >= row[target]).sum()) for target, row in enumerate(scores)]
    return 100 * sum(rank <= 10 for rank in ranks) / len(ranks)


def test_every_listener_ranks_images_by_every_methods_captions_of_its_own_seed(root):
    judges = {"pretrained": "listener", "own listener": "own", "adapted listener": "adapted"}
    found = measure_cross_play(make_points(root), judges, JUDGES, FakePreparedData(), root, CPU)
    assert found["captions"] == ["psst", "luo"]
    assert found["listeners"] == ["pretrained", "psst", "luo", "adapted listener"]
    assert (found["split"], found["recall"], found["seeds"]) == ("test", "R@10", [1, 2])
    expected = [
        [
            [compute_recall(root, method, seed, folder.format(method=method, seed=seed)) for seed in (1, 2)]
            for folder in (
                "pretrained/listener",
                "cells/psst/seed={seed}",
                "cells/luo/seed={seed}",
                "cells/{method}/seed={seed}/adapted",
            )
        ]
        for method in SEEDS
    ]
    assert np.array(found["matrix"]) == pytest.approx(np.array(expected))
    assert len(np.unique(np.array(expected))) > 6, "different listeners have different recalls"


def test_without_a_seed_in_common_the_first_run_of_each_method_counts(root):
    points = {method: Point(point.runs[:1]) for method, point in make_points(root).items()}  # seeds 1 and 3
    found = measure_cross_play(points, {"pretrained": "listener"}, JUDGES, FakePreparedData(), root, CPU)
    assert found["seeds"] == []
    folders = ("pretrained/listener", "cells/psst/seed=1", "cells/luo/seed=3")
    captions = (("psst", 1), ("luo", 3))
    expected = [[[compute_recall(root, method, seed, folder)] for folder in folders] for method, seed in captions]
    assert np.array(found["matrix"]) == pytest.approx(np.array(expected))
