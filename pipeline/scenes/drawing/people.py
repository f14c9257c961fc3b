"""How people look: men, women, boys and girls in five poses."""

from __future__ import annotations

import numpy as np

from pipeline.scenes.drawing.pen import INK, Colour, Pen, mix
from pipeline.scenes.facts import pick

SKIN: tuple[Colour, ...] = ((250, 214, 182), (228, 178, 136), (176, 120, 82), (128, 84, 58))
HAIR: tuple[Colour, ...] = ((46, 34, 30), (96, 58, 34), (206, 150, 66), (160, 74, 36))
TROUSERS: tuple[Colour, ...] = ((62, 78, 128), (96, 84, 74), (70, 74, 86))
SHOES: Colour = (66, 56, 60)

# feet of the right and left leg, knees first: (knee x, knee y, foot x, foot y), in leg lengths from the hip
LEGS = {
    "standing": ((0.02, 0.5, 0.03, 0.06), (-0.02, 0.5, -0.03, 0.06)),
    "waving": ((0.02, 0.5, 0.03, 0.06), (-0.02, 0.5, -0.03, 0.06)),
    "walking": ((0.22, 0.54, 0.34, 0.07), (-0.06, 0.48, -0.36, 0.13)),
    "running": ((0.38, 0.64, 0.38, 0.14), (-0.14, 0.46, -0.60, 0.42)),
    "jumping": ((0.26, 0.66, 0.16, 0.24), (-0.30, 0.66, -0.42, 0.30)),
}
# elbow and hand of the near (right) and far (left) arm, in arm lengths from the shoulder
ARMS = {
    "standing": ((0.16, -0.5, 0.16, -1.0), (-0.16, -0.5, -0.16, -1.0)),
    "waving": ((0.42, 0.10, 0.48, 0.68), (-0.16, -0.5, -0.16, -1.0)),
    "walking": ((-0.14, -0.5, 0.06, -0.95), (0.04, -0.5, 0.26, -0.92)),
    "running": ((-0.34, -0.40, 0.02, -0.74), (0.22, -0.46, 0.62, -0.36)),
    "jumping": ((0.38, 0.26, 0.56, 0.70), (-0.38, 0.26, -0.56, 0.70)),
}


def person(pen: Pen, category: str, pose: str, rng: np.random.Generator) -> None:
    """One person of height 1; the main colour is the shirt's, of women and girls the dress's."""
    child, dressed = category in ("boy", "girl"), category in ("woman", "girl")
    skin, hair, trousers = pick(rng, SKIN), pick(rng, HAIR), pick(rng, TROUSERS)
    lift = {"jumping": 0.10, "running": 0.02}.get(pose, 0.0)
    head, hip, shoulder, half = (0.150, 0.36, 0.66, 0.150) if child else (0.122, 0.43, 0.735, 0.155)
    hip, shoulder, chin = hip + lift, shoulder + lift, (0.69 if child else 0.755) + lift
    lean = {"running": 0.07, "walking": 0.02}.get(pose, 0.0)
    top = (lean, chin + head * 0.92)  # middle of the head
    half *= 0.84 if dressed else 1.0
    reach = 0.30 if child else 0.33

    if category == "woman":
        _long_hair(pen, top, head, hair)
    if category == "girl":
        for side in (-1, 1):
            pen.ellipse(top[0] + side * head * 1.12, top[1] - head * 0.25, head * 0.36, head * 0.5, hair)
    _arm(pen, (lean - half + 0.03, shoulder - 0.03), ARMS[pose][1], reach, pen.dark, skin)
    for side, leg in ((-1, LEGS[pose][1]), (1, LEGS[pose][0])):
        _leg(pen, side, leg, hip, lift, child, dressed, skin, trousers)
    pen.box(lean - 0.035, shoulder - 0.03, lean + 0.035, chin + 0.03, mix(skin, INK, 0.15))
    if dressed:
        hem, knee = (0.215, hip - 0.19) if child else (0.225, hip - 0.21)
        pen.blob(
            [
                *(
                    (lean - half * 0.8, shoulder + 0.005),
                    (lean, shoulder + 0.012),
                    (lean + half * 0.8, shoulder + 0.005),
                ),
                *((lean + half, shoulder - 0.06), (lean * 0.6 + half * 0.72, hip + 0.11)),
                *((hem, knee + 0.02), (hem * 0.7, knee - 0.012), (0, knee - 0.02)),
                *((-hem * 0.7, knee - 0.012), (-hem, knee + 0.02)),
                *((lean * 0.6 - half * 0.72, hip + 0.11), (lean - half, shoulder - 0.06)),
            ],
            pen.main,
        )
        pen.stroke([(lean * 0.6 - half * 0.66, hip + 0.115), (lean * 0.6 + half * 0.66, hip + 0.115)], 0.03, pen.dark)
    else:
        pen.blob(
            [
                *(
                    (lean - half * 0.8, shoulder + 0.005),
                    (lean, shoulder + 0.012),
                    (lean + half * 0.8, shoulder + 0.005),
                ),
                *(
                    (lean + half * 1.04, shoulder - 0.07),
                    (lean * 0.5 + half * 0.93, hip + 0.08),
                    (half * 0.9, hip - 0.03),
                ),
                *((0, hip - 0.045), (-half * 0.9, hip - 0.03)),
                *((lean * 0.5 - half * 0.93, hip + 0.08), (lean - half * 1.04, shoulder - 0.07)),
            ],
            pen.main,
        )
    sleeve = mix(pen.main, pen.dark, 0.45)
    _arm(pen, (lean + half - 0.03, shoulder - 0.03), ARMS[pose][0], reach, sleeve, skin)
    _head(pen, category, top, head, skin, hair)


