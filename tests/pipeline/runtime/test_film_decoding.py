"""Selection of a film's frames, and films that are broken, huge, of one frame or of a varying rate."""

import gc
import struct
import sys
import weakref
from fractions import Fraction
from itertools import product

import pytest
from PIL import Image

from pipeline.errors import UserError
from pipeline.runtime import film_decoding
from pipeline.runtime.film_decoding import Timeline, check_film, choose_frame_indices, decode_frames, read_timeline

GREYS = range(0, 160, 10)  # grey levels of 16 frames


def make_picture(grey, size=(64, 48)):
    return Image.new("RGB", size, (grey, grey, grey))


def write_gif(path, durations):
    pictures = [make_picture(grey) for grey, _ in zip(GREYS, durations, strict=False)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=list(durations), loop=0)


def write_film(path, durations):
    """Write a film whose frames last `durations` ms."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as film:
        stream = film.add_stream("mpeg4" if path.suffix in (".mp4", ".mov", ".mkv") else "libvpx", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for number, grey in enumerate(GREYS[: len(durations)]):
            frame = av.VideoFrame.from_image(make_picture(grey))
            frame.pts, frame.time_base = sum(durations[:number]), Fraction(1, 1000)
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))


def read_greys(path, frames, rate=None):
    timeline = read_timeline(path)
    indices = choose_frame_indices(timeline.durations, frames, rate, timeline.ticks_per_second)
    return [image.convert("L").getpixel((20, 20)) for image in decode_frames(path, sorted(set(indices)), timeline)]


def test_frames_are_at_the_middles_of_equal_parts_of_the_film():
    assert choose_frame_indices([100] * 8, 8) == list(range(8))
    assert choose_frame_indices([100] * 16, 8) == list(range(1, 16, 2))  # at ticks 100, 300, …, when a frame begins
    assert choose_frame_indices([0.1] * 3, 3) == [0, 1, 2]
    assert choose_frame_indices([100] * 16, 1) == [8]
    assert choose_frame_indices([100] * 3, 8) == [0, 0, 0, 1, 1, 2, 2, 2]  # at 18.75, 56.25, 93.75, 131.25, … of 300
    assert choose_frame_indices([100, 700, 100, 100], 4) == [1, 1, 1, 2]  # at 125, 375, 625, 875 of 1000
    assert choose_frame_indices([100], 3) == [0, 0, 0]


def test_a_rate_gives_between_one_and_the_largest_number_of_frames():
    assert choose_frame_indices([100] * 30, 8, rate=2.0) == [2, 7, 12, 17, 22, 27]  # 3 s: six, at 250, 750, … ms
    assert choose_frame_indices([100] * 30, 4, rate=2.0) == choose_frame_indices([100] * 30, 4)
    assert choose_frame_indices([100], 8, rate=2.0) == [0]
    assert choose_frame_indices([1] * 30, 8, rate=2.0, ticks_per_second=Fraction(10)) == [2, 7, 12, 17, 22, 27]


@pytest.mark.parametrize("name", ["a.gif", "a.mp4", "a.webm", "a.mkv", "a.mov"])
def test_frames_of_a_varying_rate_are_taken_by_time(tmp_path, name):
    durations = [100] * 8 + [200] * 7 + [100]  # 2,300 ms; taken at 383, 1150, 1917
    (write_gif if name == "a.gif" else write_film)(tmp_path / name, durations)
    timeline = read_timeline(tmp_path / name)
    # the last frame's duration is a guess
    assert [round(1000 * each / timeline.ticks_per_second) for each in timeline.durations[:-1]] == durations[:-1]
    assert read_greys(tmp_path / name, 3) == pytest.approx([30, 90, 130], abs=4)


def test_a_film_with_a_rotation_is_upright(tmp_path):
    """A phone stores a portrait film sideways; the track's header has the matrix by which players turn it."""
    av = pytest.importorskip("av")
    sideways = make_picture(0)
    sideways.paste((255, 255, 255), (0, 0, 32, 48))  # the left half, which is on top after a quarter turn clockwise
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as film:
        stream = film.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(3):
            frame = av.VideoFrame.from_image(sideways)
            frame.pts = number
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 44  # offset of the matrix in the header
    content[start : start + 36] = struct.pack(">9i", 0, 2**16, 0, -(2**16), 0, 0, 48 * 2**16, 0, 2**30)
    path.write_bytes(content)
    frames = list(decode_frames(path, [0, 2], read_timeline(path)))
    assert len(frames) == 2
    for image in frames:
        assert image.size == (48, 64)
        assert [image.convert("L").getpixel(pixel) for pixel in ((24, 10), (24, 54))] == pytest.approx([255, 0], abs=8)


