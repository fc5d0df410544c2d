"""Image files and what Pillow (which tensorboard brings) reads in them, for images_test.cpp.

    python images.py FOLDER

Writes FOLDER/NAME.png and NAME.jpg, and FOLDER/pixels.safetensors: "NAME.png/rgb" and "NAME.png/gray", uint8 [channels, height, width],
of convert("RGB") and convert("L"); "resized/HEIGHTxWIDTH/NAME", by resize(BILINEAR); and "cropped/HEIGHTxWIDTH/NAME".
"""

import pathlib
import struct
import sys
import zlib

import numpy as np
import safetensors.numpy
from PIL import Image

folder = pathlib.Path(sys.argv[1])
draw = np.random.default_rng(3)
tensors = {}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, rows, width, height, depth, color, interlace=0, chunks=b""):
    """Pillow writes neither interlaced files nor 16 bits a channel of colours."""
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)) + chunks +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def rows_of(pixels):
    """Each with filter 0; of 16 bits where the pixels are."""
    return b"".join(b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for row in pixels)


def interlaced(pixels):
    """The seven passes of Adam7."""
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    parts = [pixels[y::dy, x::dx] for x, y, dx, dy in passes]
    return b"".join(rows_of(part) for part in parts if part.size)


def planes(array):
    array = np.asarray(array, dtype=np.uint8)
    return np.ascontiguousarray(array.transpose(2, 0, 1) if array.ndim == 3 else array[None])


def expect(name, image=None):
    image = image or Image.open(folder / name)
    tensors[f"{name}/rgb"] = planes(image.convert("RGB"))
    tensors[f"{name}/gray"] = planes(image.convert("L"))


def picture(height, width, channels):
    """Smooth, with some noise: as photographs are."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 100 * np.sin(x / (5 + k) + k) * np.cos(y / (7 - k)) + draw.normal(0, 6, (height, width)) for k in range(channels)]
    return np.clip(np.stack(waves, -1), 0, 255).astype(np.uint8)


for height, width in ((1, 1), (5, 7), (16, 16), (65, 33), (131, 200)):
    size = f"{height}x{width}"
    color = picture(height, width, 4)
    images = {"rgb": Image.fromarray(color[..., :3]), "rgba": Image.fromarray(color), "l": Image.fromarray(color[..., 0]),
              "la": Image.fromarray(np.ascontiguousarray(color[..., :2])), "1": Image.fromarray(color[..., 0]).convert("1"),
              "p": Image.fromarray(color[..., :3]).quantize(13)}
    for mode, image in images.items():
        name = f"{mode}_{size}.png"
        image.save(folder / name, **({"transparency": 3} if mode == "p" else {}))
        expect(name)
    for mode, channels, code in (("rgb", 3, 2), ("rgba", 4, 6), ("l", 1, 0), ("la", 2, 4)):
        pixels = np.ascontiguousarray(color[..., :channels])
        name = f"interlaced_{mode}_{size}.png"
        write_png(folder / name, interlaced(pixels), width, height, 8, code, interlace=1)
        expect(name, Image.fromarray(pixels[..., 0] if channels == 1 else pixels))
        wide = pixels.astype(np.uint16) * 256 + draw.integers(0, 256, pixels.shape, dtype=np.uint16)
        name = f"wide_{mode}_{size}.png"
        write_png(folder / name, rows_of(wide), width, height, 16, code)
        if channels == 3:  # the bytes that Pillow keeps; it clips gray values of 16 bits
            expect(name)
        else:
            expect(name, Image.fromarray(pixels[..., 0] if channels == 1 else pixels))
    # gAMA says that the values are linear; Pillow does not convert them.
    name = f"gamma_{size}.png"
    write_png(folder / name, rows_of(color[..., :3]), width, height, 8, 2, chunks=chunk(b"gAMA", struct.pack(">I", 100000)))
    expect(name)
    for mode, channels in (("l", 1), ("rgb", 3), ("cmyk", 4)):
        pixels = color[..., 0] if channels == 1 else np.ascontiguousarray(color[..., :channels])
        image = Image.fromarray(pixels) if channels < 4 else Image.frombytes("CMYK", (width, height), pixels.tobytes())
        for kind, options in (("444", {"subsampling": 0}), ("422", {"subsampling": 1}), ("420", {"subsampling": 2}),
                              ("progressive", {"progressive": True, "quality": 60}), ("restart", {"restart_marker_blocks": 2}),
                              ("q100", {"quality": 100}), ("q10", {"quality": 10})):
            name = f"{mode}_{kind}_{size}.jpg"
            image.save(folder / name, **options)
            expect(name)

for name in ("rgb_131x200.png", "rgb_65x33.png", "l_131x200.png"):
    image = Image.open(folder / name).convert("RGB")
    for height, width in ((64, 64), (200, 97), (131, 40)):
        tensors[f"resized/{height}x{width}/{name}"] = planes(image.resize((width, height), Image.Resampling.BILINEAR))
    for height, width in ((32, 33), (101, 20), (140, 211)):  # CenterCrop of torchvision
        left, top = max((width - image.width) // 2, 0), max((height - image.height) // 2, 0)
        padded = Image.new("RGB", (max(width, image.width), max(height, image.height)))
        padded.paste(image, (left, top))
        x, y = int(round((padded.width - width) / 2.0)), int(round((padded.height - height) / 2.0))
        tensors[f"cropped/{height}x{width}/{name}"] = planes(padded.crop((x, y, x + width, y + height)))
    short = 50  # Resize(50) of torchvision
    size = (int(short * image.width / image.height), short) if image.width >= image.height else (short, int(short * image.height / image.width))
    tensors[f"shorter/50/{name}"] = planes(image.resize(size, Image.Resampling.BILINEAR))

safetensors.numpy.save_file(tensors, folder / "pixels.safetensors")
