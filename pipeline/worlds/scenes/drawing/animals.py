"""Drawings of animals, from the side and facing right; bodies are about one unit long."""

from __future__ import annotations

from pipeline.worlds.scenes.drawing.pen import INK, WHITE, Colour, Pen, mix, parse_points

ROSE: Colour = (240, 158, 160)
HOOF: Colour = (62, 54, 56)
BEAK: Colour = (250, 170, 40)


def _draw_eye(pen: Pen, x: float, y: float, r: float) -> None:
    """Draw a dark eye with a highlight and a bright rim, so that it also shows on black."""
    pen = pen.translate(x, y, r)
    pen.ellipse(0, 0, 1.35, 1.45, mix(pen.main, WHITE, 0.72))
    pen.ellipse(0, 0, 1, 1.1, INK)
    pen.ellipse(0.3, 0.4, 0.4, 0.4, WHITE)


def _draw_legs(pen: Pen, far: tuple[str, str], near: tuple[str, str], hoof: bool = False) -> None:
    """Draw the hind and the fore leg of each side through their joints (x, y, width); far legs are darker."""
    for limbs, colour in ((far, pen.dark), (near, pen.plain)):
        for joints in limbs:
            pen.limb(joints, colour)
            x, y, width = parse_points(joints)[-1]
            foot = pen.translate(x, y, width)
            if hoof:
                foot.box(-0.62, -0.5, 0.68, 0.22, HOOF, 0.15)
            else:
                foot.ellipse(0.28, -0.08, 0.78, 0.42, colour)


def draw_dog(pen: Pen, pose: str) -> None:
    """Draw a dog in `pose`."""
    head = pen.translate(0.40, 0.68)
    if pose == "sitting":
        head = pen.translate(0.16, 0.74)
        pen.stroke("-0.26,0.08 -0.4,0.1 -0.47,0.22", 0.085, pen.dark, smooth=True)
        pen.limb("0.1,0.4,0.13 0.11,0.05,0.09", pen.dark)
        pen.ellipse(0.14, 0.04, 0.075, 0.04, pen.dark)
        body = "0.02,0.72 0.22,0.62 0.26,0.46 0.18,0.24 0.06,0.06 -0.2,0.01 -0.36,0.08 -0.34,0.28 -0.16,0.5"
        pen.blob(body, pen.main)
        pen.ellipse(-0.17, 0.17, 0.17, 0.16, pen.main)
        pen.arc(-0.17, 0.17, 0.165, 200, 330, 0.022, pen.dark)
        pen.ellipse(-0.02, 0.04, 0.11, 0.042, pen.plain)
        pen.limb("0.19,0.42,0.13 0.22,0.05,0.09", pen.plain)
        pen.ellipse(0.25, 0.042, 0.08, 0.042, pen.plain)
    else:
        if pose == "running":
            far = ("-0.28,0.4,0.17 -0.46,0.26,0.1 -0.58,0.12,0.075", "0.22,0.4,0.14 0.42,0.28,0.09 0.6,0.24,0.075")
            near = ("-0.26,0.42,0.2 -0.36,0.22,0.11 -0.5,0.06,0.08", "0.24,0.42,0.15 0.36,0.22,0.1 0.5,0.1,0.08")
            pen.stroke("-0.34,0.5 -0.48,0.6 -0.62,0.62", 0.085, pen.dark, smooth=True)
        else:
            far = ("-0.24,0.36,0.15 -0.2,0.18,0.09 -0.22,0.05,0.08", "0.16,0.36,0.13 0.16,0.05,0.085")
            near = ("-0.31,0.4,0.2 -0.38,0.2,0.1 -0.36,0.05,0.085", "0.27,0.4,0.15 0.27,0.05,0.09")
            pen.stroke("-0.36,0.48 -0.49,0.58 -0.52,0.72", 0.085, pen.dark, smooth=True)
        _draw_legs(pen, far, near)
        body = "-0.38,0.54 -0.14,0.565 0.1,0.55 0.26,0.64 0.4,0.62 0.36,0.44 0.26,0.32 0.04,0.31 -0.2,0.35 -0.4,0.38"
        pen.blob(body, pen.main)
    head.limb("-0.12,-0.16,0.24 0,0,0.22", pen.plain)
    head.ellipse(0.02, 0.02, 0.155, 0.145, pen.plain)
    head.limb("0.06,-0.03,0.17 0.2,-0.055,0.115", pen.plain)
    head.ellipse(0.245, -0.025, 0.034, 0.030, INK)
    head.stroke("0.25,-0.095 0.13,-0.105", 0.016, INK)
    _draw_eye(head, 0.075, 0.055, 0.026)
    head.blob("-0.1,0.15 -0.02,0.11 -0.02,-0.06 -0.09,-0.17 -0.17,-0.1 -0.17,0.06", pen.dark)


