"""Wordings of questions and answers; a text that is listed twice is twice as likely.

In questions {s}, {o} and {p} are a thing's name or pronoun as subject, object and possessive. {be} and {do} are the
matching forms of these verbs. {plural} is the category's plural, {garment} is the garment, and {marks} is a pattern's
noun. {asked} is the value that the question names, and {a_asked} is that value with its article. {noun} is the noun
of another thing.
"""

from __future__ import annotations

from pipeline.worlds.scenes import scene_words as w
from pipeline.worlds.scenes.scene_captions import choose_article, list_verbs
from pipeline.worlds.scenes.scene_facts import Thing

PEOPLE, MOVING = ("person", "child"), ("person", "child", "animal", "vehicle")
KINDS: dict[str, tuple[str, ...]] = {
    "people": PEOPLE,
    "children": ("child",),
    "animals": ("animal",),
    "vehicles": ("vehicle",),
}
SIDES = ("left", "middle", "right")
DEPTHS = {"top": "at the top", "back": "in the back", "front": "in the front"}
PATTERN_NOUNS = {"striped": "stripes", "spotted": "spots"}
HEDGES = ("i can't tell", "i can't tell", "can't tell", "can't tell", "not sure", "hard to tell", "i don't know")

THING_QUESTIONS: dict[str, tuple[str, ...]] = {  # ":worn": about clothes; ":group": a count, without the noun
    "colour": (
        "what color {be} {s}",
        "what color {be} {s}",
        "which color {be} {s}",
        "can you tell what color {s} {be}",
    ),
    "colour:worn": ("what color are {p} clothes", "what color {garment} {be} {s} wearing"),
    "is_colour": ("{be} {s} {asked}", "{be} {s} {asked}", "would you say {s} {be} {asked}"),
    "is_colour:worn": ("{be} {s} wearing {asked}", "are {p} clothes {asked}", "{be} {s} dressed in {asked}"),
    "count": ("how many {plural} are there", "how many {plural} do you see", "how many {plural}"),
    "count:group": ("how many are there", "how many of them are there", "how many"),
    "pose": ("what {be} {s} doing", "what {be} {s} doing", "can you tell what {s} {be} doing"),
    "is_pose": ("{be} {s} {asked}", "{be} {s} {asked}", "does it look like {s} {be} {asked}"),
    "size": ("how big {be} {s}", "what size {be} {s}", "{be} {s} large or small"),
    "pattern": ("{be} {s} {asked}", "{do} {s} have {marks}", "do you see {marks} on {o}"),
    "pattern:worn": ("are {p} clothes {asked}", "{do} {p} {garment} have {marks}"),
    "facing": ("which way {be} {s} facing", "{be} {s} facing left or right", "which direction {be} {s} looking"),
    "look": ("what {do} {s} look like", "can you describe {o}"),
    "side": ("where {be} {s}", "where in the picture {be} {s}", "where do you see {o}"),
    "near": ("what is next to {o}", "what is near {o}", "what do you see next to {o}"),
    "relation": ("what is {asked} {o}", "what do you see {asked} {o}"),
    "age": ("how old {be} {s}", "about how old {be} {s}", "how old {do} {s} look"),
    "happy": ("{do} {s} look happy", "{be} {s} happy"),
    "collar": ("{do} {s} have a collar", "{be} {s} wearing a collar"),
    "brand": ("what brand {be} {s}", "can you see a logo on {o}"),
    "inside": ("is anyone inside {o}", "is there anyone in {o}"),
}
REPEAT_TEXTS = ("and the {noun}", "what about the {noun}")  # the last question, repeated for another thing
# the last question, repeated where two things have been named
OTHER_TEXTS = ("and the other one", "what about the other one")
KIND_TEXTS = ("what kind", "which kind", "what kind do you see")  # after "yes" to a question about a kind of things
SCENE_QUESTIONS: dict[str, tuple[str, ...]] = {
    "exist": ("is there {a_asked}", "do you see {a_asked}", "are there any {plural}", "can you see any {plural}"),
    "exist_kind": ("are there any {asked}", "do you see any {asked}", "any {asked} in the picture"),
    "total": ("how many {asked} are there", "how many {asked} do you see", "how many {asked} in total"),
    "else": ("what else is there", "what else is in the picture", "what else do you see"),
    "weather": ("how is the weather", "what is the weather like", "what does the sky look like"),
    "is_weather": ("is it {asked}", "does it look {asked}"),
    "light": ("is it day or night", "what time of day is it", "is it daytime or night"),
    "setting": ("where is this", "where was the photo taken", "what is in the background"),
    "is_setting": ("is it {asked}", "does it look like {asked}", "is this {asked}"),
    "scenery": ("do you see any {asked}", "are there any {asked}", "can you see any {asked}"),
    "outdoors": ("is it outside", "is this inside or outside"),
    "time": ("what time is it", "can you tell what time it is"),
    "good": ("is it a good picture", "is this a professional photo"),
}
RELATIONS = {  # relations of other things to the thing in question
    "behind": "behind",
    "in_front_of": "in front of",
    "left_of": "to the left of",
    "right_of": "to the right of",
}
SCENERY = {name: name for name in ("trees", "buildings", "mountains")} | {"cactus": "cactuses", "fence": "fences"}
ATMOSPHERES = {  # a short answer, a sentence, and longer answers
    "sunny": ("sunny", "it is sunny", "sunny and bright", "it looks sunny"),
    "cloudy": ("cloudy", "it is cloudy", "a bit cloudy", "it looks cloudy"),
    "rainy": ("rainy", "it is raining", "raining", "it looks rainy"),
    "sunset": ("clear", "the sun is setting", "clear with a sunset", "it looks like sunset"),
    "night": ("dark", "it is night", "clear but dark", "it is dark out"),
}
LIGHTS = {  # a short answer, longer answers, and a sentence
    "day": ("day", "daytime", "during the day", "it is daytime"),
    "sunset": ("sunset", "evening", "the sun is setting", "it looks like sunset"),
    "night": ("night", "night time", "at night", "it is night"),
}
SIZE_ANSWERS = {  # a short answer, and longer answers
    "small": ("small", "pretty small", "kind of small"),
    "medium": ("medium", "average", "medium size"),
    "large": ("large", "pretty big", "very big"),
}
GUESSES: dict[str, tuple[str, ...]] = {  # guesses at facts that the image does not show
    "age": ("20s", "30", "about 30", "maybe 25", "young", "10", "maybe 10", "40s"),
    "happy": ("yes", "no", "kind of", "i think so", "not really", "seems so"),
    "collar": ("no", "yes", "i don't see one", "no collar"),
    "brand": ("no brand", "i don't see one", "no", "maybe a ford"),
    "inside": ("no", "i don't see anyone", "yes", "no one"),
    "time": ("noon", "morning", "afternoon", "maybe 3 pm", "around noon"),
    "good": ("yes", "it is a drawing", "pretty good", "no", "kind of"),
}
UNANSWERABLE: dict[str, tuple[str, ...]] = {"animal": ("happy", "collar"), "vehicle": ("brand", "inside")}
UNANSWERABLE |= {kind: ("age", "happy") for kind in PEOPLE}
NUMBERS = (
    ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
)
_PRONOUNS = {"man": ("he", "him", "his"), "boy": ("he", "him", "his")}
_PRONOUNS |= {"woman": ("she", "her", "her"), "girl": ("she", "her", "her")}


