"""Facts of all images, which several parts of an evaluation read."""

import json
from pathlib import Path
from types import SimpleNamespace

from pipeline.worlds.scenes.known_scenes import read_known_scenes
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS


def test_facts_are_read_once_and_again_after_a_change(tmp_path: Path) -> None:
    prepared = SimpleNamespace(folder=tmp_path)
    assert read_known_scenes(prepared) == {}
    for images in (1, 2):
        lines = [json.dumps({"imgid": i, **sample_scene(5, i).record()}) for i in range(images)]
        (tmp_path / SCENE_FACTS).write_text("\n".join(lines) + "\n", encoding="utf-8")
        facts = read_known_scenes(prepared)
        assert facts == {str(i): sample_scene(5, i) for i in range(images)}
        assert read_known_scenes(prepared) is facts
