"""Judges and encoders of photos by name. `JUDGES` lists the kinds of judges that `--judge` may name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.errors import UserError
from pipeline.features.network_weights import HUB
from saywhich.judging.clip_metrics import PAC_SCORE
from saywhich.judging.judging_choices import DEFAULT_JUDGE, JUDGE_FORMS
from saywhich.judging.photo_vectors import CaptionJudge, PhotoEncoder, PreparedPhoto
from saywhich.judging.thumbnails import Thumbnails
from saywhich.model_files import is_trained
from saywhich.photos import Photo, open_photo

PAC_S = {  # the models whose projections Sarto et al. (2023) trained further
    "pac_s/ViT-B-32": DEFAULT_JUDGE,
    "pac_s/ViT-L-14": "open_clip/ViT-L-14.laion2b_s32b_b82k",
}


@dataclass(frozen=True)
class JudgeSource:
    """A kind of judge: a test for its names, and its constructor."""

    fits: Callable[[str], bool]
    open: Callable[[str], CaptionJudge]


def _open_exported_judge(name: str) -> CaptionJudge:
    from saywhich.judging.exported_judge import ExportedJudge

    return ExportedJudge(Path(name))


def _open_open_clip_judge(name: str) -> CaptionJudge:
    from saywhich.judging.open_clip_judge import OpenClipJudge

    model, _, file = name.partition("=")
    return OpenClipJudge(model, file or HUB)


def _open_pac_s_judge(name: str) -> CaptionJudge:
    from saywhich.judging.open_clip_judge import OpenClipJudge

    model, _, file = name.partition("=")
    if not file or model not in PAC_S:
        forms = " or ".join(f"{each}=FILE.safetensors" for each in PAC_S)
        raise UserError(f"--judge {name}: give {forms}; docs/judge.md describes how to make the file")
    try:
        judge = OpenClipJudge(PAC_S[model], file, metric=PAC_SCORE)
    except UserError as error:
        raise UserError(str(error).replace(f"--judge {PAC_S[model]}", f"--judge {name}")) from None
    judge.name = model
    return judge


def _open_hub_judge(name: str) -> CaptionJudge:
    from saywhich.judging.hub_judge import HubJudge

    return HubJudge(name)


JUDGES = (
    JudgeSource(lambda name: is_trained(Path(name)), _open_exported_judge),
    JudgeSource(lambda name: name.startswith("open_clip/"), _open_open_clip_judge),
    JudgeSource(lambda name: name.startswith("pac_s/"), _open_pac_s_judge),
    JudgeSource(lambda name: name.startswith("hub/") or (Path(name) / "config.json").is_file(), _open_hub_judge),
)


def open_judge(name: str | CaptionJudge) -> CaptionJudge:
    """Open the judge `name`; return a given judge unchanged.

    Raises UserError where no kind of judge has such a name, or where the judge cannot be loaded.
    """
    if not isinstance(name, str):
        return name
    for source in JUDGES:
        if source.fits(name):
            return source.open(name)
    raise UserError(f"--judge {name}: no such judge; give {JUDGE_FORMS}")


def check_judges(names: Sequence[str | CaptionJudge]) -> None:
    """Raise UserError for a name that is given twice."""
    for index, name in enumerate(names):
        if isinstance(name, str) and name in names[:index]:
            raise UserError(f"--judge {name}: is given twice; give different judges")


def open_encoder(name: str) -> PhotoEncoder:
    """Open an encoder of photos: `thumbnail`, a judge, or an image network, NAME or NAME=FILE.safetensors.

    Raises UserError where the encoder cannot be loaded.
    """
    if name == Thumbnails.name:
        return Thumbnails()
    if not any(source.fits(name) for source in JUDGES):
        return NetworkEncoder(name)
    try:
        return open_judge(name)
    except UserError as error:
        raise UserError(str(error).replace("--judge", "--neighbours")) from None


class NetworkEncoder:
    """An image network that `open_network` builds, such as one of timm, as a `PhotoEncoder`."""

    def __init__(self, name: str) -> None:
        import torch

        from pipeline.features.extract import open_network
        from pipeline.features.extractor import NetworkSettings
        from saywhich.judging.open_clip_judge import silence_hub

        network, _, file = name.partition("=")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            with silence_hub():
                self._network = open_network(NetworkSettings(network, 224, file or HUB), device)
        except UserError as error:
            text = str(error).replace("features.network: ", "").replace("features.weights: ", "")
            text = text.replace("its path as features.weights", f"--neighbours {network}=FILE.safetensors")
            raise UserError(f"--neighbours {name}: {text}") from None
        self.name, self.size = network, self._network.pooled_size
        description = json.dumps(self._network.description, sort_keys=True, default=str)
        self.digest = hashlib.sha256(f"encoder {description}".encode()).hexdigest()

    def prepare(self, photo: Photo) -> PreparedPhoto:
        with open_photo(photo, 28) as image:
            return {"pixels": self._network.prepare(image)}

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        return self._network([each["pixels"] for each in prepared]).pooled.float().cpu().numpy()