def choose_pronoun(thing: Thing, case: int = 0) -> str:
    """Return the pronoun of a thing; `case` 0: subject, 1: object, 2: possessive."""
    if thing.count > 1:
        return ("they", "them", "their")[case]
    return _PRONOUNS.get(thing.category, ("it", "it", "its"))[case]


def conjugate_be(thing: Thing) -> str:
    """Return the form of "to be" that agrees with the number of a thing."""
    return "are" if thing.count > 1 else "is"


def choose_noun(thing: Thing, other: bool = False) -> str:
    """Return the first noun that fits a thing and its size, or the last with `other`; plural for a group."""
    words = [n for n in w.NOUNS[thing.category] if n.size in ("", thing.size) and not n.kind]
    word = words[-1] if other else words[0]
    return word.plural if thing.count > 1 else word.singular


def form_plural(category: str) -> str:
    """Return the plural noun of a category."""
    return w.NOUNS[category][0].plural


def add_article(words: str) -> str:
    """Put the indefinite article before `words`."""
    return f"{choose_article(words)} {words}"


def choose_pose_verb(category: str, pose: str) -> str:
    """Return the plainest verb of a category's pose, for example running."""
    return list_verbs(category, pose)[0]


def has_garment(thing: Thing) -> bool:
    """Return whether the thing's colour is the colour of its clothes."""
    return thing.category in w.GARMENTS


def name_garment(thing: Thing) -> str:
    """Return the garment of a person, in the plural for a group. Raises KeyError for a thing without clothes."""
    word = w.GARMENTS[thing.category][0]
    return word if thing.count == 1 else w.GARMENT_PLURALS[word]


def name_side(thing: Thing) -> str:
    """Return left, middle or right by the centre of the thing's box; the middle is 0.38 to 0.62 of the width."""
    x = (thing.box[0] + thing.box[2]) / 2
    return SIDES[(x >= 0.38) + (x > 0.62)]


def name_depth(thing: Thing) -> str:
    """Return top for a thing in the air, front for a box that reaches below 0.78 of the height, else back."""
    if thing.place == "air":
        return "top"
    return "front" if thing.box[3] > 0.78 else "back"
