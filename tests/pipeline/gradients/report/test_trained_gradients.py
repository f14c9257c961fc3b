from pipeline.gradients.report.trained_gradients import build_trained_panels, build_trained_table

ROW = {"name": "ST-Multinomial", "settings": {}, "seconds": 0.1, "bias": 0.9, "bias_error": 0.05, "cosine": 0.3,
       "length": 0.45, "variance": 0.16}  # fmt: skip
MEASUREMENT = {
    "images": 32, "margin": 0.2, "samples": 5, "steps": 100, "captions": 102400, "error": 0.31,
    "rows": [ROW, ROW | {"name": "PSST-Multinomial", "settings": {"rho": 0.5}, "bias": 0.1, "bias_error": 0.06}],
}  # fmt: skip


def test_a_bias_within_two_standard_errors_is_shown_as_an_upper_bound():
    table = build_trained_table(MEASUREMENT)
    assert table.rows[0] == ["ST-Multinomial", "–", "–", "0.90±0.05", "0.30", "0.45", "0.16", "100"]
    assert table.rows[1][:4] == ["PSST-Multinomial", "0.5", "–", "<0.22"]
    assert "102,400 captions" in table.notes[0]
    assert "standard error is 0.31 of its norm" in table.notes[0]


def test_the_figure_has_noise_against_bias_and_length_against_cosine():
    plane, direction = build_trained_panels(MEASUREMENT)
    assert [(point.x, point.y) for line in plane.series for point in line.points] == [(0.9, 0.4), (0.1, 0.4)]
    assert [(point.x, point.y) for line in direction.series for point in line.points] == [(0.3, 0.45), (0.3, 0.45)]
    assert "PSST-Multinomial, ρ 0.5" in plane.series[1].points[0].label
