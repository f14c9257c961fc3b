"""saywhich caption PHOTO|FOLDER…: caption photos; --among selects the caption that identifies a photo among others."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

import saywhich
from pipeline.errors import UserError
from pipeline.evaluation.rerank_scores import MARGIN, SIMILARITY
from saywhich.caption_outputs import CaptionOutputs, add_outputs, open_outputs
from saywhich.commands import add_model_option, choose_model_folder
from saywhich.pragmatic_decoding import DISTRACTORS, LISTENER, SPEAKER, PragmaticDecoding, PragmaticGallery
from saywhich.pretrained.pretrained_options import add_pretrained, open_captioner, refuse_pretrained

if TYPE_CHECKING:
    from saywhich.captioning_model import Caption
    from saywhich.model import Model

CANDIDATES = 20  # default number of ranked samples


def add(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("photos", nargs="+", metavar="PHOTO|FOLDER", help="photos, or folders of them")
    add_model_option(parser)
    parser.add_argument(
        "--among",
        action="append",
        metavar="FOLDER",
        help="distinguish each photo from these photos: print the candidate caption with the photo's largest margin by "
        "the listener, and the photo's rank",
    )
    parser.add_argument(
        "--score",
        choices=(MARGIN, SIMILARITY),
        help="how the listener chooses among candidate captions: by the photo's margin over the photos of --among "
        "(default), or by the similarity of caption and photo, without other photos",
    )
    parser.add_argument(
        "--pragmatic",
        type=float,
        metavar="ALPHA",
        help="with --among: choose each word to distinguish the photo from the most similar photos, too; ALPHA is the "
        "weight of this aim, and 0 is plain decoding; begin with 1",
    )
    parser.add_argument(
        "--distractors",
        type=int,
        metavar="N",
        help=f"with --pragmatic: the number of similar photos; default: {DISTRACTORS}",
    )
    parser.add_argument(
        "--posterior",
        choices=(SPEAKER, LISTENER),
        help="with --pragmatic: the posterior over the photo and the similar photos: the speaker's (default) or the "
        "listener's",
    )
    generation = parser.add_mutually_exclusive_group()
    generation.add_argument("--beam", type=int, metavar="N", help="print the best caption of a beam of N; default: 5")
    generation.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help=f"sample N captions; default with --score similarity, or --among without --pragmatic: {CANDIDATES}",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the samples; default: 0")
    add_outputs(parser)
    add_pretrained(parser)
    parser.add_argument(
        "--batch", type=int, metavar="N", help="captions that a pretrained speaker generates at once; default: 32"
    )


def run(options: Namespace) -> int:
    """Caption the photos in batches; return 1 where a photo was not read or its caption not written, else 0."""
    from saywhich.photos import list_photo_files

    photos = list_photo_files(options.photos)
    gallery = list_photo_files(options.among) if options.among else []
    pragmatic = _parse_pragmatic(options)
    ranked = bool(gallery) or options.score == SIMILARITY
    draws_samples = ranked and options.beam is None and pragmatic is None
    samples = CANDIDATES if options.samples is None and draws_samples else options.samples
    if samples is None and options.temperature is not None:
        raise UserError(
            f"--temperature {options.temperature:g}: goes with samples, not a beam; give --samples {CANDIDATES}"
        )
    if options.listener is not None and not ranked:
        raise UserError(f"--listener {options.listener}: ranks captions; give --among FOLDER or --score similarity")
    with open_outputs(options, photos) as outputs:
        if options.speaker is None and options.preset is None:
            refuse_pretrained(options)
            unreadable = _run_trained(options, photos, gallery, samples, pragmatic, outputs)
        else:
            captioner = open_captioner(options, ranked, samples, pragmatic, options.score or MARGIN)
            unreadable = _write_captions(captioner.stream(photos, gallery), len(photos), outputs) + captioner.unreadable
    return int(unreadable + outputs.failed > 0)


def _parse_pragmatic(options: Namespace) -> PragmaticDecoding | None:
    """Return the settings of pragmatic decoding, if any; raises UserError for options that do not go together."""
    if options.score == MARGIN and not options.among:
        raise UserError(f"--score {MARGIN}: needs photos to compare with; give --among FOLDER")
    if options.pragmatic is None:
        for name in ("distractors", "posterior"):
            if (value := getattr(options, name)) is not None:
                raise UserError(f"--{name} {value}: goes with --pragmatic; give --pragmatic 1")
        return None
    if options.score is not None:
        raise UserError(f"--score {options.score}: cannot be combined with --pragmatic; leave one out")
    if not options.among:
        raise UserError(f"--pragmatic {options.pragmatic:g}: needs photos to compare with; give --among FOLDER")
    distractors = DISTRACTORS if options.distractors is None else options.distractors
    return PragmaticDecoding(options.pragmatic, distractors, options.posterior or SPEAKER)


def _run_trained(
    options: Namespace,
    photos: list[Path],
    gallery: list[Path],
    samples: int | None,
    pragmatic: PragmaticDecoding | None,
    outputs: CaptionOutputs,
) -> int:
    """Caption the photos by a trained model and its own or the given listener.

    Returns the number of photos, including the gallery's, that could not be read.
    """
    import torch

    from saywhich.captioning_model import BEAM
    from saywhich.encoded_photos import EncodedPhotos
    from saywhich.model_with_listener import ModelWithListener
    from saywhich.photos import format_unlike_note
    from saywhich.pretrained.pretrained_captioner import open_listener
    from saywhich.streaming import embed_gallery, stream_features

    trained_model, unreadable = saywhich.load(choose_model_folder(options)), 0
    model: Model | ModelWithListener = trained_model
    if options.listener is not None:
        model = ModelWithListener(trained_model, open_listener(options.listener))
    generation: dict[str, Any] = {"beam": BEAM if options.beam is None else options.beam, "samples": samples}
    generation |= {"temperature": options.temperature, "seed": options.seed}
    if options.score == SIMILARITY:
        model.require_listener()
        generation["score"] = SIMILARITY
    if gallery:
        gallery_photos = embed_gallery(model, gallery)
        unreadable = len(gallery) - len(gallery_photos.files)
        among = generation["among"] = EncodedPhotos(torch.from_numpy(gallery_photos.vectors), gallery_photos.contents)
        if pragmatic is not None:
            generation["pragmatic"] = PragmaticGallery(
                pragmatic, among, lambda rows: model.extract_features([gallery_photos.files[row] for row in rows])
            )
    files: list[Path] = []
    contents: list[str] = []

    def caption_parts() -> Iterator[tuple[list[Path], list[Caption]]]:
        for part, features in stream_features(model, photos):
            yield part, model.caption_features(features, **generation)
            files.extend(part)
            contents.extend(features.contents)

    unreadable += _write_captions(caption_parts(), len(photos), outputs)
    if note := format_unlike_note(contents, files):
        print(note, file=sys.stderr)
    return unreadable


def _write_captions(
    parts: Iterator[tuple[list[Path], list[Caption]]], photo_count: int, outputs: CaptionOutputs
) -> int:
    """Write captions as they are generated, with a progress bar; return the number of photos without a caption."""
    uncaptioned_count, no_distractor_count = photo_count, 0
    with tqdm(total=photo_count, desc="photos", unit="", disable=None) as bar:
        for part, captions in parts:
            for file, caption in zip(part, captions, strict=True):
                outputs.write(file, caption)
                no_distractor_count += caption.of == 1
            bar.update(len(part))
            uncaptioned_count -= len(part)
    if no_distractor_count:
        remedy = "give --among more photos"
        print(
            f"note: {no_distractor_count} of {photo_count} photos had no other photo to compare with; {remedy}",
            file=sys.stderr,
        )
    return uncaptioned_count
