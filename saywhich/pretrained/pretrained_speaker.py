"""Pretrained captioners of transformers as speakers, with their own processors and `generate`.

No code of a model's folder or repository is executed, and nothing is fetched for a local folder
(pipeline/runtime/hub_loading.py).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from pipeline.errors import UserError, summarise_error
from pipeline.features.hub_tower import PREFIX
from pipeline.runtime.checksums import check_checksums
from pipeline.runtime.hub_loading import explain_load_errors, import_transformers, load_pretrained, load_weights
from pipeline.runtime.memory import explain_memory_error, is_memory_error
from saywhich.captioning_model import require_positive, require_temperature
from saywhich.photos import Photo, open_photo
from saywhich.pretrained.captioner_families import CaptionerFamily, find_family
from saywhich.pretrained.inverse_cdf_sampling import InverseCdfSampling, draw_photo_uniforms
from saywhich.pretrained.memory_limits import check_fit

DTYPES = ("float32", "bfloat16", "float16")
MAX_PIXELS = 1_500_000  # pixels of a photo in memory; processors make floating-point copies of a whole batch
LogitsProcessor = Callable[[Tensor, Tensor], Tensor]  # tokens so far (n, t), scores (n, V) → scores (n, V)


@dataclass(frozen=True)
class DecodedPhoto:
    """A photo as upright RGB of at most MAX_PIXELS pixels, and a digest of its pixels."""

    image: Image.Image
    content: str


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of generation: K candidates by beam search or sampling, and the longest caption in tokens."""

    beam: int = 5
    samples: int | None = None  # None: beam search
    whole_beam: bool = True  # whether all captions of a beam are candidates, or the best alone
    max_tokens: int = 40
    temperature: float = 1.0
    top_p: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UserError for numbers out of range."""
        require_positive(beam=self.beam, samples=self.samples, max_tokens=self.max_tokens)
        require_temperature(self.temperature)
        if not 0 < self.top_p <= 1:
            raise UserError(f"top-p {self.top_p:g}: give a number above 0, and at most 1")

    @property
    def candidates(self) -> int:
        """Return K, the number of candidates of a photo."""
        return self.samples or (self.beam if self.whole_beam else 1)


class PretrainedSpeaker:
    """A pretrained captioner by its name on the Hugging Face hub (hub/OWNER/NAME) or from a folder."""

    def __init__(
        self,
        name: str,
        *,
        prompt: str | None = None,
        language: str | None = None,
        dtype: str = "float32",
        device: torch.device | str | None = None,
    ) -> None:
        """Load the captioner with its processor.

        `prompt` is the instruction of a chat model or BLIP-2, Florence-2's task, or the beginning of BLIP's captions.
        `language` is added to a chat model's instruction. Raises UserError in one line for another kind of model,
        and where the model or the device cannot be used.
        """
        self.source = name.removeprefix(PREFIX)
        self.name = name
        try:
            self.device = _open_device(device)
            self._load(prompt, language, dtype)
        except UserError as error:
            raise UserError(f"--speaker {name}: {str(error).removeprefix(f'{self.source}: ')}") from None
        except ImportError as error:  # its processor needs a package
            raise UserError(
                f"--speaker {name}: needs a package that is not installed ({summarise_error(error)}); install it "
                "with pip"
            ) from None

    def _load(self, prompt: str | None, language: str | None, dtype: str) -> None:
        if dtype not in DTYPES:
            raise UserError(f"the precision {dtype} is none of {', '.join(DTYPES)}; give one of them")
        transformers = import_transformers()
        if Path(self.source).is_dir():
            check_checksums(Path(self.source), "copy the whole folder, or export it again")
        config = load_pretrained("AutoConfig", self.source)
        self.family: CaptionerFamily = find_family(config.model_type)
        if prompt is not None and not self.family.takes_prompt:
            raise UserError(f"captioners of the kind {config.model_type} take no --prompt; leave it out")
        if language is not None and not self.family.chat:
            raise UserError(
                f"captioners of the kind {config.model_type} generate captions in the language of their training "
                "alone; leave out --language, or give a chat model"
            )
        if language is not None and not language.strip():
            raise UserError("--language is empty; name a language, such as German")
        self.prompt = self.family.prompt if prompt is None else prompt
        if language is not None:
            self.prompt = f"{self.prompt} Answer in {language}."
        self.processor = _open_processor(self.source, self.family)
        precision: torch.dtype = getattr(torch, dtype)
        with explain_memory_error("its weights", "give --dtype bfloat16, or a smaller model"):
            with torch.device("meta"), explain_load_errors(f"{self.source}: its config describes no complete model"):
                check_fit(getattr(transformers, self.family.loader)(config), precision, self.device)
            model, _ = load_weights(self.family.loader, self.source, dtype, optional="pooler")
            self.model = model.to(self.device)
        embeddings, tokens = _count_text_embeddings(self.model), len(self.tokenizer)
        if tokens > embeddings:
            raise UserError(
                f"its processor has {tokens} tokens and its model embeds {embeddings}: the processor's files do not "
                "belong to the model; get both again from its publisher"
            )

    @property
    def tokenizer(self) -> Any:
        """Return the processor's tokenizer."""
        return self.processor.tokenizer

    def save_processor(self, folder: Path) -> None:
        """Write the processor, or its parts, into `folder`."""
        whole = self.family.whole_processor
        for part in [self.processor] if whole else [self.processor.image_processor, self.processor.tokenizer]:
            part.save_pretrained(folder)

    def prepare(self, photo: Photo) -> DecodedPhoto:
        """Decode a photo, reduced to at most MAX_PIXELS pixels; called in threads.

        Raises UserError where the photo cannot be read.
        """
        with open_photo(photo, 8) as image:
            scale = min(1, math.sqrt(MAX_PIXELS / (image.width * image.height)))
            # a side of a strip is at least 1, so the other side alone must not exceed MAX_PIXELS
            width, height = (min(max(1, int(scale * side)), MAX_PIXELS) for side in image.size)
            image = image.resize((width, height), reducing_gap=2.0) if scale < 1 else image.copy()
        content = hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()
        return DecodedPhoto(image, content)

    def encode(self, photos: Sequence[DecodedPhoto]) -> Mapping[str, Any]:
        """Return the model's inputs of B photos, as its own processor prepares them, on its device."""
        images = [photo.image for photo in photos]
        if self.family.chat:
            instruction = [{"type": "text", "text": self.prompt}]
            inputs = self.processor.apply_chat_template(
                [[{"role": "user", "content": [{"type": "image", "image": image}, *instruction]}] for image in images],
                add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
                processor_kwargs={"padding": True},
            )  # fmt: skip
        elif self.prompt is None:
            inputs = self.processor.image_processor(images, return_tensors="pt")
        else:
            texts = [self.prompt] * len(images)
            inputs = self.processor(images=images, text=texts, padding=True, return_tensors="pt")
        return inputs.to(self.device, self.model.dtype)  # type: ignore[no-any-return]

    @torch.inference_mode()
    def generate_candidates(
        self, photos: Sequence[DecodedPhoto], settings: GenerationSettings, processors: Sequence[LogitsProcessor] = ()
    ) -> list[list[str]]:
        """Return K candidate captions of each of B photos, the most likely first where they come from a beam.

        `processors` change the scores of tokens before temperature, top-p and the choice of a token; the rows of a
        photo's candidates are adjacent. A photo's samples depend on the photo, the settings and `processors` alone.
        Raises UserError where the model cannot generate or memory is exhausted.
        """
        remedy = "give a smaller --batch, --samples or --beam, --dtype bfloat16 or a smaller model"
        per_photo, width = settings.candidates, settings.samples or settings.beam
        with explain_memory_error(f"--speaker {self.name}: captions of a batch, {len(photos)} × {width}", remedy):
            try:
                inputs = self.encode(photos)
                tokens = self.model.generate(**inputs, **self._make_arguments(photos, settings, processors))
            except (torch.OutOfMemoryError, UserError):
                raise
            except Exception as error:  # bad values in a model's files can raise any exception
                if is_memory_error(error):
                    raise
                raise UserError(
                    f"--speaker {self.name}: it cannot generate ({summarise_error(error)}); give less than "
                    f"--max-tokens {settings.max_tokens}, or get the model again: its processor's files may not be "
                    "those of its model"
                ) from None
        decoded = self.tokenizer.batch_decode(self._remove_prompt(tokens, inputs), skip_special_tokens=True)
        texts = [" ".join(text.split()) for text in decoded]
        return [texts[first : first + per_photo] for first in range(0, len(texts), per_photo)]

    def _make_arguments(
        self, photos: Sequence[DecodedPhoto], settings: GenerationSettings, processors: Sequence[LogitsProcessor]
    ) -> dict[str, Any]:
        """Return the arguments of `generate`, which replace the settings of the same names in generation_config.json.

        The model's other settings there, such as no_repeat_ngram_size, keep their effect.
        """
        from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

        lengths: dict[str, Any] = {"max_new_tokens": settings.max_tokens, "max_length": None}
        if settings.samples is None:
            search = {"do_sample": False, "num_beams": settings.beam, "num_return_sequences": settings.candidates}
            sampling: dict[str, Any] = {"temperature": None, "top_p": None, "top_k": None}
            return {**lengths, **search, **sampling, "logits_processor": LogitsProcessorList(processors)}
        contents = [photo.content for photo in photos]
        uniforms = draw_photo_uniforms(settings.seed, contents, settings.samples, settings.max_tokens)
        steps = [*processors, TemperatureLogitsWarper(settings.temperature)]
        steps += [TopPLogitsWarper(settings.top_p)] if settings.top_p < 1 else []
        steps.append(InverseCdfSampling(uniforms.to(self.device)))
        search = {"do_sample": True, "num_beams": 1, "num_return_sequences": settings.samples}
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
        return {**lengths, **search, **sampling, "logits_processor": LogitsProcessorList(steps)}

    def _remove_prompt(self, tokens: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        """Return generated tokens (n, T) without the prompt that a decoder-only model repeats."""
        prompt = inputs.get("input_ids")
        if prompt is None or self.family.begins_caption or prompt.shape[1] > tokens.shape[1]:
            return tokens
        repeated = prompt.repeat_interleave(len(tokens) // len(prompt), 0)
        return tokens[:, prompt.shape[1] :] if torch.equal(tokens[:, : prompt.shape[1]], repeated) else tokens


def _open_device(device: torch.device | str | None) -> torch.device:
    """Return a device, by default a GPU where there is one; raises UserError for an unusable device."""
    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch_device = torch.device(name)
        torch.empty(0, device=torch_device)
    except (RuntimeError, AssertionError) as error:  # PyTorch without CUDA raises AssertionError
        raise UserError(f"the device {name} cannot be used ({summarise_error(error)}); give cpu or cuda") from None
    return torch_device


def _open_processor(source: str, family: CaptionerFamily) -> Any:
    """Open the processor of a captioner. Raises UserError where it lacks a part that the family needs."""
    if family.whole_processor:
        processor = load_pretrained("AutoProcessor", source)
    else:
        parts = {"image_processor": "AutoImageProcessor", "tokenizer": "AutoTokenizer"}
        processor = SimpleNamespace(**{part: load_pretrained(kind, source) for part, kind in parts.items()})
    for part in ("image_processor", "tokenizer"):
        if not hasattr(processor, part):
            raise UserError(
                f"its processor has no {part}: preprocessor_config.json or tokenizer files are missing; get the whole "
                "model again"
            )
    if family.chat and not getattr(processor, "chat_template", None):
        raise UserError("it has no chat template, so it is no chat model; give another captioner")
    if family.chat:
        processor.tokenizer.padding_side = "left"  # generation continues at the right end
    return processor


def _count_text_embeddings(model: Any) -> int:
    """Return the number of tokens that the text side embeds."""
    decoder = getattr(model, "decoder", model) if model.config.model_type == "vision-encoder-decoder" else model
    return int(decoder.get_input_embeddings().weight.shape[0])
