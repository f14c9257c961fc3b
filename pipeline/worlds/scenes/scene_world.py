"""Possible facts of scenes: categories, colours, settings and weather, and the sizes of drawings."""

from __future__ import annotations

from dataclasses import dataclass

Extent = tuple[float, float, float]
"""Extent of a drawing to the left, to the right and upwards from the middle of its base, in its own units.

The drawing faces right; its mirror image faces left.
"""


@dataclass(frozen=True)
class Category:
    """Category of objects."""

    kind: str  # person, child, animal, vehicle, thing
    unit: float  # length of one drawing unit at medium size, as a fraction of the image's side
    colours: tuple[str, ...]
    poses: dict[str, Extent]
    salience: float  # relative weight in the order in which annotators name things
    patterned: float = 0.3  # probability of stripes or spots before facts are varied; 0: always plain
    max_count: int = 3  # maximum number of objects in a thing


PALETTE: dict[str, tuple[int, int, int]] = {
    "red": (216, 44, 48),
    "orange": (243, 134, 28),
    "yellow": (250, 212, 56),
    "green": (38, 150, 76),
    "blue": (40, 100, 220),
    "purple": (134, 62, 172),
    "pink": (247, 140, 188),
    "brown": (134, 84, 48),
    "black": (44, 44, 52),
    "white": (247, 246, 242),
    "gray": (146, 150, 158),
}
CLOTHES = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white", "black")
PAINT = (*CLOTHES, "gray", "brown")
COATS = ("brown", "black", "white", "gray")
FEATHERS = ("red", "yellow", "green", "blue", "white", "black", "orange", "pink")

POSES: dict[str, dict[str, Extent]] = {
    "person": {
        **{"standing": (0.24, 0.24, 1.02), "walking": (0.28, 0.32, 1.02), "running": (0.39, 0.34, 1.04)},
        **{"waving": (0.24, 0.34, 1.02), "jumping": (0.36, 0.36, 1.12)},
    },
    "dog": {"standing": (0.57, 0.69, 0.87), "running": (0.67, 0.70, 0.87), "sitting": (0.52, 0.46, 0.92)},
    "cat": {"standing": (0.59, 0.57, 0.90), "sitting": (0.43, 0.28, 0.97), "sleeping": (0.48, 0.48, 0.52)},
    "horse": {"standing": (0.58, 0.66, 1.16), "running": (0.74, 0.65, 1.16), "grazing": (0.58, 0.68, 0.76)},
    "cow": {"standing": (0.58, 0.69, 0.92), "grazing": (0.58, 0.69, 0.73)},
    "sheep": {"standing": (0.48, 0.59, 0.76), "grazing": (0.48, 0.58, 0.74)},
    "bird": {"standing": (0.60, 0.57, 0.87), "flying": (0.62, 0.60, 0.83)},
    "car": {"parked": (0.55, 0.56, 0.46), "driving": (0.73, 0.56, 0.46)},
    "bus": {"parked": (0.53, 0.53, 0.58), "driving": (0.70, 0.53, 0.58)},
}
CATEGORIES: dict[str, Category] = {
    "man": Category("person", 0.75, CLOTHES, POSES["person"], 1.9),
    "woman": Category("person", 0.73, CLOTHES, POSES["person"], 1.9),
    "boy": Category("child", 0.59, CLOTHES, POSES["person"], 1.9),
    "girl": Category("child", 0.59, CLOTHES, POSES["person"], 1.9),
    "dog": Category("animal", 0.55, COATS, POSES["dog"], 1.5),
    "cat": Category("animal", 0.55, (*COATS, "orange"), POSES["cat"], 1.5),
    "horse": Category("animal", 0.66, COATS, POSES["horse"], 1.3),
    "cow": Category("animal", 0.64, ("brown", "black", "white"), POSES["cow"], 1.3, patterned=0.5),
    "sheep": Category("animal", 0.62, ("white", "black", "gray"), POSES["sheep"], 1.4, patterned=0.0),
    "bird": Category("animal", 0.44, FEATHERS, POSES["bird"], 1.6, patterned=0.0),
    "car": Category("vehicle", 0.73, PAINT, POSES["car"], 1.1, 0.2),
    "bus": Category("vehicle", 0.81, PAINT, POSES["bus"], 1.0, 0.2, max_count=1),
    "truck": Category("vehicle", 0.79, PAINT, POSES["bus"], 1.0, 0.2, max_count=2),
    "bicycle": Category("thing", 0.66, CLOTHES, {"parked": (0.52, 0.52, 0.7)}, 0.9, 0.0),
    "boat": Category("thing", 0.55, CLOTHES, {"sailing": (0.54, 0.54, 1.06)}, 1.1),
    "house": Category("thing", 0.64, PAINT, {"standing": (0.54, 0.54, 0.94)}, 0.7, 0.12, max_count=1),
    "tent": Category("thing", 0.64, CLOTHES, {"standing": (0.55, 0.57, 0.74)}, 0.8, max_count=2),
    "umbrella": Category("thing", 0.59, CLOTHES, {"standing": (0.52, 0.52, 0.98)}, 0.8),
    "kite": Category("thing", 0.44, CLOTHES, {"flying": (0.4, 0.4, 1.02)}, 0.9),
    "balloon": Category("thing", 0.51, CLOTHES, {"flying": (0.36, 0.36, 1.02)}, 1.0),
    "bench": Category("thing", 0.66, (*CLOTHES, "brown"), {"standing": (0.52, 0.52, 0.6)}, 0.7, 0.0, max_count=2),
    "ball": Category("thing", 0.31, CLOTHES, {"lying": (0.51, 0.51, 1.01)}, 0.8),
}

NEIGHBOURS = 8  # scenes or films per neighbourhood: image i belongs to neighbourhood i // NEIGHBOURS
MAX_IMAGES = 1_000_000  # file names of images have six digits
SEEDS = 2**63  # number of seeds; seeds from this number on repeat random numbers or raise an error

# factors of a drawing's size: by the thing's size, by its count, and by the number of things in the scene
SIZES = {"small": 0.76, "medium": 1.0, "large": 1.2}
SCALE_BY_COUNT = {1: 1.0, 2: 0.82, 3: 0.70}
SCALE_BY_THINGS = {1: 1.0, 2: 0.86, 3: 0.72}
PATTERNS = ("plain", "striped", "spotted")

# categories of each setting; a category that is listed twice is twice as likely
_CATEGORIES_BY_SETTING = {
    "beach": "man woman boy girl dog horse bird boat boat umbrella umbrella kite ball tent bicycle bench",
    "park": "man woman boy girl dog cat bird horse sheep bicycle bench ball kite balloon tent umbrella",
    "street": "man woman boy girl dog cat bird car car bus bus truck truck bicycle bench umbrella balloon ball",
    "snow": "man woman boy girl dog horse horse house tent car truck bus sheep",
    "desert": "horse horse car truck tent man woman bird bus dog balloon house",
    "lake": "boat boat boat bird man woman boy girl dog cow tent house bench bicycle kite",
    "farm": "horse horse cow cow sheep sheep dog cat cat truck house man woman boy girl car",
}
SETTINGS = {setting: tuple(names.split()) for setting, names in _CATEGORIES_BY_SETTING.items()}
GRASSY = ("park", "lake", "farm")

CONDITIONS: dict[tuple[str, str], float] = {  # (weather, light): probability
    ("sunny", "day"): 0.38,
    ("cloudy", "day"): 0.17,
    ("rainy", "day"): 0.15,
    ("clear", "sunset"): 0.15,
    ("clear", "night"): 0.15,
}
