"""Words of the simulated annotators and their claims; a word that is listed twice is twice as likely."""

from __future__ import annotations

from typing import NamedTuple


class Noun(NamedTuple):
    """Word for a category, for one size of it, or for a whole kind."""

    singular: str
    plural: str
    weight: float = 1.0
    size: str = ""  # the only size for which the word is true: a puppy is a small dog
    kind: str = ""  # the word claims only this kind: an animal


ANIMAL = Noun("animal", "animals", 0.12, kind="animal")
VEHICLE = Noun("vehicle", "vehicles", 0.15, kind="vehicle")
PERSON = Noun("person", "people", 0.6, kind="person")
CHILD = Noun("child", "children", 0.5, kind="child")
KID = Noun("kid", "kids", 0.4, kind="child")
NOUNS: dict[str, tuple[Noun, ...]] = {
    "man": (Noun("man", "men", 2.0), Noun("guy", "guys", 0.3), PERSON),
    "woman": (Noun("woman", "women", 2.0), Noun("lady", "ladies", 0.4), PERSON),
    "boy": (Noun("boy", "boys", 2.0), CHILD, KID),
    "girl": (Noun("girl", "girls", 2.0), CHILD, KID),
    "dog": (Noun("dog", "dogs", 2.0), Noun("puppy", "puppies", 1.5, size="small"), ANIMAL),
    "cat": (Noun("cat", "cats", 2.0), Noun("kitten", "kittens", 1.5, size="small"), ANIMAL),
    "horse": (Noun("horse", "horses", 2.0), Noun("pony", "ponies", 1.2, size="small"), ANIMAL),
    "cow": (Noun("cow", "cows", 2.0), Noun("calf", "calves", 0.8, size="small"), ANIMAL),
    "sheep": (Noun("sheep", "sheep", 2.0), Noun("lamb", "lambs", 1.2, size="small"), ANIMAL),
    "bird": (Noun("bird", "birds", 2.0), ANIMAL),
    "car": (Noun("car", "cars", 2.0), Noun("sedan", "sedans", 0.3), VEHICLE),
    "bus": (Noun("bus", "buses", 2.0), Noun("coach", "coaches", 0.3), VEHICLE),
    "truck": (Noun("truck", "trucks", 2.0), Noun("lorry", "lorries", 0.4), VEHICLE),
    "bicycle": (Noun("bicycle", "bicycles"), Noun("bike", "bikes")),
    "boat": (Noun("boat", "boats", 2.0), Noun("sailboat", "sailboats")),
    "house": (Noun("house", "houses", 2.0), Noun("cottage", "cottages", 0.5), Noun("home", "homes", 0.3)),
    "tent": (Noun("tent", "tents"),),
    "umbrella": (Noun("umbrella", "umbrellas", 2.0), Noun("parasol", "parasols", 0.4)),
    "kite": (Noun("kite", "kites"),),
    "balloon": (Noun("balloon", "balloons", 2.0), Noun("hot air balloon", "hot air balloons")),
    "bench": (Noun("bench", "benches"),),
    "ball": (Noun("ball", "balls"),),
}
GARMENTS: dict[str, tuple[str, ...]] = {"man": ("shirt", "shirt", "sweater"), "boy": ("shirt", "shirt", "sweater")}
GARMENTS |= {"woman": ("dress",), "girl": ("dress",)}
GARMENT_PLURALS = {"shirt": "shirts", "sweater": "sweaters", "dress": "dresses"}

SIZES: dict[str, dict[str, tuple[str, ...]]] = {  # by kind, then size
    "person": {"small": ("short",), "large": ("tall", "tall", "big")},
    "child": {"small": ("little", "small", "young"), "large": ("tall", "big")},
    "": {"small": ("small", "small", "little", "tiny"), "large": ("large", "big", "big", "huge")},
}
PATTERNS = {"striped": ("striped", "striped"), "spotted": ("spotted", "spotted", "dotted")}
COUNTS: dict[int, tuple[tuple[str, str, int, bool], ...]] = {  # words, kind of claim, number, plural verb
    1: (("a", "count", 1, False),),
    2: (
        *(("two", "count", 2, True), ("two", "count", 2, True), ("two", "count", 2, True)),
        *(("a pair of", "count", 2, True), ("a couple of", "count", 2, True), ("some", "at_least", 2, True)),
    ),
    3: (
        *(("three", "count", 3, True), ("three", "count", 3, True), ("three", "count", 3, True)),
        *(("a group of", "at_least", 3, False), ("several", "at_least", 3, True), ("some", "at_least", 2, True)),
    ),
}

VERBS: dict[str, tuple[str, ...]] = {  # by pose, or by kind or category and pose
    "standing": ("standing", "standing", "standing still"),
    "person:standing": ("standing", "standing", "standing", "waiting"),
    "running": ("running", "running", "running fast"),
    "horse:running": ("running", "running", "galloping"),
    "person:running": ("running", "running", "jogging"),
    "walking": ("walking", "walking", "strolling"),
    "sitting": ("sitting", "sitting", "sitting down", "resting"),
    "sleeping": ("sleeping", "sleeping", "lying down", "taking a nap"),
    "grazing": ("grazing", "grazing", "eating grass"),
    "flying": ("flying", "flying", "flying in the air", "flying in the sky"),
    "balloon:flying": ("floating", "flying", "floating in the sky", "flying in the air"),
    "waving": ("waving", "waving", "waving hello"),
    "jumping": ("jumping", "jumping", "jumping in the air", "jumping up"),
    "parked": ("parked", "parked", "stopped"),
    "bicycle:parked": ("parked",),
    "driving": ("driving", "driving", "driving fast"),
    "sailing": ("sailing", "sailing", "floating"),
    "lying": ("lying", "lying"),
    "house:standing": ("standing",),
    "tent:standing": ("standing", "pitched"),
    "umbrella:standing": ("standing", "open"),
    "bench:standing": ("standing",),
}

