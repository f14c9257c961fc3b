"""True answers to a question in all wordings, and the answer of one simulated answerer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from pipeline.dialog.drawn.dialog_words import (
    ATMOSPHERES,
    DEPTHS,
    GUESSES,
    HEDGES,
    KINDS,
    LIGHTS,
    NUMBERS,
    PATTERN_NOUNS,
    SIZE_ANSWERS,
    add_article,
    choose_noun,
    choose_pose_verb,
    choose_pronoun,
    conjugate_be,
    form_plural,
    has_garment,
    name_depth,
    name_garment,
    name_side,
)
from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.scene_facts import Scene, Thing, name_atmosphere, pick, relation_holds
from pipeline.worlds.scenes.scene_world import CATEGORIES

WeightedTexts = list[tuple[str, float]]
YES, NO = ("yes", "yeah", "yep"), ("no", "nope")
# probabilities of short, longer and whole answers
STYLES = ((0.88, 0.10, 0.02), (0.40, 0.45, 0.15), (0.06, 0.34, 0.60))
GUESS_RELEVANCE = 0.4  # relevance of a guess where the image does not show the answer
HEDGE_RELEVANCE = 0.2  # relevance of a hedge where the image shows the answer


@dataclass(frozen=True)
class SceneQuestion:
    """Question about a thing or the scene."""

    kind: str
    text: str
    thing: int = -1  # index of the thing; -1: the scene
    asked: str = ""  # value that the question names, such as the colour in "is it red"
    refers: str = "none"  # form of reference: none, name, pronoun or ellipsis
    unmentioned: tuple[int, ...] = ()  # indices of things not named so far, for the kind "else"


@dataclass(frozen=True)
class AnswererStyle:
    """Style of a simulated answerer throughout a dialog."""

    length: int  # index of STYLES
    yes: str  # word for yes
    no: str  # word for no
    digits: bool  # 2 instead of two
    grey: bool  # grey instead of gray
    hedges: float  # probability of a hedge in reply to a question that the image answers

    @classmethod
    def draw(cls, rng: np.random.Generator) -> AnswererStyle:
        """Draw the style of an answerer."""
        return cls(
            length=pick(rng, (0, 1, 2), (0.60, 0.25, 0.15)),
            yes=pick(rng, YES, (0.75, 0.15, 0.10)),
            no=pick(rng, NO, (0.85, 0.15)),
            digits=rng.random() < 0.5,
            grey=rng.random() < 0.3,
            hedges=pick(rng, (0.01, 0.04, 0.10), (0.5, 0.3, 0.2)),
        )


class TrueAnswers(NamedTuple):
    """True answers to a question."""

    short: str  # yes and no stand for the style's words
    longer: tuple[str, ...]  # words after the short answer yes or no; longer answers if `short` is another text
    whole: tuple[str, ...]  # sentences


NOTHING = TrueAnswers("nothing", ("nothing really", "just the ground"), ("there is nothing", "nothing that i can see"))
NOTHING_ELSE = TrueAnswers("nothing", ("nothing else", "that's it"), ("that's all", "there is nothing else"))


def give_answer(rng: np.random.Generator, scene: Scene, question: SceneQuestion, style: AnswererStyle) -> str:
    """Draw a true answer in the given style, a hedge, or a guess where the image does not show the answer."""
    if question.kind in GUESSES and rng.random() < 0.4:
        return _apply_style(pick(rng, GUESSES[question.kind]), style)
    if question.kind in GUESSES or rng.random() < style.hedges:
        return pick(rng, HEDGES)
    options = list_wordings(list_true_answers(scene, question, style.digits, style.grey), style)
    return pick(rng, [text for text, _ in options], [weight for _, weight in options])


def rate_answers(scene: Scene, question: SceneQuestion) -> dict[str, float]:
    """Return the relevance of each relevant answer: 1 for true answers; texts that are not listed have 0.

    For questions that the image does not answer, hedges have relevance 1, and guesses have GUESS_RELEVANCE. For other
    questions, hedges have HEDGE_RELEVANCE.
    """
    if question.kind in GUESSES:
        guesses = {_apply_style(text, style): GUESS_RELEVANCE for text in GUESSES[question.kind] for style in WORDINGS}
        return guesses | dict.fromkeys(HEDGES, 1.0)
    relevances = dict.fromkeys(HEDGES, HEDGE_RELEVANCE)
    for digits, grey in product((False, True), repeat=2):
        answers = list_true_answers(scene, question, digits, grey)
        for style in WORDINGS:
            relevances |= {text: 1.0 for text, _ in list_wordings(answers, style)}
    return relevances


def list_wordings(answers: TrueAnswers, style: AnswererStyle) -> WeightedTexts:
    """Return all wordings of `answers` in the given style, with weights."""
    short, longer, whole = STYLES[style.length]
    head = _apply_style(answers.short, style)
    longer_texts = [f"{head} {text}" if answers.short in ("yes", "no") else text for text in answers.longer]
    wordings = [(head, short)] + [(text, longer / len(longer_texts)) for text in longer_texts]
    return wordings + [(text, whole / len(answers.whole)) for text in answers.whole]


def _apply_style(text: str, style: AnswererStyle) -> str:
    """Return the style's word for yes or no, and any other text unchanged."""
    return {"yes": style.yes, "no": style.no}.get(text, text)


