import io
import math
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from pipeline.errors import UserError
from pipeline.features import images
from pipeline.features.images import decode_within, open_image

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def decode_pixels(path):
    image = open_image(path)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_by_its_exif_orientation(tmp_path, orientation):
    """A picture with a red first row and a green first column is stored in each of the eight EXIF orientations."""
    upright = np.zeros((4, 6, 3), np.uint8)
    upright[0], upright[:, 0] = RED, GREEN
    turns = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(turns[orientation](upright))
    Image.fromarray(stored).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(decode_pixels(tmp_path / "a.png"), upright)


def test_an_image_with_damaged_exif_is_decoded(tmp_path):
    Image.new("RGB", (8, 8), RED).save(tmp_path / "a.jpg", exif=b"Exif\0\0nonsense")
    assert decode_pixels(tmp_path / "a.jpg").shape == (8, 8, 3)


def test_cmyk_images_keep_their_colours(tmp_path):
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)  # red is magenta and yellow ink
    assert np.abs(decode_pixels(tmp_path / "a.jpg").astype(int) - RED).max() < 5
    Image.new("CMYK", (8, 8), (255, 255, 0, 0)).save(tmp_path / "a.tif")
    assert np.abs(decode_pixels(tmp_path / "a.tif").astype(int) - BLUE).max() < 5


def test_transparent_pixels_are_drawn_on_white(tmp_path):
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, *GREEN])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "opaque.png")
    palette.save(tmp_path / "a.png", transparency=1)
    palette.save(tmp_path / "a.gif", transparency=1)
    assert decode_pixels(tmp_path / "opaque.png")[0].tolist() == [[*RED], [*GREEN]]
    for name in ("a.png", "a.gif"):
        assert decode_pixels(tmp_path / name)[0].tolist() == [[*RED], [*WHITE]]
    half = np.array([[[0, 0, 255, 255], [0, 0, 255, 0], [0, 0, 255, 128]]], np.uint8)
    Image.fromarray(half).save(tmp_path / "rgba.png")
    assert decode_pixels(tmp_path / "rgba.png")[0].tolist() == [[*BLUE], [*WHITE], [127, 127, 255]]
    Image.fromarray(np.array([[[50, 255], [50, 0]]], np.uint8)).save(tmp_path / "la.png")
    assert decode_pixels(tmp_path / "la.png")[0].tolist() == [[50] * 3, [255] * 3]
    Image.new("RGB", (2, 1), RED).save(tmp_path / "keyed.png", transparency=RED)
    assert decode_pixels(tmp_path / "keyed.png")[0].tolist() == [[*WHITE]] * 2


def test_grey_of_1_8_16_and_32_bits_is_scaled_to_8_bits(tmp_path):
    Image.fromarray(np.array([[0, 128, 255]], np.uint8)).save(tmp_path / "8.png")
    assert decode_pixels(tmp_path / "8.png")[0].tolist() == [[0] * 3, [128] * 3, [255] * 3]
    deep = np.array([[0, 257, 32896, 65535]], np.uint16)
    for name in ("16.png", "16.tif"):
        Image.fromarray(deep).save(tmp_path / name)
        assert decode_pixels(tmp_path / name)[0].tolist() == [[0] * 3, [1] * 3, [128] * 3, [255] * 3]
    Image.fromarray(deep.astype(np.int32)).save(tmp_path / "32.tif")
    assert decode_pixels(tmp_path / "32.tif")[0].tolist() == [[0] * 3, [1] * 3, [128] * 3, [255] * 3]
    Image.new("1", (2, 1), 1).save(tmp_path / "1.png")
    assert decode_pixels(tmp_path / "1.png")[0].tolist() == [[255] * 3] * 2


def test_sixteen_bits_with_a_transparent_value_are_scaled_too(tmp_path):
    deep = np.array([[0, 257, 32896, 65535]], np.uint16)
    for transparent, expected in ((32896, [0, 1, 255, 255]), (0, [255, 1, 128, 255]), (65535, [0, 1, 128, 255])):
        Image.fromarray(deep).save(tmp_path / "a.png")
        content = (tmp_path / "a.png").read_bytes()
        chunk = b"tRNS" + struct.pack(">H", transparent)
        (tmp_path / "a.png").write_bytes(
            content[:33] + struct.pack(">I", 2) + chunk + struct.pack(">I", zlib.crc32(chunk)) + content[33:]
        )
        assert decode_pixels(tmp_path / "a.png")[0].tolist() == [[grey] * 3 for grey in expected]


@pytest.mark.parametrize("value", [-1, 65_536])
def test_integers_without_a_known_range_are_reported(tmp_path, value):
    Image.fromarray(np.array([[0, value]], np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match=r"a.tif: the image cannot be decoded \(integers outside 0 … 65,535 have no"):
        open_image(tmp_path / "a.tif")


def test_the_first_frame_of_an_animation_is_decoded(tmp_path):
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE)]
    for name in ("a.gif", "a.png", "a.webp"):
        options = {"lossless": True} if name.endswith("webp") else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], duration=100, **options)
        assert decode_pixels(tmp_path / name)[0, 0].tolist() == [*RED], name


