"""CLIP, SigLIP and SigLIP 2 of transformers as judges of captions, with their own preprocessing.

No code of a model's folder or repository is executed (pipeline/runtime/hub_loading.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipeline.errors import UserError, summarise_error
from pipeline.features.hub_tower import PREFIX, compute_weights_digest
from pipeline.models.hub_captioner import serialise_config
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.hub_loading import explain_load_errors, load_dual_encoder, load_pretrained
from pipeline.runtime.memory import explain_memory_error
from saywhich.judging.clip_metrics import CLIP_SCORE
from saywhich.judging.foreign_captions import find_foreign_to_hub_tokenizer
from saywhich.judging.open_clip_judge import OFFLINE
from saywhich.judging.photo_vectors import PreparedPhoto
from saywhich.photos import Photo, open_photo


class HubJudge:
    """A dual encoder of transformers, by its name on the Hugging Face hub or from a folder; a `CaptionJudge`."""

    def __init__(self, name: str) -> None:
        """Load the model `hub/NAME` or the folder `name`.

        Raises UserError for another kind of model, and where the model is not on this machine and cannot be fetched.
        Raises UserError where a package that its tokenizer needs is missing.
        """
        source = name.removeprefix(PREFIX)
        self.name = Path(source).resolve().name if Path(source).is_dir() else name
        try:
            self._model: Any = load_dual_encoder(source)
            self._processor = load_pretrained("AutoProcessor", source)
        except UserError as error:
            offline = "" if Path(source).is_dir() else f"; {OFFLINE}"
            raise UserError(f"--judge {name}: {str(error).removeprefix(f'{source}: ')}{offline}") from None
        except ImportError as error:  # its tokenizer needs a package
            raise UserError(
                f"--judge {name}: needs a package that is not installed ({summarise_error(error)}); install it, or "
                "run pip install 'saywhich[judge]'"
            ) from None
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model.to(self._device)
        kind = self._model.config.model_type
        self.metric = CLIP_SCORE if kind == "clip" else None
        self.temperature = float(self._model.logit_scale.detach().neg().exp())
        text_config = self._model.config.text_config
        self._limit = int(text_config.max_position_embeddings)
        self._padding = True if kind == "clip" else "max_length"  # SigLIP was trained on padded texts
        self.size = int(getattr(self._model.config, "projection_dim", 0) or text_config.projection_size)
        config = json.dumps(serialise_config(self._model), sort_keys=True)  # another config can change the embeddings
        identity = (
            f"judge {compute_weights_digest(self._model.cpu())} {config} {_list_processor_digests(self._processor)}"
        )
        self.digest = hashlib.sha256(identity.encode()).hexdigest()
        self._model.to(self._device)

    def prepare(self, photo: Photo) -> PreparedPhoto:
        with open_photo(photo, 28) as image, self._explain_errors("prepare a photo"):
            inputs: Any = self._processor(images=image, return_tensors="pt")
            return {key: value[0] for key, value in inputs.items()}

    @torch.inference_mode()
    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        with self._explain_errors("encode a photo"):
            inputs = {key: torch.stack([each[key] for each in prepared]).to(self._device) for key in prepared[0]}
            return normalize(_get_embeddings(self._model.get_image_features(**inputs)).float(), dim=1).cpu().numpy()

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        with self._explain_errors("encode a caption"):
            inputs = self._processor(
                text=list(texts), padding=self._padding, truncation=True, max_length=self._limit, return_tensors="pt"
            )
            output = self._model.get_text_features(**inputs.to(self._device))
            return normalize(_get_embeddings(output).float(), dim=1).cpu()

    def find_truncated(self, texts: Sequence[str]) -> list[str]:
        if not texts:
            return []  # tokenizers of transformers fail without a text
        with self._explain_errors("encode a caption"):
            ids = self._processor.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        return [text for text, each in zip(texts, ids, strict=True) if len(each) > self._limit]

    def find_unknown(self, texts: Sequence[str]) -> list[str]:
        with self._explain_errors("encode a caption"):
            return find_foreign_to_hub_tokenizer(texts, self._processor.tokenizer)

    @contextmanager
    def _explain_errors(self, work: str) -> Iterator[None]:
        """Raise UserError in one line where the model's files do not fit each other or memory is exhausted."""
        judge = f"--judge {self.name}"
        with (
            explain_memory_error(judge, "give a smaller model"),
            explain_load_errors(f"{judge}: cannot {work} with the model's files"),
        ):
            yield


def _list_processor_digests(processor: Any) -> str:
    """Return the names and SHA-256 of the processor's files: image preprocessing, and the tokenizer's vocabulary."""
    with TemporaryDirectory() as folder:
        processor.save_pretrained(folder)
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return " ".join(f"{path.relative_to(folder)} {compute_sha256(path)}" for path in files)


def _get_embeddings(output: Any) -> Tensor:
    """Return the embeddings: some versions of transformers return a tensor, others an output with `pooler_output`."""
    return output if isinstance(output, Tensor) else output.pooler_output
