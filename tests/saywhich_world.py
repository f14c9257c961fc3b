"""A repository's data folder with a small model in it, made by functions of the project, and painted photos."""

import json
from pathlib import Path

import numpy as np
import torch
from captioned_images import CaptionedImages
from PIL import Image

from pipeline.features.extract import extract
from pipeline.features.extractor import NetworkSettings
from pipeline.models.agent_files import save_agents
from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.lstm import PooledLstm
from pipeline.runtime.checksums import compute_data_digests, write_checksums
from pipeline.vocabulary import Vocabulary

WORDS = ("a", "dog", "boat", "on", "the", "beach", "red", "UNK")
DETECTOR = {"epochs": 1, "width": 4, "learning_rate": 0.01, "batch": 4, "seed": 0, "horizontal_flip": False}


def paint(path: Path, seed: int, size: tuple[int, int] = (40, 50)) -> Path:
    """Paint a picture of four coloured quarters."""
    quarters = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
    Image.fromarray(quarters).resize(size, Image.Resampling.NEAREST).save(path)
    return path


def write_film(path: Path, seed: int, frames: int = 4, backwards: bool = False) -> Path:
    """Write an animated GIF or PNG of `frames` painted pictures, 100 ms each."""
    pictures = []
    for number in range(frames):
        with Image.open(paint(path.with_suffix(".frame.png"), 1000 * (seed + 1) + number)) as image:
            pictures.append(image.copy())
    path.with_suffix(".frame.png").unlink()
    pictures = pictures[::-1] if backwards else pictures
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=100)
    return path


def make_model(
    data: Path,
    name: str,
    seed: int,
    encoder: str = "gru",
    words: tuple[str, ...] = WORDS,
    attention: bool = True,
    with_digests: bool = False,
) -> Path:
    """Write an untrained speaker and listener for the features in `data`; return their folder.

    With `with_digests`, the weights have digests of the data, as the train stage writes them.
    """
    shape = json.loads((data / "features/main/manifest.json").read_text())["shape"]
    torch.manual_seed(seed)
    speaker: Decoder = Att2in(len(words), shape["D"], words=6, hidden=8, attention=6, max_words=6)
    if not attention:
        speaker = PooledLstm(len(words), shape["D"], words=6, hidden=8, max_words=6)
    listener = Listener(len(words), shape["P"], words=6, hidden=10, encoder=encoder)
    torch.nn.init.normal_(listener.word.weight)
    agents, digests = {"speaker": speaker, "listener": listener}, compute_data_digests(data) if with_digests else None
    save_agents(data / "models" / name / "weights.safetensors", agents, data=digests)
    return data / "models" / name


def make_repository(folder: Path, images: CaptionedImages | None = None, **options: object) -> Path:
    """Write images, their features, and the model `psst_multinomial`; return the folder `data`.

    `options` are `vector`, `frames` and `frames_per_second` of NetworkSettings, and options of `extract`. With
    `frames`, films replace the images.
    """
    data = folder / "data"
    (data / "images").mkdir(parents=True)
    for i in range(12):
        paint(data / "images" / f"{i}.png", i)
    (data / "prepared").mkdir()
    (data / "prepared/vocabulary.json").write_text(Vocabulary(WORDS).dump())
    (data / "prepared/manifest.json").write_text(json.dumps({"dataset": "toy", "settings": {"max_words": 6}}))
    write_checksums(data / "prepared")
    settings = NetworkSettings(
        "word_detector",
        32,
        vector=options.pop("vector", None),
        frames=options.pop("frames", None),
        frames_per_second=options.pop("frames_per_second", None),
    )
    for i in range(12) if settings.frames else ():
        write_film(data / "images" / f"{i}.png", i)
    out, work = data / "features/main", folder / "work"
    images = images or CaptionedImages([f"{n}.png" for n in range(12)], 9, WORDS)
    extract(images, data / "images", out, work, settings, batch=5, detector=DETECTOR, **options)
    make_model(data, "psst_multinomial", 0)
    return data
