"""Drawings of people: men, women, boys and girls in five poses."""

from __future__ import annotations

import numpy as np

from pipeline.worlds.scenes.drawing.pen import INK, Colour, Pen, Point, mix
from pipeline.worlds.scenes.scene_facts import pick

SKIN: tuple[Colour, ...] = ((250, 214, 182), (228, 178, 136), (176, 120, 82), (128, 84, 58))
HAIR: tuple[Colour, ...] = ((46, 34, 30), (96, 58, 34), (206, 150, 66), (160, 74, 36))
TROUSERS: tuple[Colour, ...] = ((62, 78, 128), (96, 84, 74), (70, 74, 86))
SHOES: Colour = (66, 56, 60)

# (knee x, knee y, foot x, foot y) of the right and the left leg, in leg lengths: x from the hip, y from the leg's end
LEGS = {
    "standing": ((0.02, 0.5, 0.03, 0.06), (-0.02, 0.5, -0.03, 0.06)),
    "waving": ((0.02, 0.5, 0.03, 0.06), (-0.02, 0.5, -0.03, 0.06)),
    "walking": ((0.22, 0.54, 0.34, 0.07), (-0.06, 0.48, -0.36, 0.13)),
    "running": ((0.38, 0.64, 0.38, 0.14), (-0.14, 0.46, -0.60, 0.42)),
    "jumping": ((0.26, 0.66, 0.16, 0.24), (-0.30, 0.66, -0.42, 0.30)),
}
# (elbow x, elbow y, hand x, hand y) of the right (near) and the left (far) arm, in arm lengths from the shoulder
ARMS = {
    "standing": ((0.16, -0.5, 0.16, -1.0), (-0.16, -0.5, -0.16, -1.0)),
    "waving": ((0.42, 0.10, 0.48, 0.68), (-0.16, -0.5, -0.16, -1.0)),
    "walking": ((-0.14, -0.5, 0.06, -0.95), (0.04, -0.5, 0.26, -0.92)),
    "running": ((-0.34, -0.40, 0.02, -0.74), (0.22, -0.46, 0.62, -0.36)),
    "jumping": ((0.38, 0.26, 0.56, 0.70), (-0.38, 0.26, -0.56, 0.70)),
}