def draw_cat(pen: Pen, pose: str) -> None:
    """Draw a cat in `pose`."""
    if pose == "sitting":
        head = pen.translate(0.04, 0.68)
        pen.stroke("-0.16,0.1 -0.32,0.08 -0.38,0.22 -0.33,0.38", 0.085, pen.dark, smooth=True)
        pen.blob("0.02,0.6 0.17,0.5 0.22,0.28 0.24,0.08 0.1,0.01 -0.14,0.01 -0.28,0.08 -0.26,0.28 -0.12,0.5", pen.main)
        pen.arc(-0.14, 0.16, 0.13, 200, 340, 0.020, pen.dark)
        for x in (0.05, 0.16):
            pen.limb([(x, 0.34, 0.075), (x, 0.05, 0.075)], pen.plain)
            pen.ellipse(x + 0.015, 0.035, 0.06, 0.035, pen.plain)
        pen.stroke("0.105,0.3 0.105,0.03", 0.016, pen.dark)
    elif pose == "sleeping":
        head = pen.translate(0.24, 0.22)
        pen.blob("-0.06,0.42 0.22,0.34 0.34,0.14 0.22,0.01 -0.24,0.01 -0.44,0.08 -0.45,0.26 -0.3,0.4", pen.main)
        pen.stroke("-0.42,0.12 -0.3,0.055 0,0.055 0.1,0.07", 0.09, pen.dark, smooth=True)
    else:
        head = pen.translate(0.34, 0.60)
        pen.stroke("-0.36,0.42 -0.5,0.52 -0.46,0.72 -0.54,0.84", 0.075, pen.dark, smooth=True)
        far = ("-0.22,0.32,0.13 -0.18,0.04,0.07", "0.16,0.32,0.11 0.22,0.04,0.07")
        near = ("-0.31,0.36,0.17 -0.36,0.18,0.09 -0.32,0.04,0.075", "0.24,0.36,0.13 0.3,0.04,0.075")
        _draw_legs(pen, far, near)
        pen.blob("-0.38,0.48 -0.1,0.47 0.14,0.48 0.34,0.56 0.36,0.36 0.22,0.26 -0.1,0.26 -0.4,0.32", pen.main)
    head.polygon("-0.185,0.06 -0.165,0.275 -0.01,0.14", pen.plain)
    head.polygon("-0.15,0.1 -0.145,0.22 -0.055,0.14", ROSE)
    head.polygon("0.185,0.06 0.165,0.275 0.01,0.14", pen.plain)
    head.polygon("0.15,0.1 0.145,0.22 0.055,0.14", ROSE)
    head.blob("0,0.165 0.17,0.1 0.205,-0.02 0.12,-0.13 0,-0.15 -0.12,-0.13 -0.205,-0.02 -0.17,0.1", pen.plain)
    head.ellipse(0.01, -0.075, 0.085, 0.06, mix(pen.main, WHITE, 0.75))
    head.polygon("-0.018,-0.035 0.038,-0.035 0.01,-0.07", ROSE)
    whisker = mix(pen.main, WHITE, 0.6) if sum(pen.main) < 500 else (110, 104, 110)
    for dy in (-0.05, -0.10):
        head.stroke([(0.09, -0.07), (0.215, dy)], 0.010, whisker)
        head.stroke([(-0.07, -0.07), (-0.20, dy)], 0.010, whisker)
    for x in (-0.075, 0.095):
        if pose == "sleeping":
            head.arc(x, 0.035, 0.045, 20, 160, 0.022, INK if sum(pen.main) > 250 else WHITE)
        else:
            head.ellipse(x, 0.03, 0.045, 0.05, (196, 222, 110))
            head.ellipse(x, 0.03, 0.02, 0.046, INK)