RELATIONS: tuple[tuple[str, str, float], ...] = (  # words, relation ("": none is claimed), weight
    ("with", "", 1.0),
    ("and", "", 1.0),
    ("next to", "beside", 1.0),
    ("beside", "beside", 0.6),
    ("near", "near", 0.7),
    ("by", "near", 0.3),
    ("close to", "near", 0.2),
    ("to the left of", "left_of", 1.8),
    ("to the right of", "right_of", 1.8),
    ("in front of", "in_front_of", 1.6),
    ("behind", "behind", 1.6),
    ("above", "above", 1.2),
    ("over", "above", 0.8),
    ("below", "below", 0.6),
    ("under", "below", 0.8),
)


class PlacePhrase(NamedTuple):
    """Words for a place, with the conditions under which they are true."""

    text: str
    where: str  # places of things for which the words are true, some of "gwa": ground, water, air
    landmark: str  # landmark that the scene must have; "": none


LANDMARKS = ("trees", "buildings", "mountains", "cactus", "fence", "barn")
_PLACES = """
    beach   g    on the beach, on the beach, on a beach
    beach   gwa  at the beach
    beach   g    on the sand, by the sea, near the ocean, on a sandy beach
    beach   w    on the sea, on the water, in the ocean
    beach   gwa  near the shore
    beach   a    over the beach, above the beach
    park    gwa  in the park, in the park, in a park
    park    g    on the grass, on the grass, on the lawn
    park    ga   near some trees
    park    g    in front of some trees
    park    a    over the park, above the grass
    street  g    on the street, on the street, on a city street
    street  gwa  in the city
    street  g    on the road, in front of some buildings
    street  gwa  in town
    street  ga   near some buildings
    street  a    over the city, above the street
    snow    g    in the snow, in the snow, in the snow, on the snow
    snow    gwa  in the mountains
    snow    g    in front of snowy mountains, on snowy ground
    snow    a    over the snow
    snow    ga   near the mountains
    desert  gwa  in the desert, in the desert, in a desert
    desert  g    on the sand
    desert  gwa  in a dry desert
    desert  g    near a cactus, near a cactus
    desert  a    over the desert, above the desert
    lake    ga   by the lake, by a lake, near a lake
    lake    g    beside the lake
    lake    ga   near the water
    lake    g    by the water, on the shore
    lake    gwa  at the lake
    lake    w    on the lake, on a lake, on the water, in the water
    lake    a    over the lake, above the grass
    farm    gwa  on a farm, on the farm
    farm    g    in a field, in the field, near a fence, in front of a fence
    farm    gwa  at the farm
    farm    g    near a barn, near a red barn
    farm    a    over a field, above the farm
"""


def _parse_places() -> dict[str, list[PlacePhrase]]:
    """Return the phrases of `_PLACES` by setting; a phrase that names a landmark requires it."""
    places: dict[str, list[PlacePhrase]] = {}
    for row in _PLACES.strip().splitlines():
        setting, where, texts = row.split(maxsplit=2)
        for text in texts.split(", "):
            landmark = next((name for name in LANDMARKS if name in text), "")
            places.setdefault(setting, []).append(PlacePhrase(text, where, landmark))
    return places


PLACES = _parse_places()
SCENES: dict[str, tuple[str, ...]] = {  # the setting as a noun
    "beach": ("a beach", "a sandy beach", "a beach scene"),
    "park": ("a park", "a green park", "a park scene"),
    "street": ("a street", "a city street", "a street scene"),
    "snow": ("a snowy hill", "a snowy field", "a snowy scene"),
    "desert": ("a desert", "a dry desert", "a desert scene"),
    "lake": ("a lake", "the shore of a lake", "a lake scene"),
    "farm": ("a farm", "a farm scene", "a field"),
}
WEATHER: dict[tuple[str, str], tuple[str, ...]] = {  # phrases, by (weather, light)
    ("sunny", "day"): ("on a sunny day", "on a sunny day", "under a blue sky", "in the sun"),
    ("cloudy", "day"): ("on a cloudy day", "on a cloudy day", "under a gray sky", "under a cloudy sky"),
    ("rainy", "day"): ("in the rain", "in the rain", "on a rainy day", "while it rains"),
    ("clear", "sunset"): ("at sunset", "at sunset", "at dusk", "under an orange sky"),
    ("clear", "night"): ("at night", "at night", "under the moon", "in the dark", "under the stars"),
}
IT_IS: dict[tuple[str, str], tuple[str, ...]] = {  # clauses, by (weather, light)
    ("sunny", "day"): ("it is sunny", "the sun is shining"),
    ("cloudy", "day"): ("it is cloudy", "the sky is gray"),
    ("rainy", "day"): ("it is raining", "it is raining", "it is a rainy day"),
    ("clear", "sunset"): ("the sun is setting",),
    ("clear", "night"): ("it is night", "it is dark", "the moon is out"),
}
PICTURES = ("a photo of", "a picture of", "an image of", "a view of")
