"""Claims that captions make about films, and the films of which the claims are true."""

import numpy as np
import pytest

from pipeline.worlds.films.film_captions import describe_film
from pipeline.worlds.films.film_claims import FilmClaims
from pipeline.worlds.films.film_facts import Event, Film, Track
from pipeline.worlds.films.sample_films import sample_film_neighbourhood
from pipeline.worlds.scenes.scene_facts import Scene, Thing

DOG, MAN = (Thing(name, "brown", "plain", "medium", 1, "standing", "ground", "right") for name in ("dog", "man"))
SCENE = Scene("park", "sunny", "day", 0.45, 0.45, {"trees": 0.5}, ())
TRACK = Track(0.5, 0.9, 0.4, False)


def make_film(*actors: tuple[Thing, tuple[tuple[str, str, str], ...]], story: str = "solo", start: float = 0.0) -> Film:
    """Return a film with these events, each of length 0.1; the second actor begins at the time `start`."""
    things = tuple(thing for thing, _ in actors)
    events = tuple(
        tuple(Event(*fields, i * start + 0.2 * n, i * start + 0.2 * n + 0.1) for n, fields in enumerate(actor_events))
        for i, (_, actor_events) in enumerate(actors)
    )
    scene = Scene(**{**vars(SCENE), "things": things})
    return Film(scene, story, "", (TRACK,) * len(actors), events)


ENTER = ("enter", "left", "run")
SIT, JUMP = ("sit", "", ""), ("jump", "", "")
FILMS = [
    make_film((DOG, (ENTER, SIT))),
    make_film((DOG, (("enter", "right", "walk"), SIT))),
    make_film((DOG, (SIT, JUMP))),
    make_film((DOG, (JUMP, SIT))),
    make_film((MAN, (JUMP,)), (DOG, (SIT,)), story="both", start=0.5),
    make_film((MAN, (("cross", "left", "walk"),)), (DOG, (("cross", "left", "run"),)), story="follow", start=0.2),
]


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a dog runs in from the left", [0]),
        ("a dog enters from the right", [1]),
        ("a dog comes into the picture", [0, 1]),
        ("a dog sits down", [0, 1, 2, 3, 4]),
        ("a dog sits down and then jumps", [2]),
        ("a dog is jumping and then sitting down", [3]),
        ("a dog jumping before sitting down", [3]),
        ("a man jumps before a dog sits down", [4]),
        ("a man jumps and then a dog sits", [4]),
        ("after a dog sits down, a man jumps", []),
        ("a man walks from left to right and a dog follows", [5]),
        ("a dog follows a man", [5]),
        ("a man follows a dog", [5]),  # a claim about a story has no subject
        ("a dog goes after a man from right to left", []),
        ("a man and a dog meet", []),
        ("a man", [4, 5]),
    ],
)
def test_the_films_of_which_all_claims_are_true(caption: str, expected: list[int]) -> None:
    claims = FilmClaims(FILMS).check(caption)
    assert claims
    assert np.flatnonzero(np.all(list(claims.values()), axis=0)).tolist() == expected


def test_annotators_claim_nothing_false_and_distinguish_films_of_a_neighbourhood() -> None:
    films = [film for number in range(40) for film in sample_film_neighbourhood(1, number)]
    claims, hits = FilmClaims(films), 0.0
    for i, each in enumerate(films):
        for caption in describe_film(each, 1, i, captions=2):
            truths = claims.check(caption.raw)
            assert [claim for claim, truth in truths.items() if not truth[i]] == []
            true_counts = np.stack(list(truths.values()))[:, i // 8 * 8 : i // 8 * 8 + 8].sum(0)
            hits += 1 / (true_counts == true_counts.max()).sum()
            assert true_counts[i % 8] == true_counts.max()
    assert hits / (2 * len(films)) > 0.4  # by chance: 0.125
