import gc
import warnings
from contextlib import nullcontext
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms, ImageOps
from strategies import seeds

from tinyvit.data.images import RESAMPLE, eight_bits, image_files, read_image
from tinyvit.data.videos import read_all

sizes = st.tuples(st.integers(1, 12), st.integers(1, 12))
levels = st.integers(0, 255)
damages = st.lists(st.tuples(st.floats(0, 1), levels))  # (relative position in the file, new byte)


def noise(height, width, channels=3, seed=0):
    """Random pixels (H, W, C)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels)).astype("uint8")


def as_image(pixels):
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def upright(pixels):
    """(H, W, C) as (C, H, W)."""
    return pixels.transpose(2, 0, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


@pytest.fixture
def saved(tmp_path):
    """Writes an image to a file and returns the path."""

    def save(image, name="picture.png", **options):
        image.save(tmp_path / name, **options)
        return tmp_path / name

    return save


# -- geometry -------------------------------------------------------------------------------------------------------


@given(size=sizes, channels=st.sampled_from([1, 3]), seed=seeds())
def test_a_picture_of_the_right_size_comes_back_pixel_for_pixel(folder, size, channels, seed):
    pixels = noise(*size, channels, seed)
    as_image(pixels).save(folder / "same.png")
    image = read_image(folder / "same.png", channels, size)
    assert image.dtype == "uint8" and image.flags.c_contiguous
    np.testing.assert_array_equal(image, upright(pixels))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_middle_of_a_long_picture_is_kept(saved, axis):
    lines = np.repeat(np.array([0, 200, 0], "uint8"), [10, 20, 10])
    pixels = np.tile(lines, (20, 1))
    path = saved(Image.fromarray(pixels.T.copy() if axis == 0 else pixels))
    image = read_image(path, 1, 10)[0]
    assert (abs(image[1:-1, 1:-1].astype(int) - 200) <= 5).all()   # the filter reaches past the edge


@pytest.mark.parametrize(("width", "new"), [(15, 29), (29, 15), (7, 25)])
def test_rounding_never_reads_outside_a_side_that_is_shown_in_full(saved, width, new):
    assert (read_image(saved(Image.new("L", (width, 1), 90)), 1, (1, new)) == 90).all()
    assert (read_image(saved(Image.new("L", (1, width), 90)), 1, (new, 1)) == 90).all()


def test_a_crop_below_one_cuts_that_share_out_of_the_middle(saved):
    pixels = np.zeros((40, 60), "uint8")
    pixels[10:30, 20:40] = 255                     # the middle half of the square that fits is white
    path = saved(Image.fromarray(pixels))
    assert (read_image(path, 1, 20, resample="nearest", crop=0.5) == 255).all()
    assert read_image(path, 1, 40, resample="nearest").mean() == 255 / 4


@pytest.mark.parametrize("resample", RESAMPLE)
def test_each_resampling_filter_is_pillows_of_that_name(saved, resample):
    pixels = noise(31, 17, 3, 0)
    path = saved(as_image(pixels))
    expected = np.asarray(as_image(pixels).resize((5, 9), Image.Resampling[resample.upper()]))
    np.testing.assert_array_equal(read_image(path, 3, (9, 5), resample=resample, crop=None), upright(expected))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_eight_exif_orientations_are_shown_as_pillow_turns_them(saved, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(as_image(noise(6, 9)), exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(path)))
    np.testing.assert_array_equal(read_image(path, 3, expected.shape[:2]), upright(expected))


def test_a_large_jpeg_decoded_at_a_fraction_looks_like_the_whole_one(saved):
    small = Image.fromarray(noise(6, 8))
    photo = small.resize((1600, 1200), Image.Resampling.BICUBIC)
    whole, reduced = (saved(photo, name, quality=95) for name in ("photo.png", "photo.jpg"))
    difference = read_image(whole, 3, (24, 32)).astype(int) - read_image(reduced, 3, (24, 32))
    assert abs(difference).max() <= 8


# -- modes ----------------------------------------------------------------------------------------------------------

COLOURS = noise(5, 7) // 2 + 64         # not too bright for CMYK and L*a*b*
RGB = Image.fromarray(COLOURS)
GREYS = RGB.convert("L")
OPAQUE = Image.new("L", RGB.size, 255)
LAB = ImageCms.profileToProfile(
    RGB, ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB"
)  # fmt: skip
FEW = RGB.quantize(16)
MODES = {
    "1": (GREYS.convert("1", dither=Image.Dither.NONE), "png", 0),
    "L": (GREYS, "png", 0),
    "LA": (Image.merge("LA", [GREYS, OPAQUE]), "png", 0),
    "P": (FEW, "png", 0),
    "RGB": (RGB, "png", 0),
    "RGBA": (RGB.convert("RGBA"), "png", 0),
    "CMYK": (RGB.convert("CMYK"), "tiff", 1),
    "YCbCr": (RGB.convert("YCbCr"), "tiff", 3),
    "LAB": (LAB, "tiff", 3),            # eight bits of L*a*b* are coarse
    "I": (Image.fromarray(np.asarray(GREYS, "int32") * 257), "tiff", 0),
    "I;16": (Image.fromarray(np.asarray(GREYS, "uint16") * 257), "png", 0),
    "F": (Image.fromarray(np.asarray(GREYS, "float32") / 255), "tiff", 0),
    "F, up to 255": (Image.fromarray(np.asarray(GREYS, "float32")), "tiff", 0),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_shows_the_picture_that_was_saved(saved, mode, channels):
    image, kind, tolerance = MODES[mode]
    shown = image if mode[0] in "1P" else GREYS if mode[0] in "LIF" and mode != "LAB" else RGB
    expected = np.asarray(shown.convert("RGB").convert("L" if channels == 1 else "RGB"), int).reshape(5, 7, channels)
    coloured = channels == 1 and (shown is RGB or mode == "P")
    with pytest.warns(UserWarning, match="colours.*thrown away") if coloured else nullcontext():
        pixels = read_image(saved(image, f"picture.{kind}"), channels, (5, 7))
    assert abs(pixels - upright(expected)).max() <= tolerance


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])])
def test_transparent_palette_entries_become_white(saved, transparency):
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2])
    pixels = read_image(saved(image, transparency=transparency), 3, (1, 3))
    np.testing.assert_array_equal(pixels[:, 0].T, [[10, 20, 30], [255, 255, 255], [70, 80, 90]])


@pytest.mark.parametrize(("mode", "dark"), [("LA", (50, 0)), ("RGBA", (50, 50, 50, 0))])
@pytest.mark.parametrize(("alpha", "expected"), [(0, 255), (51, 214), (204, 91), (255, 50)])
def test_transparent_pixels_are_blended_with_white(saved, mode, dark, alpha, expected):
    path = saved(Image.new(mode, (4, 4), (*dark[:-1], alpha)))
    for channels in (1, 3):
        np.testing.assert_array_equal(read_image(path, channels, 2), np.full((channels, 2, 2), expected))


@pytest.mark.parametrize(("values", "expected"), [
    (np.array([0.0, 0.2, 1.0]), [0, 51, 255]),
    (np.array([0.0, 51.0, 255.0]), [0, 51, 255]),
    (np.array([0.0, 13_107.0, 65_535.0]), [0, 51, 255]),
    (np.array([-5.0, 2e5, 1e6]), [0, 51, 255]),
    (np.array([-2.0, -1.0, 0.0]), [0, 0, 0]),
    (np.array([0, 257, 1_000], "uint16"), [0, 1, 4]),
    (np.array([-7, 13_107, 65_535], "int32"), [0, 51, 255]),
    (np.array([0, 2**30, 2**31 - 1], "int32"), [0, 128, 255]),
])  # fmt: skip
def test_full_scale_is_the_smallest_common_one_that_holds_all_values(values, expected):
    np.testing.assert_array_equal(eight_bits(values), np.array(expected, "uint8"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_picture_with_nan_or_infinite_pixels_is_refused(saved, value):
    path = saved(Image.fromarray(np.full((2, 2), value, "float32")), "wrong.tiff")
    with pytest.raises(ValueError, match=r"wrong\.tiff can't be read.*NaN or infinite"):
        read_image(path, 1, 2)


# -- unreadable files -----------------------------------------------------------------------------------------------

KINDS = ("png", "jpg", "gif", "bmp", "tiff", "webp", "ppm", "tga", "ico")


def encoded(kind):
    content = BytesIO()
    Image.fromarray(noise(16, 16)).save(content, "jpeg" if kind == "jpg" else kind)
    return content.getvalue()


CONTENTS = {kind: encoded(kind) for kind in KINDS}


@given(kind=st.sampled_from(KINDS), cut=st.floats(0, 1), flips=damages)
def test_a_damaged_file_gives_an_image_or_an_error_that_names_it(folder, kind, cut, flips):
    content = bytearray(CONTENTS[kind])
    for where, value in flips:
        content[int(where * (len(content) - 1))] = value
    path = folder / f"damaged.{kind}"
    path.write_bytes(content[: round(cut * len(content))])
    try:
        assert read_image(path, 3, 8).shape == (3, 8, 8)
    except ValueError as error:
        assert str(error).startswith(f"{path} ")
    gc.collect()  # a file left open would warn here


@pytest.mark.parametrize("kind", ["png", "jpg", "gif", "bmp", "webp", "ppm"])
def test_a_file_truncated_within_its_pixels_is_refused(tmp_path, kind):
    path = tmp_path / f"half.{kind}"
    path.write_bytes(CONTENTS[kind][: len(CONTENTS[kind]) * 3 // 4])
    with pytest.raises(ValueError, match=rf"half\.{kind} can't be read as an image: .+"):
        read_image(path, 3, 8)


@pytest.mark.parametrize("content", [b"", b"not an image", b"<html></html>"])
def test_a_file_that_is_not_an_image_is_refused_by_name(tmp_path, content):
    (tmp_path / "cat.jpg").write_bytes(content)
    with pytest.raises(ValueError, match=r"cat\.jpg can't be read as an image: expected AVIF, .* or WEBP$"):
        read_image(tmp_path / "cat.jpg", 3, 8)


@pytest.mark.parametrize("exif", [b"broken", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\0\x05\1\x12"])
def test_damaged_exif_data_leave_the_picture_unchanged(saved, exif):
    path = saved(Image.new("RGB", (4, 6), (9, 9, 9)), exif=b"Exif\0\0" + exif)
    assert (read_image(path, 3, (6, 4)) == 9).all()


@pytest.mark.parametrize("limit", [49, 99])  # Pillow refuses from twice its limit on, and only warns before
def test_more_pixels_than_are_safe_to_unpack_are_refused(saved, monkeypatch, limit):
    path = saved(Image.new("RGB", (10, 10)))
    assert read_image(path, 3, 2).shape == (3, 2, 2)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(ValueError, match=r"picture\.png can't be read as an image: .* pixels"):
        read_image(path, 3, 2)


@pytest.mark.parametrize(("name", "channels", "size", "message"), [
    ("nowhere.png", 3, 8, "nowhere.png can't be read as an image: No such file"),
    (".", 3, 8, "can't be read as an image: Is a directory"),
    ("picture.png", 2, 8, r"1 channel \(grey\) or 3 \(colour\), got 2"),
    ("picture.png", 3, (4, 0), "size of at least 1×1, got"),
])  # fmt: skip
def test_what_is_no_file_or_can_not_be_made_of_it_is_refused(tmp_path, saved, name, channels, size, message):
    saved(RGB)
    with pytest.raises(ValueError, match=message):
        read_image(tmp_path / name, channels, size)


def test_pillows_warnings_are_not_shown_and_a_programs_own_are(saved):
    path = saved(Image.new("P", (8, 8)), transparency=b"\x05\x07")  # "Palette images with Transparency …"
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        read_all([path] * 4, threads=2, channels=3, size=4)
        assert not shown
        warnings.warn("mine", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["mine"]


# -- many images ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_many_files_are_read_in_order_with_errors_in_place_of_bad_ones(tmp_path, threads):
    paths = [tmp_path / f"{i}.png" for i in range(20)]
    for i, path in enumerate(paths):
        Image.new("L", (4, 4), i).save(path)
    paths[7].write_bytes(b"damaged")
    images = read_all(paths, threads, channels=1, size=2)
    assert isinstance(images[7], ValueError) and "7.png" in str(images[7])
    assert [int(image[0, 0, 0]) for i, image in enumerate(images) if i != 7] == [*range(7), *range(8, 20)]


def test_the_images_of_a_folder_are_found_at_any_depth_and_sorted(tmp_path):
    wanted = ["B.JPG", "a.png", "sub/deep/z.webp", "sub/c.tif"]
    others = [".hidden.png", ".cache/x.png", "sub/readme.txt", "labels.csv", "film.mpeg", "paper.pdf", "data.h5", "png"]
    others += ["drawing.eps", "drawing.wmf"]
    for name in [*others, *wanted]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert image_files(tmp_path) == sorted(tmp_path / name for name in wanted)


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(tmp_path):
    with pytest.raises(FileNotFoundError):
        image_files(tmp_path / "nowhere")
