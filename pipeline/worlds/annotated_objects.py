"""Annotated objects of drawn scenes and films, which an object detector is trained on."""

from __future__ import annotations

from itertools import groupby

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.features.object_detector import AnnotatedImage
from pipeline.runtime.film_decoding import frames_to_take
from pipeline.worlds.films.film_facts import FACTS as FILM_FACTS
from pipeline.worlds.films.film_facts import ActorView, FilmRecord, read_films
from pipeline.worlds.scenes.scene_facts import FACTS, Scene, Thing, atmosphere, read_facts

LABELS = ("category", "colour", "pose", "pattern", "size", "count")  # labels of an object in a scene
OF_ACTORS = ("category", "colour", "pattern", "size")  # labels of an actor in a film; pose and facing differ by frame
THIRDS = ("left", "middle", "right")  # horizontal thirds of a frame, by the centre of an actor's box


def annotated_objects(prepared: Prepared, frames: int | None = None) -> list[AnnotatedImage]:
    """Return the annotations of all images, in order; with `frames`, of that many frames of each film, film by film.

    Raises UserError for images that were not drawn.
    """
    path = prepared.folder / (FILM_FACTS if frames else FACTS)
    if not path.exists():
        raise UserError(
            f"{path}: no such file: object_detector learns the facts of drawn scenes or films; choose another "
            "features.network"
        )
    if not frames:
        scenes = read_facts(path)
        return [_annotated(scenes[name]) for name in prepared.ids.to_pylist()]
    films = read_films(path)
    return [each for name in prepared.ids.to_pylist() for each in _annotated_frames(films[name], frames)]


def _annotated_frames(known: FilmRecord, frames: int) -> list[AnnotatedImage]:
    """Return the annotations of a film's extracted frames. The labels of the whole frame include each actor's third."""
    scene = known.film.scene
    views = {frame: list(some) for frame, some in groupby(known.views, key=lambda each: each.frame)}
    annotated = []
    for frame in frames_to_take([1.0] * known.frames, frames):
        visible = views.get(frame, [])
        thirds = (f"{scene.things[each.actor].category} {_third(each)}" for each in visible)
        boxes = [(each.box, _labels(scene.things[each.actor], each)) for each in visible]
        annotated.append(AnnotatedImage((*_of_scene(scene), *thirds), tuple(boxes)))
    return annotated


def _labels(thing: Thing, view: ActorView) -> tuple[str, ...]:
    appearance = (f"{label} {getattr(thing, label)}" for label in OF_ACTORS)
    return (*appearance, f"pose {view.pose}", f"facing {view.facing}")


def _third(view: ActorView) -> str:
    left, _, right, _ = view.box
    return THIRDS[min(2, int((left + right) / 2 * 3))]


def _of_scene(scene: Scene) -> tuple[str, str]:
    return f"setting {scene.setting}", f"air {atmosphere(scene)}"


def _annotated(scene: Scene) -> AnnotatedImage:
    objects = [
        (box, tuple(f"{label} {getattr(thing, label)}" for label in LABELS))
        for thing in scene.things
        for box in thing.boxes
    ]
    return AnnotatedImage(_of_scene(scene), tuple(objects))