def draw_bird(pen: Pen, pose: str) -> None:
    """Draw a bird in `pose`."""
    belly = mix(pen.main, WHITE, 0.55)
    if pose == "flying":
        pen.blob("0.02,0.31 -0.1,0.57 -0.3,0.79 -0.02,0.77 0.16,0.57 0.2,0.33", pen.dark)
        pen.polygon("-0.24,0.21 -0.6,0.35 -0.58,0.19 -0.46,0.09 -0.2,0.11", pen.dark)
        pen.blob("-0.34,0.21 -0.04,0.33 0.22,0.39 0.4,0.33 0.38,0.17 0.14,0.03 -0.16,0.05", pen.main)
        pen.blob("-0.1,0.07 0.14,0.04 0.34,0.15 0.16,0.16", belly)
        pen.polygon("0.42,0.35 0.58,0.27 0.42,0.23", BEAK)
        pen.ellipse(0.32, 0.30, 0.145, 0.135, pen.main)
        pen.blob("0.14,0.27 0.1,0.49 -0.06,0.69 -0.4,0.81 -0.34,0.61 -0.3,0.43 -0.14,0.25", pen.main)
        pen.stroke("-0.34,0.67 -0.12,0.45", 0.025, pen.dark)
        pen.stroke("-0.28,0.53 -0.1,0.37", 0.025, pen.dark)
        _draw_eye(pen, 0.37, 0.32, 0.032)
        return
    for x in (-0.06, 0.07):
        pen.stroke([(x, 0.26), (x, 0.03), (x + 0.08, 0.025)], 0.035, (226, 140, 40))
    pen.polygon("-0.2,0.46 -0.58,0.34 -0.54,0.2 -0.16,0.28", pen.dark)
    pen.blob("0.1,0.66 -0.14,0.56 -0.32,0.38 -0.22,0.22 0.02,0.14 0.24,0.22 0.36,0.42 0.34,0.62", pen.main)
    pen.blob("0.34,0.46 0.26,0.24 0.04,0.16 0.1,0.34", belly)
    pen.polygon("0.36,0.74 0.55,0.64 0.36,0.58", BEAK)
    pen.ellipse(0.22, 0.66, 0.20, 0.19, pen.main)
    pen.blob("0.08,0.52 -0.1,0.52 -0.4,0.32 -0.22,0.24 0.02,0.28", pen.dark)
    _draw_eye(pen, 0.29, 0.70, 0.036)


def draw_horse(pen: Pen, pose: str) -> None:
    """Draw a horse in `pose`."""
    hair = pen.deep if sum(pen.main) > 300 else mix(pen.main, (255, 255, 255), 0.28)
    if pose == "running":
        far = ("0.22,0.5,0.15 0.42,0.42,0.085 0.46,0.22,0.06", "-0.32,0.52,0.2 -0.46,0.3,0.09 -0.62,0.2,0.06")
        near = ("0.22,0.48,0.16 0.4,0.34,0.09 0.58,0.24,0.065", "-0.33,0.52,0.22 -0.42,0.28,0.1 -0.58,0.06,0.065")
        tail = "-0.4,0.68 -0.56,0.7 -0.68,0.58"
    else:
        far = ("0.15,0.48,0.14 0.14,0.26,0.075 0.14,0.05,0.06", "-0.27,0.5,0.18 -0.29,0.28,0.085 -0.26,0.05,0.06")
        near = ("0.24,0.48,0.16 0.25,0.26,0.085 0.25,0.05,0.065", "-0.34,0.52,0.2 -0.4,0.28,0.095 -0.37,0.05,0.065")
        tail = "-0.41,0.64 -0.5,0.52 -0.49,0.24"
    pen.stroke(tail, 0.10, hair, smooth=True)
    _draw_legs(pen, far, near, hoof=True)
    pen.blob(
        "0.1,0.72 -0.1,0.685 -0.28,0.72 -0.4,0.66 -0.43,0.54 -0.36,0.43 -0.1,0.4 0.14,0.4 0.28,0.48 0.33,0.6 0.26,0.72",
        pen.main,
    )
    if pose == "grazing":
        pen.blob("0.06,0.72 0.26,0.62 0.44,0.4 0.54,0.3 0.46,0.18 0.34,0.28 0.22,0.42 0.12,0.48", pen.main)
        pen.blob("0.4,0.36 0.56,0.36 0.64,0.2 0.66,0.08 0.58,0.03 0.5,0.1 0.42,0.22", pen.plain)
        pen.blob("0.08,0.74 0.28,0.66 0.48,0.42 0.42,0.38 0.24,0.56 0.06,0.66", hair)
        pen.polygon("0.44,0.36 0.46,0.47 0.53,0.38", pen.plain)
        pen.ellipse(0.60, 0.075, 0.055, 0.05, pen.dark)
        _draw_eye(pen, 0.535, 0.27, 0.022)
        return
    pen.blob("0.02,0.7 0.18,0.86 0.3,1.02 0.42,1.05 0.46,0.9 0.38,0.78 0.34,0.62 0.24,0.5 0.1,0.54", pen.main)
    pen.blob("0.32,1.02 0.42,1.07 0.52,0.99 0.62,0.86 0.63,0.78 0.56,0.75 0.46,0.82 0.36,0.88", pen.plain)
    pen.polygon("0.34,1.02 0.36,1.145 0.43,1.04", pen.plain)
    pen.blob("0.4,1.09 0.3,1.05 0.18,0.92 0.04,0.74 0.1,0.68 0.2,0.8 0.3,0.92 0.37,1 0.44,0.98", hair)
    pen.ellipse(0.59, 0.805, 0.05, 0.05, pen.dark)
    pen.ellipse(0.61, 0.82, 0.012, 0.012, INK)
    _draw_eye(pen, 0.465, 0.955, 0.022)


