"""Annotated objects of drawn scenes and films, the training data of an object detector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.features.object_detector import AnnotatedImage
from pipeline.runtime.film_decoding import choose_frame_indices
from pipeline.worlds.films.film_facts import FILM_FACTS, ActorView, FilmRecord, read_films
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene, Thing, name_atmosphere, read_facts

THING_LABELS = ("category", "colour", "pose", "pattern", "size", "count")  # labels of an object in a scene
ACTOR_LABELS = ("category", "colour", "pattern", "size")  # constant labels of an actor; pose and facing differ by frame
THIRDS = ("left", "middle", "right")  # horizontal thirds of a frame, by the centre of an actor's box


def list_annotated_objects(prepared: PreparedData, frames: int | None = None) -> list[AnnotatedImage]:
    """Return the annotations of `frames` frames of each film, or of all scenes if `frames` is None, in order.

    Raises UserError for images that were not drawn, images without facts, and a damaged file of facts.
    """
    path = prepared.folder / (FILM_FACTS if frames else SCENE_FACTS)
    if not path.exists():
        raise UserError(
            f"{path}: no such file; network object_detector is trained on the facts of drawn scenes or films; choose "
            "another features.network, or set frames to a number for films and to null for scenes"
        )
    names = prepared.ids.to_pylist()
    if frames:
        films = read_films(path)
        _check_known(names, films, path)
        return [image for name in names for image in _annotate_frames(films[name], frames)]
    scenes = read_facts(path)
    _check_known(names, scenes, path)
    return [_annotate_scene(scenes[name]) for name in names]


def _check_known(names: Sequence[str], facts: Mapping[str, object], path: Path) -> None:
    """Raise UserError for an image without facts."""
    if missing := [name for name in names if name not in facts]:
        raise UserError(f"{path}: no facts of image {missing[0]}; run the prepare stage again")


def _annotate_frames(record: FilmRecord, frames: int) -> list[AnnotatedImage]:
    """Return the annotations of `frames` frames of a film. The labels of a whole frame include each actor's third."""
    scene = record.film.scene
    images = []
    for frame in choose_frame_indices([1.0] * record.frames, frames):
        views = [view for view in record.views if view.frame == frame]
        thirds = (f"{scene.things[view.actor].category} {_find_third(view)}" for view in views)
        boxes = [(view.box, _list_actor_labels(scene.things[view.actor], view)) for view in views]
        images.append(AnnotatedImage((*_list_scene_labels(scene), *thirds), tuple(boxes)))
    return images


def _list_actor_labels(thing: Thing, view: ActorView) -> tuple[str, ...]:
    appearance = (f"{label} {getattr(thing, label)}" for label in ACTOR_LABELS)
    return (*appearance, f"pose {view.pose}", f"facing {view.facing}")


def _find_third(view: ActorView) -> str:
    left, _, right, _ = view.box
    return THIRDS[min(2, int((left + right) / 2 * 3))]


def _list_scene_labels(scene: Scene) -> tuple[str, str]:
    return f"setting {scene.setting}", f"air {name_atmosphere(scene)}"


def _annotate_scene(scene: Scene) -> AnnotatedImage:
    objects = [
        (box, tuple(f"{label} {getattr(thing, label)}" for label in THING_LABELS))
        for thing in scene.things
        for box in thing.boxes
    ]
    return AnnotatedImage(_list_scene_labels(scene), tuple(objects))
