"""Files of NumPy and tar archives, as Python writes them, for arrays_test.cpp.

    python arrays.py FOLDER

Writes FOLDER/NAME.npy, FOLDER/arrays.npz and packed.npz with the same arrays, FOLDER/arrays.safetensors with their elements in C order,
and FOLDER/FORMAT.tar with the files NAME.cls and NAME.txt of each sample.
"""

import io
import pathlib
import sys
import tarfile

import numpy as np
import safetensors.numpy

folder = pathlib.Path(sys.argv[1])
draw = np.random.default_rng(1)
arrays = {}
for dtype in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8"):
    array = (draw.random((5, 3, 4)) * 100).astype(dtype)
    arrays[f"{np.dtype(dtype).name}_c"] = array
    arrays[f"{np.dtype(dtype).name}_f"] = np.asfortranarray(array)
arrays["scalar"] = np.float32(2.5)
arrays["none"] = np.zeros((0, 7), "f4")
arrays["large"] = draw.random((300, 200))
for name, array in arrays.items():
    np.save(folder / f"{name}.npy", array)
np.savez(folder / "arrays.npz", **arrays)
np.savez_compressed(folder / "packed.npz", **arrays)
safetensors.numpy.save_file({name: np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array) for name, array in arrays.items()},
                            folder / "arrays.safetensors")

for name, kind in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
    with tarfile.open(folder / f"{name}.tar", "w", format=kind) as archive:
        for i in range(40):
            key = f"{'d' * (90 if name == 'ustar' else 180)}/{i:03d}-{'ä' if name == 'pax' else 'a'}"
            for extension, data in (("cls", str(i).encode()), ("txt", bytes([i]) * (37 * i))):
                member = tarfile.TarInfo(f"{key}.{extension}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
