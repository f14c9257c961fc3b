"""Drawn films: neighbourhoods whose films differ in motion, captions that are true, and frames that show the facts."""

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from pipeline.runtime.command import run_command
from pipeline.worlds.films.__main__ import main as draw_films_sheet
from pipeline.worlds.films.draw_film import draw_film
from pipeline.worlds.films.film_captions import describe_film
from pipeline.worlds.films.film_facts import Event, Film, Track
from pipeline.worlds.films.film_words import conjugate, form_participle
from pipeline.worlds.films.film_world import GAITS, OPPOSITE, list_inside_plans, list_outside_plans
from pipeline.worlds.films.motion import compute_actor_state, compute_frame_times, list_visible_actors
from pipeline.worlds.films.sample_films import sample_film, sample_film_neighbourhood
from pipeline.worlds.scenes.scene_captions import SceneCaption, SceneClaim
from pipeline.worlds.scenes.scene_facts import Thing, name_atmosphere
from pipeline.worlds.scenes.scene_world import CATEGORIES, NEIGHBOURS

SEED, NUMBER, FRAMES = 1, 120, 16


@pytest.fixture(scope="module")
def neighbourhoods() -> list[tuple[Film, ...]]:
    return [sample_film_neighbourhood(SEED, number) for number in range(NUMBER)]


@pytest.fixture(scope="module")
def captioned_films(neighbourhoods: list[tuple[Film, ...]]) -> list[tuple[Film, SceneCaption]]:
    films = [film for films in neighbourhoods for film in films]
    return [(film, caption) for i, film in enumerate(films) for caption in describe_film(film, SEED, i)]


def drop_times(film: Film) -> tuple[object, ...]:
    """Return a film's story, order, and events without their times."""
    return film.story, film.order, tuple(tuple(event[:3] for event in events) for events in film.events)


def list_colours(film: Film) -> tuple[str, ...]:
    return tuple(thing.colour for thing in film.scene.things)


def test_a_film_depends_on_seed_and_number_alone() -> None:
    assert sample_film(SEED, 13) == sample_film_neighbourhood(SEED, 1)[5]
    assert sample_film(SEED, 13) != sample_film(SEED + 1, 13)
    first = sample_film(SEED, 13)
    sample_film_neighbourhood.cache_clear()
    second = sample_film(SEED, 13)
    assert first is not second
    assert first == second
    assert describe_film(first, SEED, 13) == describe_film(second, SEED, 13) != describe_film(second, SEED, 14)


def test_films_of_a_neighbourhood_share_setting_and_actors(neighbourhoods: list[tuple[Film, ...]]) -> None:
    for number, films in enumerate(neighbourhoods):
        assert len(films) == NEIGHBOURS
        assert {film.scene.neighbourhood for film in films} == {number}
        shared = {(f.scene.setting, f.scene.weather, f.scene.light, f.scene.horizon) for f in films}
        actors = {tuple((t.category, t.pattern, t.size, t.facing, t.pose) for t in f.scene.things) for f in films}
        assert (len(shared), len(actors)) == (1, 1)
        assert len({tuple(track.inside for track in film.tracks) for film in films}) == 1


def test_neighbours_differ_mostly_in_events(neighbourhoods: list[tuple[Film, ...]]) -> None:
    pairs = [(a, b) for films in neighbourhoods for a, b in combinations(films, 2)]
    assert [
        pair
        for pair in pairs
        if drop_times(pair[0]) == drop_times(pair[1]) and list_colours(pair[0]) == list_colours(pair[1])
    ] == []
    assert sum(drop_times(a) != drop_times(b) for a, b in pairs) > 0.9 * len(pairs)
    assert sum(list_colours(a) == list_colours(b) for a, b in pairs) > 0.6 * len(pairs)
    for films in neighbourhoods:  # the films differ in at most two facts, whose values make a grid
        colours = {list_colours(film) for film in films}
        assert len({drop_times(film) for film in films}) * len(colours) == NEIGHBOURS
        assert all(sum(x != y for x, y in zip(a, b, strict=True)) == 1 for a, b in combinations(colours, 2))


def test_the_first_frame_does_not_show_the_events(neighbourhoods: list[tuple[Film, ...]]) -> None:
    compared = 0
    for films in neighbourhoods[:12]:
        first: dict[tuple[str, ...], bytes] = {}
        for film in films:
            frame = draw_film(film, SEED, FRAMES, 32)[0].tobytes()
            compared += list_colours(film) in first
            assert first.setdefault(list_colours(film), frame) == frame
    assert compared > 12