def draw_cow(pen: Pen, pose: str) -> None:
    """Draw a cow in `pose`."""
    far = ("0.2,0.36,0.12 0.2,0.05,0.08", "-0.28,0.36,0.14 -0.28,0.05,0.08")
    near = ("0.3,0.38,0.14 0.31,0.05,0.085", "-0.38,0.4,0.16 -0.4,0.05,0.085")
    pen.stroke("-0.46,0.64 -0.54,0.52 -0.53,0.3", 0.035, pen.dark, smooth=True)
    pen.ellipse(-0.53, 0.28, 0.035, 0.06, INK)
    _draw_legs(pen, far, near, hoof=True)
    pen.ellipse(-0.17, 0.28, 0.11, 0.07, ROSE)
    body = "-0.44,0.7 -0.2,0.69 0.1,0.69 0.34,0.7 0.43,0.6 0.4,0.4 0.26,0.28 -0.1,0.27 -0.38,0.32 -0.5,0.46"
    pen.blob(body, pen.main)
    y = 0.22 if pose == "grazing" else 0.70
    head = pen.translate(0.52, y)
    pen.limb([(0.30, 0.54, 0.28), (0.47, y + 0.02, 0.20)], pen.main)
    for x in (-0.10, 0.08):
        head.stroke([(x, 0.10), (x * 1.7, 0.185)], 0.045, (236, 222, 190))
    head.ellipse(-0.17, 0.075, 0.075, 0.04, pen.dark)
    head.blob("-0.11,0.12 0.08,0.12 0.13,0 0.13,-0.12 -0.03,-0.13 -0.12,0", pen.plain)
    head.ellipse(0.055, -0.115, 0.105, 0.07, ROSE)
    head.ellipse(0.02, -0.11, 0.016, 0.02, (150, 84, 92))
    head.ellipse(0.10, -0.11, 0.016, 0.02, (150, 84, 92))
    _draw_eye(head, 0.035, 0.035, 0.026)


def draw_sheep(pen: Pen, pose: str) -> None:
    """Draw a sheep in `pose`."""
    face = (74, 66, 70) if sum(pen.main) > 300 else (206, 190, 178)
    for x, share in ((-0.24, 0.75), (0.18, 0.75), (-0.14, 1.0), (0.27, 1.0)):
        pen.limb([(x, 0.28, 0.085), (x, 0.04, 0.07)], mix(INK, face, share))
    for x, y, r in parse_points(
        "-0.28,0.44,0.165 -0.32,0.34,0.14 -0.14,0.52,0.165 0.04,0.55,0.165 0.2,0.5,0.165 0.28,0.38,0.145 "
        "0.16,0.29,0.125 0,0.27,0.125 -0.16,0.28,0.125"
    ):
        pen.ellipse(x, y, r, r, pen.main)
    pen.ellipse(0.0, 0.41, 0.28, 0.18, pen.main)
    for x, y in parse_points("-0.22,0.45 -0.04,0.5 0.1,0.4 -0.12,0.36"):
        pen.arc(x, y, 0.075, 20, 160, 0.022, pen.dark)
    head = pen.translate(0.40, 0.20) if pose == "grazing" else pen.translate(0.43, 0.56)
    head.ellipse(-0.13, 0.05, 0.085, 0.045, mix(face, INK, 0.3))
    head.blob("-0.09,0.12 0.05,0.12 0.14,-0.02 0.13,-0.14 0.02,-0.16 -0.08,-0.04", face)
    for x in (-0.09, -0.02, 0.04):
        head.ellipse(x, 0.125, 0.06, 0.055, pen.main)
    head.ellipse(0.045, 0.02, 0.032, 0.034, WHITE)
    head.ellipse(0.052, 0.018, 0.017, 0.02, INK)
