"""How pets and birds look, seen from the side and facing right; bodies are about one unit long."""

from __future__ import annotations

from pipeline.scenes.drawing.pen import INK, Colour, Pen, mix

WHITE: Colour = (250, 250, 246)
ROSE: Colour = (240, 158, 160)
HOOF: Colour = (62, 54, 56)
BEAK: Colour = (250, 170, 40)


def eye(pen: Pen, x: float, y: float, r: float) -> None:
    """A dark eye with a light, ringed so that it also shows on black."""
    pen.ellipse(x, y, r * 1.35, r * 1.45, mix(pen.main, WHITE, 0.72))
    pen.ellipse(x, y, r, r * 1.1, INK)
    pen.ellipse(x + r * 0.3, y + r * 0.4, r * 0.4, r * 0.4, WHITE)


def legs(
    pen: Pen, near: list[list[tuple[float, float, float]]], far: list[list[tuple[float, float, float]]], hoof: bool
) -> None:
    """Legs through their joints, the far ones darker."""
    for limbs, colour in ((far, pen.dark), (near, pen.plain)):
        for joints in limbs:
            pen.limb(joints, colour)
            x, y, w = joints[-1]
            if hoof:
                pen.box(x - w * 0.62, y - w * 0.5, x + w * 0.68, y + w * 0.22, HOOF, w * 0.15)
            else:
                pen.ellipse(x + w * 0.28, y - w * 0.08, w * 0.78, w * 0.42, colour)


def dog(pen: Pen, pose: str) -> None:
    far = near = []
    hx, hy = 0.40, 0.68
    if pose == "sitting":
        hx, hy = 0.16, 0.74
        pen.stroke([(-0.26, 0.08), (-0.40, 0.10), (-0.47, 0.22)], 0.085, pen.dark, smooth=True)
        pen.limb([(0.10, 0.40, 0.13), (0.11, 0.05, 0.09)], pen.dark)
        pen.ellipse(0.14, 0.04, 0.075, 0.04, pen.dark)
        pen.blob(
            [
                (0.02, 0.72),
                (0.22, 0.62),
                (0.26, 0.46),
                (0.18, 0.24),
                (0.06, 0.06),
                (-0.20, 0.01),
                (-0.36, 0.08),
                (-0.34, 0.28),
                (-0.16, 0.50),
            ],
            pen.main,
        )
        pen.ellipse(-0.17, 0.17, 0.17, 0.16, pen.main)
        pen.arc(-0.17, 0.17, 0.165, 200, 330, 0.022, pen.dark)
        pen.ellipse(-0.02, 0.04, 0.11, 0.042, pen.plain)
        pen.limb([(0.19, 0.42, 0.13), (0.22, 0.05, 0.09)], pen.plain)
        pen.ellipse(0.25, 0.042, 0.08, 0.042, pen.plain)
    else:
        if pose == "running":
            far = [
                [(-0.28, 0.40, 0.17), (-0.46, 0.26, 0.10), (-0.58, 0.12, 0.075)],
                [(0.22, 0.40, 0.14), (0.42, 0.28, 0.09), (0.60, 0.24, 0.075)],
            ]
            near = [
                [(-0.26, 0.42, 0.20), (-0.36, 0.22, 0.11), (-0.50, 0.06, 0.08)],
                [(0.24, 0.42, 0.15), (0.36, 0.22, 0.10), (0.50, 0.10, 0.08)],
            ]
            pen.stroke([(-0.34, 0.50), (-0.48, 0.60), (-0.62, 0.62)], 0.085, pen.dark, smooth=True)
        else:
            far = [
                [(-0.24, 0.36, 0.15), (-0.20, 0.18, 0.09), (-0.22, 0.05, 0.08)],
                [(0.16, 0.36, 0.13), (0.16, 0.05, 0.085)],
            ]
            near = [
                [(-0.31, 0.40, 0.20), (-0.38, 0.20, 0.10), (-0.36, 0.05, 0.085)],
                [(0.27, 0.40, 0.15), (0.27, 0.05, 0.09)],
            ]
            pen.stroke([(-0.36, 0.48), (-0.49, 0.58), (-0.52, 0.72)], 0.085, pen.dark, smooth=True)
        legs(pen, near, far, hoof=False)
        pen.blob(
            [
                (-0.38, 0.54),
                (-0.14, 0.565),
                (0.10, 0.55),
                (0.26, 0.64),
                (0.40, 0.62),
                (0.36, 0.44),
                (0.26, 0.32),
                (0.04, 0.31),
                (-0.20, 0.35),
                (-0.40, 0.38),
            ],
            pen.main,
        )
    pen.limb([(hx - 0.12, hy - 0.16, 0.24), (hx, hy, 0.22)], pen.plain)
    pen.ellipse(hx + 0.02, hy + 0.02, 0.155, 0.145, pen.plain)
    pen.limb([(hx + 0.06, hy - 0.03, 0.17), (hx + 0.20, hy - 0.055, 0.115)], pen.plain)
    pen.ellipse(hx + 0.245, hy - 0.025, 0.034, 0.030, INK)
    pen.stroke([(hx + 0.25, hy - 0.095), (hx + 0.13, hy - 0.105)], 0.016, INK)
    eye(pen, hx + 0.075, hy + 0.055, 0.026)
    pen.blob(
        [
            (hx - 0.10, hy + 0.15),
            (hx - 0.02, hy + 0.11),
            (hx - 0.02, hy - 0.06),
            (hx - 0.09, hy - 0.17),
            (hx - 0.17, hy - 0.10),
            (hx - 0.17, hy + 0.06),
        ],
        pen.dark,
    )