WORDINGS = tuple(
    AnswererStyle(1, yes, no, False, False, 0.0) for yes, no in ((YES[0], NO[0]), (YES[1], NO[1]), (YES[2], NO[0]))
)


def list_true_answers(scene: Scene, question: SceneQuestion, digits: bool = False, grey: bool = False) -> TrueAnswers:
    """Return the true answers. Raises ValueError for an unknown kind of question, and for a kind of GUESSES."""
    kind, asked = question.kind, question.asked
    if question.thing >= 0:
        return _answer_about_thing(scene, scene.things[question.thing], kind, asked, digits, grey)
    if kind == "exist":
        return _answer_existence([t for t in scene.things if t.category == asked], form_plural(asked), digits, grey)
    if kind == "exist_kind":
        return _answer_existence(select_kind(scene, asked), asked, digits, grey)
    if kind == "else":
        return _answer_by_name([scene.things[i] for i in question.unmentioned], NOTHING_ELSE, digits, grey)
    if kind == "total":
        number = sum(thing.count for thing in select_kind(scene, asked))
        number_word = NUMBERS[not digits][number] if number else "none"
        verb = "is" if number == 1 else "are"
        return TrueAnswers(
            number_word,
            (f"i see {number_word}", f"just {number_word}"),
            (f"there {verb} {number_word}", f"i can see {number_word}"),
        )
    if kind == "weather":
        short, whole, *longer = ATMOSPHERES[name_atmosphere(scene)]
        return TrueAnswers(short, tuple(longer), (whole,))
    if kind == "is_weather":
        whole = ATMOSPHERES[name_atmosphere(scene)][1]
        if name_atmosphere(scene) == asked:
            return TrueAnswers("yes", ("it is", "it looks like it"), (whole, "it looks like it"))
        return TrueAnswers("no", ("it isn't", whole), (whole, "it doesn't look like it"))
    if kind == "light":
        short, *longer, whole = LIGHTS[scene.light]
        return TrueAnswers(short, tuple(longer), (whole,))
    setting_noun, location = w.SCENES[scene.setting][0], w.PLACES[scene.setting][0].text
    if kind == "setting":
        return TrueAnswers(
            location, (setting_noun, f"{location} i think"), (f"it is {location}", f"it looks like {setting_noun}")
        )
    if kind == "is_setting":
        if asked == setting_noun:
            return TrueAnswers("yes", ("it is", "it looks like it"), (f"it is {location}", "it looks like it"))
        return TrueAnswers(
            "no", ("it isn't", f"it is {location}"), (f"it is {location}", f"it looks more like {setting_noun}")
        )
    if kind == "scenery":
        if asked in scene.scenery:
            return TrueAnswers("yes", ("there are some", "in the background"), ("in the background", "i see some"))
        return TrueAnswers("no", ("i don't see any", "there are none"), ("not that i can see", "i don't see any"))
    if kind == "outdoors":
        return TrueAnswers("outside", ("outdoors", "outside i think"), ("it is outside", "it is outdoors"))
    raise ValueError(f"expected a kind of question about the scene, got {kind}; add its answers")


def select_kind(scene: Scene, name: str) -> list[Thing]:
    """Return the things of a kind; `name` is people, children, animals or vehicles."""
    return [thing for thing in scene.things if CATEGORIES[thing.category].kind in KINDS[name]]