def truncate_image(kind):
    buffer = io.BytesIO()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, kind)
    return buffer.getvalue()[: len(buffer.getvalue()) // 2]


def make_decompression_bomb():
    """Return a PNG of a few bytes whose header states 60,000 × 60,000 pixels."""
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"")))
    encoded = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(encoded)


def make_float_image():
    buffer = io.BytesIO()
    Image.fromarray(np.ones((2, 2), np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.jpg", b"", "the image file is empty"),
        ("half.jpg", truncate_image("JPEG"), r"cannot be decoded \(.*truncated"),
        ("half.png", truncate_image("PNG"), r"cannot be decoded \("),
        ("half.gif", truncate_image("GIF"), r"cannot be decoded \(.*truncated"),
        ("half.webp", truncate_image("WEBP"), r"cannot be decoded \("),
        ("half.tif", truncate_image("TIFF"), r"cannot be decoded \("),
        ("page.jpg", b"<html>404</html>", r"cannot be decoded \(cannot identify image file"),
        ("bomb.png", make_decompression_bomb(), r"cannot be decoded \(Image size .* exceeds limit"),
        ("floats.tif", make_float_image(), r"cannot be decoded \(floating-point"),
    ],
)
def test_an_undecodable_image_is_reported_in_one_line(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=reason) as error:
        open_image(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in error.value.args[0]


def test_a_missing_file_raises_filenotfounderror(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_image(tmp_path / "none.jpg")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_pixels_do_not_depend_on_the_strips_that_are_converted(tmp_path, monkeypatch, mode):
    noise = np.random.default_rng(0).integers(0, 256, (50, 33, 4), np.uint8)
    image = Image.fromarray(noise[..., 0].astype(np.uint16) * 255) if mode == "I;16" else Image.fromarray(noise)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    (image if mode == "I;16" else image.convert("RGB").convert(mode) if mode in "CMYK P" else image.convert(mode)).save(
        path
    )
    whole = decode_pixels(path)
    monkeypatch.setattr(images, "STRIP", 100)
    np.testing.assert_array_equal(decode_pixels(path), whole)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_large_image_is_reduced_upright(tmp_path, monkeypatch, suffix):
    """The image has blocks of 8 × 8 equal pixels, which neither the reduction nor JPEG mixes."""
    exif = Image.Exif()
    exif[0x0112] = 6
    blocks = np.kron(np.random.default_rng(0).integers(0, 256, (10, 20), np.uint8), np.ones((8, 8), np.uint8))
    Image.fromarray(blocks).save(tmp_path / f"a.{suffix}", exif=exif, **({"quality": 100} if suffix == "jpg" else {}))
    whole = decode_pixels(tmp_path / f"a.{suffix}")
    assert whole.shape == (160, 80, 3)
    monkeypatch.setattr(images, "MAX_PIXELS", 160 * 80 // 16)
    monkeypatch.setattr(images, "STRIP", 700)
    reduced = decode_pixels(tmp_path / f"a.{suffix}")
    assert reduced.shape == (40, 20, 3)
    assert np.abs(reduced.astype(int) - whole[::4, ::4]).max() <= 1


@pytest.mark.parametrize(
    ("size", "reduced"), [((1, 400), (1, 100)), ((400, 1), (100, 1)), ((2, 399), (1, 100)), ((21, 19), (7, 7))]
)
def test_an_image_whose_sides_are_rounded_up_stays_within_the_limits(tmp_path, monkeypatch, size, reduced):
    Image.new("L", size).save(tmp_path / "a.png")
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    monkeypatch.setattr(images, "MEMORY", needed := math.prod(size) + 4 * math.prod(reduced))
    assert open_image(tmp_path / "a.png").size == reduced
    monkeypatch.setattr(images, "MEMORY", needed - 1)
    with pytest.raises(UserError, match=r"a\.png: an image of 0 megapixels \(PNG\) needs"):
        open_image(tmp_path / "a.png")


def test_an_image_above_the_memory_limit_is_reported(tmp_path, monkeypatch):
    Image.new("RGB", (40, 50)).save(tmp_path / "a.webp")
    monkeypatch.setattr(images, "MEMORY", 30_000)
    with pytest.raises(UserError, match=r"a.webp: an image of 0 megapixels \(WEBP\) needs .* GB to be decoded, and"):
        open_image(tmp_path / "a.webp")
    Image.new("RGB", (40, 50)).save(tmp_path / "a.png")
    assert open_image(tmp_path / "a.png").size == (40, 50)


def test_threads_share_the_memory_that_images_are_decoded_in(tmp_path, monkeypatch):
    """An image that needs more than half of the memory keeps other images from being decoded until the block ends."""
    Image.new("RGB", (40, 50)).save(tmp_path / "a.png")
    monkeypatch.setattr(images, "BUDGET", images.MemoryBudget(20_000))  # an image needs 16,000
    active, counts, lock = 0, [], threading.Lock()

    def decode_image(_):
        nonlocal active
        with decode_within(tmp_path / "a.png"):
            with lock:
                active += 1
                counts.append(active)
            threading.Event().wait(0.01)
            with lock:
                active -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(decode_image, range(12)))
    assert len(counts) == 12
    assert max(counts) == 1