def test_a_still_image_and_a_file_with_pages_have_one_frame(tmp_path):
    make_picture(50).save(tmp_path / "a.png")
    make_picture(50).save(tmp_path / "a.tif", save_all=True, append_images=[make_picture(90)])
    write_gif(tmp_path / "a.gif", [100])
    for name in ("a.png", "a.tif", "a.gif"):
        assert read_timeline(tmp_path / name) == Timeline([100])
        assert read_greys(tmp_path / name, 8) == [50 if name != "a.gif" else 0]
    write_film(tmp_path / "a.mp4", [40])
    assert read_greys(tmp_path / "a.mp4", 8) == pytest.approx([0], abs=4)


def test_gif_durations_below_20_ms_are_replaced_by_the_default_of_browsers(tmp_path):
    write_gif(tmp_path / "a.gif", [0, 10, 20, 300])
    assert read_timeline(tmp_path / "a.gif").durations == [100, 100, 20, 300]


@pytest.mark.parametrize("name", ["a.gif", "a.mp4", "a.webm"])
def test_a_damaged_film_is_reported_in_one_line_with_its_name(tmp_path, name):
    path = tmp_path / name
    (write_gif if name == "a.gif" else write_film)(path, [100] * 16)
    whole = path.read_bytes()
    for content in (b"", b"no film at all", whole[:40], whole[: len(whole) // 2] if name != "a.webm" else whole[:60]):
        path.write_bytes(content)
        with pytest.raises(UserError) as error:
            check_film(path)
        assert str(path) in str(error.value)
        assert "\n" not in error.value.args[0]


def test_damaged_frames_of_a_film_with_a_whole_index_are_reported(tmp_path):
    path = tmp_path / "a.mp4"
    write_film(path, [100] * 16)
    whole = path.read_bytes()
    start, end = whole.index(b"mdat") + 4, whole.index(b"moov") - 4
    path.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
    assert len(read_timeline(path).durations) == 16  # only the decoder detects the damage
    with pytest.raises(UserError, match=r"a\.mp4: the file cannot be decoded"):
        check_film(path)


def test_a_missing_film_and_a_folder_in_place_of_a_film_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_timeline(tmp_path / "a.mp4")
    (tmp_path / "b.mp4").mkdir()
    with pytest.raises(UserError, match=r"b.mp4: expected a plain file"):
        read_timeline(tmp_path / "b.mp4")


def test_a_playlist_named_like_a_film_is_not_followed(tmp_path):
    pytest.importorskip("av")
    write_film(tmp_path / "other.mp4", [100] * 3)
    playlists = ("#EXTM3U\n#EXTINF:1,\nother.mp4\n#EXT-X-ENDLIST\n", "ffconcat version 1.0\nfile other.mp4\n")
    for name, playlist in product(("a.mp4", "a.webm"), playlists):
        (tmp_path / name).write_text(playlist)
        with pytest.raises(UserError, match="cannot be decoded"):
            check_film(tmp_path / name)


@pytest.mark.parametrize("name", ["a.gif", "a.mp4"])
def test_a_film_beyond_the_limits_is_refused_before_it_is_read_completely(tmp_path, name, monkeypatch):
    path = tmp_path / name
    (write_gif if name == "a.gif" else write_film)(path, [100] * 16)
    check_film(path)
    counts = []
    check_bounds = film_decoding._check_bounds

    def record_count(path, frames, *size):
        counts.append(frames)
        check_bounds(path, frames, *size)

    monkeypatch.setattr(film_decoding, "_check_bounds", record_count)
    for limit, value, largest in (("MAX_FRAMES", 5, 6), ("MAX_PIXELS", 64 * 48 * 5, 6), ("MAX_FRAME_PIXELS", 3000, 1)):
        with monkeypatch.context() as context:
            context.setattr(film_decoding, limit, value)
            counts.clear()
            with pytest.raises(UserError, match=r"a\.\w+: (the film is too long or too large|frames of 64×48 pixels)"):
                read_timeline(path)
            assert max(counts) == largest


@pytest.mark.slow
def test_decoded_frames_are_not_kept(tmp_path):
    """The decoder yields frames one at a time and keeps no reference to them."""
    write_gif(tmp_path / "a.gif", [100] * 16)
    write_film(tmp_path / "a.mp4", [100] * 16)
    for name in ("a.gif", "a.mp4"):
        timeline = read_timeline(tmp_path / name)
        references, largest_count = [], 0
        for image in decode_frames(tmp_path / name, range(16), timeline):
            references.append(weakref.ref(image))
            del image
            gc.collect()
            largest_count = max(largest_count, sum(each() is not None for each in references))
        assert (len(references), largest_count) == (16, 0)


def test_films_without_pyav_name_the_extra_and_gifs_work(tmp_path, monkeypatch):
    write_film(tmp_path / "a.mp4", [100] * 3)
    write_gif(tmp_path / "a.gif", [100] * 3)
    monkeypatch.setitem(sys.modules, "av", None)
    check_film(tmp_path / "a.gif")
    with pytest.raises(
        UserError, match=r"a.mp4: films need PyAV, which is not installed: pip install 'saywhich\[films\]'"
    ):
        read_timeline(tmp_path / "a.mp4")