def draw_person(pen: Pen, category: str, pose: str, rng: np.random.Generator) -> None:
    """Draw one person of height 1; the main colour is that of the shirt, or of the dress for women and girls."""
    is_child, has_dress = category in ("boy", "girl"), category in ("woman", "girl")
    skin, hair, trousers = pick(rng, SKIN), pick(rng, HAIR), pick(rng, TROUSERS)
    lift = {"jumping": 0.10, "running": 0.02}.get(pose, 0.0)
    lean = {"running": 0.07, "walking": 0.02}.get(pose, 0.0)
    size, hip, shoulder, half_width = (0.150, 0.36, 0.66, 0.150) if is_child else (0.122, 0.43, 0.735, 0.155)
    hip, shoulder, chin = hip + lift, shoulder + lift, (0.69 if is_child else 0.755) + lift
    half_width *= 0.84 if has_dress else 1.0  # a dress has narrower shoulders
    arm_length = 0.30 if is_child else 0.33
    head = pen.translate(lean, chin + size * 0.92, size)

    if category == "woman":
        head.blob("0,1.12 0.98,0.6 1.12,-0.5 1.05,-1.65 0,-1.5 -1.2,-1.7 -1.18,-0.5 -1.02,0.6", hair)
    if category == "girl":
        for x in (-1.12, 1.12):
            head.ellipse(x, -0.25, 0.36, 0.5, hair)
    _draw_arm(pen, (lean - half_width + 0.03, shoulder - 0.03), ARMS[pose][1], arm_length, pen.dark, skin)
    for side, (kx, ky, fx, fy) in ((-1, LEGS[pose][1]), (1, LEGS[pose][0])):
        x, length = side * (0.055 if has_dress else 0.072), hip - lift * 0.4
        knee = (x + kx * length, hip - length * (1 - ky))
        foot = (x + fx * length, hip - length * (1 - fy))
        colour = trousers if side > 0 else mix(trousers, INK, 0.25)
        flesh = skin if side > 0 else mix(skin, INK, 0.15)
        pen.ellipse(foot[0] + 0.025, foot[1] + 0.010, 0.066, 0.034, SHOES)
        if has_dress:
            pen.limb([(x, hip, 0.10), (*knee, 0.080), (foot[0], foot[1] + 0.02, 0.060)], flesh)
        elif is_child:  # short trousers
            pen.limb([(*knee, 0.088), (foot[0], foot[1] + 0.02, 0.066)], flesh)
            pen.limb([(x, hip, 0.14), (knee[0], knee[1] + 0.01, 0.125)], colour)
        else:
            pen.limb([(x, hip, 0.135), (*knee, 0.112), (foot[0], foot[1] + 0.025, 0.092)], colour)
    pen.box(lean - 0.035, shoulder - 0.03, lean + 0.035, chin + 0.03, mix(skin, INK, 0.15))
    # the garment from top to bottom: (middle, half of its width, y)
    if has_dress:
        hem, bottom = (0.215, hip - 0.19) if is_child else (0.225, hip - 0.21)
        levels = [(lean, half_width, shoulder - 0.06), (lean * 0.6, half_width * 0.72, hip + 0.11)]
        levels += [(0, hem, bottom + 0.02), (0, hem * 0.7, bottom - 0.012), (0, 0, bottom - 0.02)]
    else:
        levels = [(lean, half_width * 1.04, shoulder - 0.07), (lean * 0.5, half_width * 0.93, hip + 0.08)]
        levels += [(0, half_width * 0.9, hip - 0.03), (0, 0, hip - 0.045)]
    levels.insert(0, (lean, half_width * 0.8, shoulder + 0.005))
    right, left = ([(x + side * width, y) for x, width, y in levels] for side in (1, -1))
    pen.blob([left[0], (lean, shoulder + 0.012), *right, *left[-2:0:-1]], pen.main)
    if has_dress:
        belt = [(lean * 0.6 - half_width * 0.66, hip + 0.115), (lean * 0.6 + half_width * 0.66, hip + 0.115)]
        pen.stroke(belt, 0.03, pen.dark)
    sleeve = mix(pen.main, pen.dark, 0.45)
    _draw_arm(pen, (lean + half_width - 0.03, shoulder - 0.03), ARMS[pose][0], arm_length, sleeve, skin)
    _draw_face(head, category in ("man", "boy"), skin, hair)


def _draw_arm(pen: Pen, shoulder: Point, arm: tuple[float, ...], length: float, sleeve: Colour, skin: Colour) -> None:
    (x, y), (ex, ey, hx, hy) = shoulder, (v * length for v in arm)
    pen.ellipse(x + hx, y + hy, 0.044, 0.044, skin)
    wrist = (x + ex + (hx - ex) * 0.86, y + ey + (hy - ey) * 0.86, 0.074)
    pen.limb([(x, y, 0.095), (x + ex, y + ey, 0.088), wrist], sleeve)


def _draw_face(head: Pen, has_short_hair: bool, skin: Colour, hair: Colour) -> None:
    """Draw the face and short or long hair, in units of half the head's height."""
    head.ellipse(0, 0, 0.94, 1, skin)
    if has_short_hair:
        head.ellipse(-0.90, -0.06, 0.13, 0.2, skin)
        head.blob("-1,0.05 -0.98,0.6 -0.5,1.08 0.3,1.12 0.88,0.76 0.97,0.32 0.5,0.46 -0.1,0.36 -0.62,0.3", hair)
    else:
        head.blob("-1.03,-0.25 -1,0.55 -0.45,1.08 0.45,1.08 1,0.5 1,-0.1 0.78,0.36 0.1,0.58 -0.7,0.22", hair)
    head.stroke("-0.45,0.82 0.2,0.88", 0.12, mix(hair, (255, 255, 255), 0.14))
    for x in (0.02, 0.58):
        head.ellipse(x, -0.02, 0.085, 0.13, INK)
    blush = mix(skin, (230, 90, 80), 0.35)
    head.ellipse(-0.22, -0.38, 0.14, 0.10, blush)
    head.ellipse(0.74, -0.38, 0.10, 0.10, blush)
    head.arc(0.28, -0.34, 0.26, 20, 160, 0.10, (150, 60, 60))