def _answer_about_thing(scene: Scene, thing: Thing, kind: str, asked: str, digits: bool, grey: bool) -> TrueAnswers:
    pronoun, be, colour = choose_pronoun(thing), conjugate_be(thing), _spell_colour(thing, grey)
    if kind in ("colour", "is_colour"):
        verb = f"{be} wearing" if has_garment(thing) else be
        whole = (f"{pronoun} {verb} {colour}", f"the {choose_noun(thing)} {verb} {colour}")
        if kind == "colour":
            marks = {"plain": (), "striped": (f"{colour} with stripes",), "spotted": (f"{colour} with spots",)}
            return TrueAnswers(colour, (f"looks {colour}", f"{colour} i think", *marks[thing.pattern]), whole)
        if thing.colour == asked:
            return TrueAnswers("yes", (f"{pronoun} {be}", f"all {colour}"), (f"{pronoun} {be}", whole[0]))
        return TrueAnswers("no", (colour, whole[0]), (whole[0], f"more like {colour}"))
    if kind == "count":
        number_word = NUMBERS[not digits][thing.count]
        return TrueAnswers(
            number_word,
            (f"i see {number_word}", f"just {number_word}"),
            (f"there {be} {number_word}", f"i can see {number_word}"),
        )
    if kind in ("pose", "is_pose"):
        verb = choose_pose_verb(thing.category, thing.pose)
        if kind == "pose":
            return TrueAnswers(
                verb, (f"just {verb}", f"{verb} i think"), (f"{pronoun} {be} {verb}", f"{pronoun} {be} just {verb}")
            )
        if thing.pose == asked:
            return TrueAnswers(
                "yes",
                (f"{pronoun} {be}", f"{pronoun} {be} {verb}"),
                (f"{pronoun} {be} {verb}", f"looks like {pronoun} {be}"),
            )
        return TrueAnswers(
            "no", (verb, f"{pronoun} {be} {verb}"), (f"{pronoun} {be} {verb}", f"{pronoun} {be} just {verb}")
        )
    if kind == "size":
        short, *longer = SIZE_ANSWERS[thing.size]
        return TrueAnswers(short, tuple(longer), (f"{pronoun} {be} {short}", f"{pronoun} {be} {longer[0]}"))
    if kind == "pattern":
        if thing.pattern == asked:
            return TrueAnswers(
                "yes",
                (f"i see {PATTERN_NOUNS[asked]}", PATTERN_NOUNS[asked]),
                (f"i see {PATTERN_NOUNS[asked]}", f"it has {PATTERN_NOUNS[asked]}"),
            )
        pattern = "plain" if thing.pattern == "plain" else PATTERN_NOUNS[thing.pattern]
        return TrueAnswers("no", (pattern, f"just {pattern}"), (f"just {pattern}", f"no {PATTERN_NOUNS[asked]}"))
    if kind == "facing":
        return TrueAnswers(
            thing.facing,
            (f"to the {thing.facing}", f"looking {thing.facing}"),
            (f"{pronoun} {be} facing {thing.facing}",),
        )
    if kind == "side":
        third, plane = name_side(thing), name_depth(thing)
        position = "in the middle" if third == "middle" else f"on the {third}"
        phrase = f"{position} {DEPTHS[plane]}"
        phrases = (phrase, f"{third} {DEPTHS[plane]}")
        return TrueAnswers(f"{plane} {third}", phrases, (f"{pronoun} {be} {phrase}", f"{phrase} of the picture"))
    if kind == "look":
        verb = choose_pose_verb(thing.category, thing.pose)
        moves = len(CATEGORIES[thing.category].poses) > 1
        first = verb if moves else SIZE_ANSWERS[thing.size][0]
        short = f"{first} in {colour}" if has_garment(thing) else f"{colour} and {first}"
        return TrueAnswers(short, (f"{short} i think",), (f"{pronoun} {be} {short}", f"looks {short}"))
    if kind in ("near", "relation"):
        relation = asked or kind
        others = [o for o in scene.things if o is not thing and relation_holds(relation, o, thing)]
        return _answer_by_name(others, NOTHING, digits, grey)
    if kind == "which":
        plain, coloured = _make_noun_phrase(thing, digits, grey, False), _make_noun_phrase(thing, digits, grey, True)
        return TrueAnswers(choose_noun(thing), (plain, coloured), (f"i see {plain}", f"{pronoun} {be} {plain}"))
    raise ValueError(f"expected a kind of question about a thing, got {kind}; add its answers")


def _answer_by_name(things: list[Thing], nothing: TrueAnswers, digits: bool, grey: bool) -> TrueAnswers:
    """Return the answers that name one of `things`, or `nothing` if there are no things."""
    if not things:
        return nothing
    names = [_make_noun_phrase(thing, digits, grey, coloured) for thing in things for coloured in (True, False)]
    return TrueAnswers(names[0], tuple(names[1:]), tuple(f"i see {name}" for name in names))


def _answer_existence(things: list[Thing], name: str, digits: bool, grey: bool) -> TrueAnswers:
    """Return the answers to the question whether `things` exist; `name` is the plural of the category or kind."""
    if not things:
        return TrueAnswers("no", ("i don't see any", "there aren't any"), ("not that i can see", f"no {name}"))
    names = [_make_noun_phrase(thing, digits, grey, coloured) for thing in things for coloured in (False, True)]
    verbs = [conjugate_be(thing) for thing in things for _ in range(2)]
    whole = [f"there {verb} {text}" for verb, text in zip(verbs, names, strict=True)]
    return TrueAnswers("yes", tuple(names), (*whole, *(f"i see {text}" for text in names)))


def _make_noun_phrase(thing: Thing, digits: bool, grey: bool, coloured: bool) -> str:
    """Return a noun phrase for the first mention of a thing, such as a dog or 2 red cars."""
    name = choose_noun(thing)
    if coloured and has_garment(thing):
        worn = f"{_spell_colour(thing, grey)} {name_garment(thing)}"
        name = f"{name} in {add_article(worn) if thing.count == 1 else worn}"
    elif coloured:
        name = f"{_spell_colour(thing, grey)} {name}"
    return add_article(name) if thing.count == 1 else f"{NUMBERS[not digits][thing.count]} {name}"


def _spell_colour(thing: Thing, grey: bool) -> str:
    return "grey" if thing.colour == "gray" and grey else thing.colour