def cat(pen: Pen, pose: str) -> None:
    if pose == "sitting":
        hx, hy = 0.04, 0.68
        pen.stroke([(-0.16, 0.10), (-0.32, 0.08), (-0.38, 0.22), (-0.33, 0.38)], 0.085, pen.dark, smooth=True)
        pen.blob(
            [
                (0.02, 0.60),
                (0.17, 0.50),
                (0.22, 0.28),
                (0.24, 0.08),
                (0.10, 0.01),
                (-0.14, 0.01),
                (-0.28, 0.08),
                (-0.26, 0.28),
                (-0.12, 0.50),
            ],
            pen.main,
        )
        pen.arc(-0.14, 0.16, 0.13, 200, 340, 0.020, pen.dark)
        for x in (0.05, 0.16):
            pen.limb([(x, 0.34, 0.075), (x, 0.05, 0.075)], pen.plain)
            pen.ellipse(x + 0.015, 0.035, 0.06, 0.035, pen.plain)
        pen.stroke([(0.105, 0.30), (0.105, 0.03)], 0.016, pen.dark)
    elif pose == "sleeping":
        hx, hy = 0.24, 0.22
        pen.blob(
            [
                (-0.06, 0.42),
                (0.22, 0.34),
                (0.34, 0.14),
                (0.22, 0.01),
                (-0.24, 0.01),
                (-0.44, 0.08),
                (-0.45, 0.26),
                (-0.30, 0.40),
            ],
            pen.main,
        )
        pen.stroke([(-0.42, 0.12), (-0.30, 0.055), (0.0, 0.055), (0.10, 0.07)], 0.09, pen.dark, smooth=True)
    else:
        hx, hy = 0.34, 0.60
        pen.stroke([(-0.36, 0.42), (-0.50, 0.52), (-0.46, 0.72), (-0.54, 0.84)], 0.075, pen.dark, smooth=True)
        far = [[(-0.22, 0.32, 0.13), (-0.18, 0.04, 0.07)], [(0.16, 0.32, 0.11), (0.22, 0.04, 0.07)]]
        near = [
            [(-0.31, 0.36, 0.17), (-0.36, 0.18, 0.09), (-0.32, 0.04, 0.075)],
            [(0.24, 0.36, 0.13), (0.30, 0.04, 0.075)],
        ]
        legs(pen, near, far, hoof=False)
        pen.blob(
            [
                (-0.38, 0.48),
                (-0.10, 0.47),
                (0.14, 0.48),
                (0.34, 0.56),
                (0.36, 0.36),
                (0.22, 0.26),
                (-0.10, 0.26),
                (-0.40, 0.32),
            ],
            pen.main,
        )
    for side in (-1, 1):
        pen.polygon(
            [(hx + side * 0.185, hy + 0.06), (hx + side * 0.165, hy + 0.275), (hx + side * 0.01, hy + 0.14)], pen.plain
        )
        pen.polygon(
            [(hx + side * 0.150, hy + 0.10), (hx + side * 0.145, hy + 0.22), (hx + side * 0.055, hy + 0.14)], ROSE
        )
    pen.blob(
        [
            (hx, hy + 0.165),
            (hx + 0.17, hy + 0.10),
            (hx + 0.205, hy - 0.02),
            (hx + 0.12, hy - 0.13),
            (hx, hy - 0.15),
            (hx - 0.12, hy - 0.13),
            (hx - 0.205, hy - 0.02),
            (hx - 0.17, hy + 0.10),
        ],
        pen.plain,
    )
    pen.ellipse(hx + 0.01, hy - 0.075, 0.085, 0.06, mix(pen.main, WHITE, 0.75))
    pen.polygon([(hx - 0.018, hy - 0.035), (hx + 0.038, hy - 0.035), (hx + 0.01, hy - 0.07)], ROSE)
    whisker = mix(pen.main, WHITE, 0.6) if sum(pen.main) < 500 else (110, 104, 110)
    for dy in (-0.05, -0.10):
        pen.stroke([(hx + 0.09, hy - 0.07), (hx + 0.215, hy + dy)], 0.010, whisker)
        pen.stroke([(hx - 0.07, hy - 0.07), (hx - 0.20, hy + dy)], 0.010, whisker)
    for x in (hx - 0.075, hx + 0.095):
        if pose == "sleeping":
            pen.arc(x, hy + 0.035, 0.045, 20, 160, 0.022, INK if sum(pen.main) > 250 else WHITE)
        else:
            pen.ellipse(x, hy + 0.03, 0.045, 0.05, (196, 222, 110))
            pen.ellipse(x, hy + 0.03, 0.02, 0.046, INK)


