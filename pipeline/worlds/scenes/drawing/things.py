"""Drawings of vehicles, buildings and other things; vehicles face right and are about one unit long."""

from __future__ import annotations

from pipeline.worlds.scenes.drawing.pen import INK, WHITE, Colour, Pen, mix

TYRE: Colour = (50, 50, 58)
METAL: Colour = (204, 208, 216)
WOOD: Colour = (150, 104, 66)
LAMP: Colour = (255, 238, 160)


def _draw_wheel(pen: Pen, x: float, r: float) -> None:
    pen.ellipse(x, r, r, r, TYRE)
    pen.ellipse(x, r, r * 0.55, r * 0.55, METAL)
    pen.ellipse(x, r, r * 0.2, r * 0.2, (120, 124, 132))


def _draw_speed_lines(pen: Pen, heights: tuple[float, ...], back: float) -> None:
    """Draw speed lines and dust behind a moving vehicle."""
    for i, y in enumerate(heights):
        pen.stroke([(-0.53, y), (back + 0.03 * i, y)], 0.022, (236, 240, 246))
    for i, (dx, r) in enumerate(((-0.55, 0.045), (-0.60, 0.055), (-0.66, 0.04))):
        if dx - r > back - 0.03:
            pen.ellipse(dx, r + 0.01, r, r, (214, 208, 200) if i % 2 else (228, 222, 214))


def draw_car(pen: Pen, pose: str) -> None:
    """Draw a car."""
    if pose == "driving":
        _draw_speed_lines(pen, (0.36, 0.28, 0.20), -0.70)
    pen.box(-0.46, 0.08, 0.46, 0.16, INK)
    body = "-0.51,0.16 -0.5,0.27 -0.38,0.3 -0.1,0.31 0.24,0.3 0.44,0.255 0.51,0.19 0.5,0.1 0,0.08 -0.49,0.09"
    pen.blob(body, pen.main)
    pen.blob("-0.4,0.27 -0.3,0.4 -0.18,0.445 0.06,0.445 0.18,0.4 0.32,0.27 0,0.24", pen.main)
    pen.polygon("-0.33,0.29 -0.25,0.385 -0.16,0.405 -0.07,0.405 -0.07,0.29", pen.glass)
    pen.polygon("-0.03,0.29 -0.03,0.405 0.06,0.405 0.14,0.375 0.25,0.29", pen.glass)
    pen.stroke("-0.05,0.28 -0.05,0.12", 0.012, pen.dark)
    pen.stroke("-0.48,0.165 0.48,0.165", 0.014, pen.dark)
    pen.stroke("0,0.24 0.05,0.24", 0.018, pen.deep)
    pen.ellipse(0.465, 0.215, 0.035, 0.03, LAMP)
    pen.box(-0.505, 0.20, -0.47, 0.25, (214, 52, 48), 0.01)
    for x in (-0.29, 0.29):
        pen.ellipse(x, 0.120, 0.135, 0.120, pen.deep)
        _draw_wheel(pen, x, 0.105)


def draw_bus(pen: Pen, pose: str) -> None:
    """Draw a bus."""
    if pose == "driving":
        _draw_speed_lines(pen, (0.46, 0.36, 0.26), -0.66)
    pen.box(-0.51, 0.09, 0.51, 0.56, pen.main, 0.05)
    pen.box(-0.47, 0.33, 0.29, 0.49, pen.glass, 0.015)
    for k in range(4):
        pen.box(-0.30 + 0.15 * k, 0.33, -0.28 + 0.15 * k, 0.49, pen.dark)
    pen.box(-0.51, 0.22, 0.51, 0.25, WHITE if sum(pen.main) < 680 else (90, 100, 120))
    pen.box(0.31, 0.11, 0.405, 0.49, pen.dark, 0.01)
    pen.box(0.32, 0.13, 0.395, 0.47, pen.glass, 0.01)
    pen.box(0.425, 0.28, 0.505, 0.49, pen.glass, 0.02)
    pen.ellipse(0.48, 0.165, 0.028, 0.028, LAMP)
    pen.box(-0.508, 0.13, -0.485, 0.20, (214, 52, 48))
    for x in (-0.31, 0.19):
        pen.ellipse(x, 0.11, 0.115, 0.11, pen.deep)
        _draw_wheel(pen, x, 0.095)