def test_the_middle_frame_often_does_not_show_the_events(neighbourhoods: list[tuple[Film, ...]]) -> None:
    """Many films have a neighbour with equal poses, facings, positions and colours in the middle frame."""

    def describe_middle_frame(film: Film) -> list[tuple[object, ...]]:
        colours = list_colours(film)
        return [
            (view.actor, view.pose, view.facing, round(3 * (view.box[0] + view.box[2])), colours[view.actor])
            for view in list_visible_actors(film, FRAMES)
            if view.frame == FRAMES // 2
        ]

    indistinguishable = 0
    for films in neighbourhoods:
        descriptions = [describe_middle_frame(film) for film in films]
        indistinguishable += sum(descriptions.count(each) > 1 for each in descriptions)
    assert indistinguishable > 0.25 * NUMBER * NEIGHBOURS


def is_true(claim: SceneClaim, film: Film) -> bool:
    """Return whether a claim is true by the facts."""
    scene = film.scene
    if claim.kind == "story":
        if claim.value == "follow":
            later, earlier = film.events[claim.thing][0], film.events[claim.other][0]
            return earlier.start < later.start and later[:2] == earlier[:2] == ("cross", earlier.side)
        return film.story == claim.value
    if claim.kind == "order":
        a, b = film.events[claim.thing], film.events[claim.other]
        return a[-1].end <= b[0].start if claim.value == "then" else a[0].start < b[-1].end and b[0].start < a[-1].end
    if claim.kind == "scenery":
        return claim.value in scene.scenery
    if claim.thing < 0:
        return getattr(scene, claim.kind) == claim.value
    thing, events = scene.things[claim.thing], film.events[claim.thing]
    if claim.kind == "event":
        return claim.value in [event.kind for event in events]
    if claim.kind == "side":
        return claim.value in [event.side for event in events]
    if claim.kind == "then":
        order = [event.kind for event in events]
        first, second = map(order.index, claim.value.split())
        return first < second
    if claim.kind == "kind":
        return CATEGORIES[thing.category].kind == claim.value
    return str(getattr(thing, claim.kind)) == claim.value


def test_every_claim_is_true(captioned_films: list[tuple[Film, SceneCaption]]) -> None:
    assert [
        (caption.raw, claim)
        for film, caption in captioned_films
        for claim in caption.claims
        if not is_true(claim, film)
    ] == []
    kinds = Counter(claim.kind for _, caption in captioned_films for claim in caption.claims)
    assert {"event", "side", "then", "order", "story", "colour", "category", "setting", "weather"} <= set(kinds)


def test_captions_state_the_sides_of_the_events(captioned_films: list[tuple[Film, SceneCaption]]) -> None:
    checked = 0
    for film, caption in captioned_films:
        if film.story != "solo":
            continue
        for start, end in re.findall(r"from (?:the )?(left|right) to (?:the )?(left|right)", caption.raw):
            assert (start, OPPOSITE[start]) == (film.events[0][0].side, end)
            checked += 1
        for side in re.findall(r" in(?:to the picture)? from the (left|right)", caption.raw):
            assert film.events[0][0][:2] == ("enter", side)
            checked += 1
        for side in re.findall(r"(?:away|off|out|back|on) to the (left|right)", caption.raw):
            assert side in [event.side for event in film.events[0] if event.kind in ("leave", "return")]
            checked += 1
    assert checked > 300


def test_captions_are_sentences_of_a_small_vocabulary(captioned_films: list[tuple[Film, SceneCaption]]) -> None:
    texts = [caption.raw for _, caption in captioned_films]
    assert [text for text in texts if not re.fullmatch(r"[A-Z][a-z]*(,? [a-z]+)*\.", text)] == []
    assert [text for text in texts if re.search(r"\b(a [aeiou]|an [^aeiou]|(\w+) \2\b)", text)] == []
    assert all(4 <= len(caption.tokens) <= 18 for _, caption in captioned_films)
    assert 150 < len({token for _, caption in captioned_films for token in caption.tokens}) < 300
    assert len(set(texts)) > 0.9 * len(texts)


def test_verbs_have_two_forms() -> None:
    pairs = {
        text: (conjugate(text), form_participle(text)) for text in ("run[s] in", "fl[ies]", "go[es] up", "lie[s] down")
    }
    assert pairs == {
        "run[s] in": ("runs in", "running in"),
        "fl[ies]": ("flies", "flying"),
        "go[es] up": ("goes up", "going up"),
        "lie[s] down": ("lies down", "lying down"),
    }


MAN = Thing("man", "red", "plain", "medium", 1, "standing", "ground", "right")
OUTSIDE, INSIDE = (Track(0.5, 0.9, 0.5, inside) for inside in (False, True))


def test_an_actor_enters_stops_and_leaves() -> None:
    events = (Event("enter", "left", "walk", 0.1, 0.3), Event("leave", "right", "run", 0.6, 0.8))
    states = {time: compute_actor_state(MAN, OUTSIDE, events, time) for time in (0.05, 0.2, 0.4, 0.7, 0.9)}
    assert states[0.05] is None
    assert states[0.9] is None
    outside = -0.39 * 0.5  # the widest pose is outside the left edge
    assert states[0.2].x == pytest.approx((outside + 0.5) / 2)
    assert states[0.4] == (0.5, 0.9, "standing", "right")
    assert states[0.7].x == pytest.approx((0.5 + 1 + 0.39 * 0.5) / 2)
    assert states[0.7].facing == "right"


