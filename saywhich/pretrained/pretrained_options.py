"""Options of commands that take pretrained models: a speaker, a listener, a preset of both, and generation.

This module must not import PyTorch, whose import takes a second.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from saywhich.judging.judging_choices import DEFAULT_JUDGE, JUDGE_FORMS
from saywhich.pretrained.presets import PRESETS, confirm_downloads

if TYPE_CHECKING:
    from saywhich.pragmatic_decoding import PragmaticDecoding
    from saywhich.pretrained.pretrained_captioner import PretrainedCaptioner
    from saywhich.pretrained.pretrained_model import PretrainedModel

FORMS = f"a name of saywhich judge --judge, such as {DEFAULT_JUDGE}: {JUDGE_FORMS}"


def add_pretrained(parser: ArgumentParser) -> None:
    """Add the options of pretrained speakers and listeners to the parser of `caption` or `serve`."""
    group = parser.add_argument_group("pretrained models, without any training")
    group.add_argument(
        "--speaker",
        metavar="NAME",
        help="a captioner of transformers, hub/OWNER/NAME or a folder: BLIP, BLIP-2, GIT, VisionEncoderDecoder, "
        "Florence-2, or a chat model that takes images",
    )
    _add_listener(
        group,
        f"ranks captions among photos: {FORMS}; default: the preset's, or {DEFAULT_JUDGE}; saywhich caption takes it "
        "with --model, too",
    )
    group.add_argument(
        "--prompt",
        metavar="TEXT",
        help="the instruction of a chat model or BLIP-2, Florence-2's task, or the first words of BLIP's captions",
    )
    group.add_argument(
        "--language", metavar="NAME", help="the captions' language, for chat models only, such as German"
    )
    group.add_argument("--dtype", help="precision: float32, bfloat16, float16; default: float32")
    group.add_argument("--device", metavar="NAME", help="cpu, cuda or cuda:1; default: a GPU where there is one")
    group.add_argument("--max-tokens", type=int, metavar="N", help="longest caption in tokens; default: 40")
    group.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="divides the logits of samples; default: .3 where a listener ranks a trained model's samples, else 1",
    )
    group.add_argument("--top-p", type=float, metavar="P", help="probability mass of the sampled tokens; default: 0.9")


def add_listener(parser: ArgumentParser) -> None:
    """Add the options of a pretrained listener to the parser of `find`."""
    _add_listener(parser.add_argument_group("pretrained models, without any training"), FORMS)


def _add_listener(group: _ArgumentGroup, listener_help: str) -> None:
    group.add_argument("--listener", metavar="NAME", help=listener_help)
    group.add_argument("--preset", choices=PRESETS, help="a speaker and a listener of this size, from the hub")
    group.add_argument("--yes", action="store_true", help="download a preset's models without a question")


def choose_listener(options: Namespace) -> str | None:
    """Return the listener's name by `--listener` or `--preset`, or None where neither option is given.

    Raises UserError as `confirm_downloads` does, for an empty name, and where `--model` is also given.
    """
    _require_names(options)
    if options.listener is None and options.preset is None:
        return None
    if options.model is not None:
        raise UserError("--model names a trained model, with a listener of its own: leave out --listener and --preset")
    if options.listener is not None:
        return str(options.listener)
    listener = PRESETS[options.preset].listener
    confirm_downloads([listener], options.yes)
    return listener.name


def refuse_pretrained(options: Namespace, *option_names: str) -> None:
    """Raise UserError where an option of pretrained speakers, or one of `option_names`, is given."""
    for name in ("prompt", "language", "dtype", "device", "max_tokens", "top_p", "batch", *option_names):
        if (value := getattr(options, name, None)) is not None:
            raise UserError(f"--{name.replace('_', '-')} {value}: goes with --speaker or --preset; give one of them")


def open_captioner(
    options: Namespace, ranked: bool, samples: int | None, pragmatic: PragmaticDecoding | None, score: str
) -> PretrainedCaptioner:
    """Open the speaker in the parsed options of `caption`, and the listener if candidates are `ranked`.

    Raises UserError in one line for options that do not go together, and for models that cannot be opened.
    """
    from saywhich.pretrained.pretrained_captioner import BATCH, PretrainedCaptioner

    if options.model is not None:
        raise UserError("--model names a trained model, with a speaker of its own: leave out --speaker and --preset")
    if samples is None and options.top_p is not None:
        raise UserError(f"--top-p {options.top_p:g}: goes with samples, not a beam; give --samples N")
    batch = BATCH if options.batch is None else options.batch
    if batch < 1:
        raise UserError(f"--batch {batch}: give 1 or more")
    beam = 5 if options.beam is None else options.beam
    model = open_pretrained(options, ranked, beam=beam, samples=samples, seed=options.seed)
    return PretrainedCaptioner(model, batch, pragmatic, score)


def open_pretrained(options: Namespace, ranked: bool = True, **generation: Any) -> PretrainedModel:
    """Open the models of the parsed options of `caption` or `serve`; raises UserError as `open_captioner` does.

    `generation` are further settings of `GenerationSettings`.
    """
    from saywhich.pretrained.pretrained_captioner import open_listener
    from saywhich.pretrained.pretrained_model import PretrainedModel
    from saywhich.pretrained.pretrained_speaker import GenerationSettings, PretrainedSpeaker

    _require_names(options)
    arguments = {
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
    } | generation
    settings = GenerationSettings(**{name: value for name, value in arguments.items() if value is not None})
    name, listener = _choose_models(options, ranked)
    judge = open_listener(listener) if ranked else None
    speaker_options = {"prompt": options.prompt, "language": options.language, "device": options.device}
    speaker = PretrainedSpeaker(name, **speaker_options, dtype=options.dtype or "float32")
    return PretrainedModel(speaker, judge, settings)


def _require_names(options: Namespace) -> None:
    """Raise UserError for an empty name, as an unset variable of the shell gives it."""
    for name in ("speaker", "listener"):
        if getattr(options, name, None) == "":
            raise UserError(f"--{name} is empty: name a model, or leave the option out")


def _choose_models(options: Namespace, ranked: bool) -> tuple[str, str]:
    """Return the names of speaker and listener; the download of a preset's used models is confirmed first."""
    speaker, listener = options.speaker, options.listener or DEFAULT_JUDGE
    if options.preset is not None:
        preset = PRESETS[options.preset]
        speaker, listener = speaker or preset.speaker.name, options.listener or preset.listener.name
        used_names = {speaker, listener if ranked else None}
        confirm_downloads(
            [model for model in (preset.speaker, preset.listener) if model.name in used_names], options.yes
        )
    return speaker, listener