def draw_truck(pen: Pen, pose: str) -> None:
    """Draw a truck."""
    if pose == "driving":
        _draw_speed_lines(pen, (0.46, 0.34, 0.22), -0.66)
    pen.box(-0.50, 0.10, 0.48, 0.16, (76, 78, 88))
    pen.box(-0.51, 0.16, 0.17, 0.56, pen.main, 0.02)
    pen.box(-0.51, 0.16, 0.17, 0.19, pen.dark)
    cab = "0.19,0.13 0.19,0.3 0.2,0.44 0.34,0.45 0.41,0.42 0.46,0.3 0.51,0.26 0.51,0.12 0.34,0.11"
    pen.blob(cab, mix(pen.main, pen.dark, 0.5))
    pen.polygon("0.27,0.28 0.27,0.405 0.38,0.405 0.44,0.28", pen.glass)
    pen.stroke("0.27,0.22 0.32,0.22", 0.018, pen.deep)
    pen.ellipse(0.485, 0.205, 0.026, 0.028, LAMP)
    for x in (-0.36, -0.13, 0.33):
        _draw_wheel(pen, x, 0.10)


def draw_bicycle(pen: Pen, pose: str) -> None:
    """Draw a bicycle."""
    rear, front, crank, seat, head = (-0.30, 0.21), (0.30, 0.21), (-0.04, 0.20), (-0.13, 0.50), (0.20, 0.53)
    for x, y in (rear, front):
        pen.ring(x, y, 0.212, 0.042, TYRE)
        pen.ring(x, y, 0.172, 0.014, METAL)
        for dx, dy in ((0.16, 0.0), (0.113, 0.113), (0.0, 0.16), (-0.113, 0.113)):
            pen.stroke([(x - dx, y - dy), (x + dx, y + dy)], 0.007, (170, 174, 184))
        pen.ellipse(x, y, 0.03, 0.03, TYRE)
    for line in ((rear, crank), (rear, seat), (crank, seat), (seat, head), (crank, head)):
        pen.stroke(line, 0.054, pen.main)
    pen.stroke([front, head, (0.185, 0.60)], 0.054, pen.main)
    pen.stroke([seat, (-0.145, 0.57)], 0.03, METAL)
    pen.blob("-0.26,0.6 -0.14,0.605 -0.03,0.585 -0.12,0.565 -0.24,0.56", INK)
    pen.stroke("0.185,0.6 0.2,0.655 0.29,0.665 0.31,0.61", 0.034, INK, smooth=True)
    pen.ring(*crank, 0.062, 0.022, INK)
    pen.stroke("-0.04,0.2 0.02,0.1", 0.022, INK)
    pen.stroke("-0.015,0.095 0.06,0.095", 0.028, INK)


def draw_boat(pen: Pen, pose: str) -> None:
    """Draw a boat."""
    pen.stroke("0,0.2 0,1.03", 0.032, (112, 80, 54))
    pen.blob("-0.05,0.96 -0.05,0.3 -0.44,0.29 -0.28,0.6", WHITE if sum(pen.main) < 690 else pen.light)
    pen.polygon("0.05,1 0.05,0.28 0.48,0.28 0.36,0.54 0.2,0.84", pen.main)
    pen.blob("-0.53,0.235 -0.3,0.22 0.2,0.22 0.53,0.25 0.42,0.06 0.3,0.01 -0.3,0.01 -0.42,0.06", pen.main)
    pen.stroke("-0.46,0.175 0.46,0.18", 0.034, WHITE if sum(pen.main) < 690 else (84, 98, 128))
    pen.polygon("0.015,1.05 0.015,0.98 0.13,1.015", (226, 64, 56) if pen.main[0] < 200 else (60, 110, 210))


def draw_house(pen: Pen, pose: str) -> None:
    """Draw a house."""
    roof = (124, 70, 58) if sum(pen.main) > 420 or pen.main[2] > pen.main[0] else (92, 98, 116)
    pen.box(0.20, 0.60, 0.31, 0.91, (166, 106, 88))
    pen.box(0.18, 0.88, 0.33, 0.93, (130, 80, 68))
    pen.box(-0.43, 0.0, 0.43, 0.54, pen.main)
    pen.polygon("-0.43,0.5 0,0.86 0.43,0.5", pen.main)
    pen.polygon("-0.53,0.47 -0.53,0.53 0,0.93 0.53,0.53 0.53,0.47 0,0.83", roof)
    pen.ellipse(0.0, 0.63, 0.075, 0.075, WHITE)
    pen.ellipse(0.0, 0.63, 0.055, 0.055, pen.glass)
    for x in (-0.28, 0.28):
        pen.box(x - 0.115, 0.18, x + 0.115, 0.42, WHITE)
        pen.box(x - 0.09, 0.205, x + 0.09, 0.395, pen.glass)
        pen.box(x - 0.01, 0.205, x + 0.01, 0.395, WHITE)
        pen.box(x - 0.09, 0.292, x + 0.09, 0.312, WHITE)
    pen.box(-0.105, 0.0, 0.105, 0.36, WHITE)
    pen.box(-0.08, 0.0, 0.08, 0.335, (116, 76, 52))
    pen.ellipse(0.05, 0.16, 0.018, 0.018, LAMP)
    pen.box(-0.45, 0.0, 0.45, 0.03, (134, 130, 132))