def test_acts_change_pose_height_and_facing() -> None:
    dog = Thing("dog", "red", "plain", "medium", 1, "standing", "ground", "left")

    def compute_state(event: str, thing: Thing, time: float) -> tuple[float, float, str, str]:
        found = compute_actor_state(thing, INSIDE, (Event(event, "", "", 0.2, 0.6),), time)
        assert found is not None
        return found

    assert compute_state("sit", dog, 0.1) == (0.5, 0.9, "standing", "left")
    assert compute_state("sit", dog, 0.9) == (0.5, 0.9, "sitting", "left")
    assert compute_state("turn", dog, 0.9) == (0.5, 0.9, "standing", "right")
    assert compute_state("jump", MAN, 0.4) == (0.5, pytest.approx(0.9 - 0.16), "jumping", "right")
    assert compute_state("jump", MAN, 0.9) == (0.5, pytest.approx(0.9), "standing", "right")
    balloon = Thing("balloon", "red", "plain", "medium", 1, "flying", "air", "left")
    assert compute_state("rise", balloon, 0.9)[1] == pytest.approx(0.9 - 0.24)
    assert compute_state("sink", balloon, 0.4)[1] == pytest.approx(0.9 + 0.12)


def test_a_balloon_keeps_its_height_after_sinking() -> None:
    balloon = Thing("balloon", "red", "plain", "medium", 1, "flying", "air", "left")
    events = (Event("sink", "", "", 0.1, 0.3), Event("leave", "left", "float", 0.4, 0.8))
    track = INSIDE._replace(base=0.5)
    found = [compute_actor_state(balloon, track, events, time) for time in (0.35, 0.5)]
    assert [state.base for state in found if state] == [pytest.approx(0.74)] * 2


def test_events_are_in_order_and_within_the_film(neighbourhoods: list[tuple[Film, ...]]) -> None:
    for films in neighbourhoods:
        for film in films:
            for events in film.events:
                event_times = [time for event in events for time in event[3:]]
                assert event_times == sorted(event_times)
                assert event_times[0] > 0
                assert event_times[-1] < 1


def test_every_actor_is_visible_long_enough_inside_the_picture(neighbourhoods: list[tuple[Film, ...]]) -> None:
    for films in neighbourhoods:
        for film in films:
            views = list_visible_actors(film, FRAMES)
            for i in range(len(film.events)):
                assert sum(each.actor == i for each in views) >= 3
            assert all(0 <= x <= 1 for each in views for x in each.box)


def test_drawn_frames_show_the_actors_inside_their_boxes(neighbourhoods: list[tuple[Film, ...]]) -> None:
    """A frame differs from the empty first frame only inside the actor's box and in its shadow.

    Films with rain, reflections, two actors or an actor in the first frame are skipped.
    """
    size, checked = 96, 0
    for films in neighbourhoods[:30]:
        film = films[0]
        # water reflects actors outside their boxes
        plain = name_atmosphere(film.scene) != "rainy" and film.scene.things[0].place != "water"
        if not plain or film.tracks[0].inside or len(film.tracks) > 1:
            continue
        frames = [np.asarray(frame).astype(int) for frame in draw_film(film, SEED, FRAMES, size)]
        for each in list_visible_actors(film, FRAMES):
            changed = np.abs(frames[each.frame] - frames[0]).max(-1) > 24
            left, top, right, bottom = (round(v * size) for v in each.box)
            inside = changed[top:bottom, left:right].mean()
            changed[max(0, top - 3) : bottom + 6, max(0, left - 3) : right + 3] = False  # the box and the shadow
            assert inside > 0.15
            assert changed.mean() < 0.01
            checked += 1
    assert checked > 20


def test_every_moving_category_has_enough_outside_plans_and_distinct_inside_plans() -> None:
    for category in GAITS:
        assert len(list_outside_plans(category, "street")) >= 4
        inside_plans = list_inside_plans(category, "farm")
        assert len(set(inside_plans)) == len(inside_plans) > 0


def test_frames_are_spread_over_the_film() -> None:
    assert compute_frame_times(5) == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "9" * 20], f"--seed {'9' * 20}: give a whole number from 0 to 2^63 − 1"),
        (["--films", "3", "-1"], "--films -1: give whole numbers from 0 to "),
    ],
)
def test_a_sheet_of_impossible_films_is_refused(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.setattr("sys.argv", ["films", "--sheet", str(tmp_path / "sheet.png"), *arguments])
    assert run_command("films", draw_films_sheet) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