def bird(pen: Pen, pose: str) -> None:
    belly = mix(pen.main, WHITE, 0.55)
    if pose == "flying":
        pen.blob([(0.02, 0.31), (-0.10, 0.57), (-0.30, 0.79), (-0.02, 0.77), (0.16, 0.57), (0.20, 0.33)], pen.dark)
        pen.polygon([(-0.24, 0.21), (-0.60, 0.35), (-0.58, 0.19), (-0.46, 0.09), (-0.20, 0.11)], pen.dark)
        pen.blob(
            [(-0.34, 0.21), (-0.04, 0.33), (0.22, 0.39), (0.40, 0.33), (0.38, 0.17), (0.14, 0.03), (-0.16, 0.05)],
            pen.main,
        )
        pen.blob([(-0.10, 0.07), (0.14, 0.04), (0.34, 0.15), (0.16, 0.16)], belly)
        pen.polygon([(0.42, 0.35), (0.58, 0.27), (0.42, 0.23)], BEAK)
        pen.ellipse(0.32, 0.30, 0.145, 0.135, pen.main)
        pen.blob(
            [(0.14, 0.27), (0.10, 0.49), (-0.06, 0.69), (-0.40, 0.81), (-0.34, 0.61), (-0.30, 0.43), (-0.14, 0.25)],
            pen.main,
        )
        pen.stroke([(-0.34, 0.67), (-0.12, 0.45)], 0.025, pen.dark)
        pen.stroke([(-0.28, 0.53), (-0.10, 0.37)], 0.025, pen.dark)
        eye(pen, 0.37, 0.32, 0.032)
        return
    for x in (-0.06, 0.07):
        pen.stroke([(x, 0.26), (x, 0.03), (x + 0.08, 0.025)], 0.035, (226, 140, 40))
    pen.polygon([(-0.20, 0.46), (-0.58, 0.34), (-0.54, 0.20), (-0.16, 0.28)], pen.dark)
    pen.blob(
        [
            (0.10, 0.66),
            (-0.14, 0.56),
            (-0.32, 0.38),
            (-0.22, 0.22),
            (0.02, 0.14),
            (0.24, 0.22),
            (0.36, 0.42),
            (0.34, 0.62),
        ],
        pen.main,
    )
    pen.blob([(0.34, 0.46), (0.26, 0.24), (0.04, 0.16), (0.10, 0.34)], belly)
    pen.polygon([(0.36, 0.74), (0.55, 0.64), (0.36, 0.58)], BEAK)
    pen.ellipse(0.22, 0.66, 0.20, 0.19, pen.main)
    pen.blob([(0.08, 0.52), (-0.10, 0.52), (-0.40, 0.32), (-0.22, 0.24), (0.02, 0.28)], pen.dark)
    eye(pen, 0.29, 0.70, 0.036)