def draw_tent(pen: Pen, pose: str) -> None:
    """Draw a tent."""
    pen.polygon("-0.1,0.66 0.36,0.6 0.55,0 0.16,0", mix(pen.main, pen.dark, 0.7))
    pen.polygon("-0.52,0 -0.1,0.66 0.32,0", pen.main)
    pen.polygon("-0.26,0 -0.1,0.46 0.06,0", pen.deep)
    pen.polygon("-0.1,0.46 -0.26,0 -0.32,0 -0.13,0.4", pen.light)
    pen.stroke("-0.1,0.66 -0.1,0.71", 0.028, WOOD)
    pen.stroke("-0.52,0.012 0.32,0.012", 0.022, pen.dark)


def draw_umbrella(pen: Pen, pose: str) -> None:
    """Draw an umbrella."""
    pen.stroke("0,0.9 0,0.02", 0.038, WOOD)
    pen.stroke("0,0.04 0.03,0.02 0.08,0.03 0.09,0.08", 0.036, WOOD, smooth=True)
    rim = "-0.5,0.5 -0.375,0.545 -0.25,0.5 -0.125,0.55 0,0.5 0.125,0.55 0.25,0.5 0.375,0.545 0.5,0.5"
    dome = "0.47,0.66 0.36,0.81 0.2,0.905 0,0.935 -0.2,0.905 -0.36,0.81 -0.47,0.66"
    pen.polygon(f"{rim} {dome}", pen.main)
    for x in (-0.25, 0.0, 0.25):
        pen.stroke([(x, 0.50), (x * 0.86, 0.70), (0.0, 0.93)], 0.016, pen.dark, smooth=True)
    pen.stroke("0,0.93 0,0.965", 0.03, WOOD)


def draw_kite(pen: Pen, pose: str) -> None:
    """Draw a kite."""
    pen.stroke("0,0.3 -0.08,0.22 0.06,0.13 -0.02,0.02", 0.02, INK, smooth=True)
    for x, y in ((-0.03, 0.205), (0.03, 0.125), (0.0, 0.05)):
        pen.translate(x, y).polygon("-0.08,0.035 0.08,-0.035 0.08,0.035 -0.08,-0.035", pen.dark)
    pen.polygon("0,1 0.38,0.66 0,0.28 -0.38,0.66", pen.main)
    pen.stroke("0,0.99 0,0.29", 0.024, pen.dark)
    pen.stroke("-0.37,0.66 0.37,0.66", 0.024, pen.dark)


def draw_balloon(pen: Pen, pose: str) -> None:
    """Draw a balloon."""
    for x in (-0.07, 0.07):
        pen.stroke([(x * 1.9, 0.36), (x, 0.17)], 0.014, (110, 84, 60))
    pen.blob("0,1 0.24,0.92 0.345,0.7 0.26,0.46 0.12,0.31 -0.12,0.31 -0.26,0.46 -0.345,0.7 -0.24,0.92", pen.main)
    for x in (-0.16, 0.0, 0.16):
        pen.stroke([(x * 0.5, 0.985), (x * 1.15, 0.70), (x * 0.55, 0.32)], 0.014, pen.dark, smooth=True)
    pen.box(-0.12, 0.28, 0.12, 0.32, pen.dark, 0.01)
    pen.box(-0.09, 0.02, 0.09, 0.17, (176, 122, 72), 0.02)
    pen.box(-0.10, 0.14, 0.10, 0.18, (140, 94, 56), 0.01)
    pen.blob("-0.24,0.84 -0.16,0.9 -0.17,0.76 -0.26,0.66", pen.light)


def draw_bench(pen: Pen, pose: str) -> None:
    """Draw a bench."""
    iron = (70, 74, 84)
    for x in (-0.40, 0.40):
        pen.stroke([(x, 0.57), (x, 0.30), (x - 0.035, 0.02)], 0.045, iron)
        pen.stroke([(x, 0.28), (x + 0.05, 0.02)], 0.045, iron)
    for y in (0.50, 0.405, 0.255):
        pen.box(-0.50, y, 0.50, y + 0.078, pen.main, 0.015)
        pen.box(-0.49, y, 0.49, y + 0.016, pen.dark)


def draw_ball(pen: Pen, pose: str) -> None:
    """Draw a ball."""
    pen.ellipse(0.0, 0.5, 0.5, 0.5, pen.main)
    pen.blob("-0.3,0.76 -0.16,0.86 -0.1,0.78 -0.26,0.64", pen.light)