def _arm(
    pen: Pen, shoulder: tuple[float, float], arm: tuple[float, ...], reach: float, sleeve: Colour, skin: Colour
) -> None:
    (x, y), (ex, ey, hx, hy) = shoulder, (v * reach for v in arm)
    pen.ellipse(x + hx, y + hy, 0.044, 0.044, skin)
    pen.limb(
        [(x, y, 0.095), (x + ex, y + ey, 0.088), (x + ex + (hx - ex) * 0.86, y + ey + (hy - ey) * 0.86, 0.074)], sleeve
    )


def _leg(
    pen: Pen,
    side: int,
    leg: tuple[float, ...],
    hip: float,
    lift: float,
    child: bool,
    dressed: bool,
    skin: Colour,
    trousers: Colour,
) -> None:
    length = hip - lift * 0.4
    kx, ky, fx, fy = leg
    x = side * (0.055 if dressed else 0.072)
    knee = (x + kx * length, hip - length * (1 - ky))
    foot = (x + fx * length, hip - length * (1 - fy))
    colour = trousers if side > 0 else mix(trousers, INK, 0.25)
    flesh = skin if side > 0 else mix(skin, INK, 0.15)
    pen.ellipse(foot[0] + 0.025, foot[1] + 0.010, 0.066, 0.034, SHOES)
    if dressed:
        pen.limb([(x, hip, 0.10), (*knee, 0.080), (foot[0], foot[1] + 0.02, 0.060)], flesh)
        return
    if child:  # short trousers
        pen.limb([(*knee, 0.088), (foot[0], foot[1] + 0.02, 0.066)], flesh)
        pen.limb([(x, hip, 0.14), (knee[0], knee[1] + 0.01, 0.125)], colour)
        return
    pen.limb([(x, hip, 0.135), (*knee, 0.112), (foot[0], foot[1] + 0.025, 0.092)], colour)


def _long_hair(pen: Pen, top: tuple[float, float], head: float, hair: Colour) -> None:
    x, y = top
    pen.blob(
        [
            *((x, y + head * 1.12), (x + head * 0.98, y + head * 0.6), (x + head * 1.12, y - head * 0.5)),
            *((x + head * 1.05, y - head * 1.65), (x, y - head * 1.5), (x - head * 1.2, y - head * 1.7)),
            *((x - head * 1.18, y - head * 0.5), (x - head * 1.02, y + head * 0.6)),
        ],
        hair,
    )


def _head(pen: Pen, category: str, top: tuple[float, float], head: float, skin: Colour, hair: Colour) -> None:
    x, y = top
    pen.ellipse(x, y, head * 0.94, head, skin)
    shine = mix(hair, (255, 255, 255), 0.14)
    if category in ("man", "boy"):
        fringe = [
            (x + head * 0.97, y + head * 0.32),
            (x + head * 0.5, y + head * 0.46),
            (x - head * 0.1, y + head * 0.36),
        ]
        pen.ellipse(x - head * 0.90, y - head * 0.06, head * 0.13, head * 0.2, skin)
        pen.blob(
            [
                *(
                    (x - head * 1.0, y + head * 0.05),
                    (x - head * 0.98, y + head * 0.6),
                    (x - head * 0.5, y + head * 1.08),
                ),
                *((x + head * 0.3, y + head * 1.12), (x + head * 0.88, y + head * 0.76), *fringe),
                (x - head * 0.62, y + head * 0.30),
            ],
            hair,
        )
    else:
        pen.blob(
            [
                *(
                    (x - head * 1.03, y - head * 0.25),
                    (x - head * 1.0, y + head * 0.55),
                    (x - head * 0.45, y + head * 1.08),
                ),
                *(
                    (x + head * 0.45, y + head * 1.08),
                    (x + head * 1.0, y + head * 0.5),
                    (x + head * 1.0, y - head * 0.1),
                ),
                *(
                    (x + head * 0.78, y + head * 0.36),
                    (x + head * 0.1, y + head * 0.58),
                    (x - head * 0.70, y + head * 0.22),
                ),
            ],
            hair,
        )
    pen.stroke([(x - head * 0.45, y + head * 0.82), (x + head * 0.2, y + head * 0.88)], head * 0.12, shine)
    for side in (0.02, 0.58):
        pen.ellipse(x + head * side, y - head * 0.02, head * 0.085, head * 0.13, INK)
    blush = mix(skin, (230, 90, 80), 0.35)
    pen.ellipse(x - head * 0.22, y - head * 0.38, head * 0.14, head * 0.10, blush)
    pen.ellipse(x + head * 0.74, y - head * 0.38, head * 0.10, head * 0.10, blush)
    pen.arc(x + head * 0.28, y - head * 0.34, head * 0.26, 20, 160, head * 0.10, (150, 60, 60))
