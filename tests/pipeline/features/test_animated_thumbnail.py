"""Animated thumbnails of films for the pages of a report."""

import base64
import io

import pytest
from PIL import Image

from pipeline.features.animated_thumbnail import FRAMES, make_animated_thumbnail, open_first_frame


def decode_data_uri(address):
    head, _, content = address.partition(",")
    assert head == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(content)))


def write_gif(path, frames, size=(200, 100)):
    pictures = [Image.new("RGB", size, (10 * number,) * 3) for number in range(frames)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=60)


def test_a_thumbnail_has_few_small_frames_and_the_films_duration(tmp_path):
    write_gif(tmp_path / "a.gif", 24)
    copy = decode_data_uri(make_animated_thumbnail(tmp_path / "a.gif", 50))
    assert (copy.format, copy.size, copy.n_frames) == ("WEBP", (50, 25), FRAMES)
    durations, greys = [], []
    for number in range(FRAMES):
        copy.seek(number)
        copy.load()
        durations.append(copy.info["duration"])
        greys.append(copy.convert("L").getpixel((5, 5)))
    assert sum(durations) == 24 * 60
    assert greys == pytest.approx([10 * (2 * number + 1) for number in range(FRAMES)], abs=4)
    assert open_first_frame(tmp_path / "a.gif").getpixel((0, 0)) == (10, 10, 10)


def test_a_film_has_an_animated_thumbnail_and_a_still_image_has_none(tmp_path):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "a.mp4"), "w") as film:
        stream = film.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(5):
            film.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", (64, 48), (40 * number,) * 3))))
        film.mux(stream.encode(None))
    copy = decode_data_uri(make_animated_thumbnail(tmp_path / "a.mp4", 320))
    assert (copy.size, copy.n_frames) == ((64, 48), 5)
    assert max(open_first_frame(tmp_path / "a.mp4").getpixel((9, 9))) < 5
    Image.new("RGB", (9, 9), "red").save(tmp_path / "a.png")
    write_gif(tmp_path / "one.gif", 1)
    assert make_animated_thumbnail(tmp_path / "a.png", 50) == make_animated_thumbnail(tmp_path / "one.gif", 50) == ""
    assert open_first_frame(tmp_path / "a.png").getpixel((0, 0)) == (255, 0, 0)
