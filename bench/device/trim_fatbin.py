"""Removes the machine code of all GPU generations but some from a CUDA library: trim_fatbin.py IN OUT 90 [100 ...]

The code of other generations is overwritten with zeros, so that nothing moves and the file packs well. A fat binary section is
a row of containers: a header (magic, version, header size, size of what follows), then entries (kind: 1 PTX, 2 machine code; at
byte 4 the size of the entry's header, at 8 that of its payload, at 28 the generation).
"""
import re
import struct
import subprocess
import sys

CONTAINER_MAGIC = 0xBA55ED50
MACHINE_CODE = 2


def entries(data, begin, end):
    """(offset of the payload, size, kind, generation) of every entry."""
    at = begin
    while at + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != CONTAINER_MAGIC:
            at += 8
            continue
        entry, last = at + header, at + header + size
        while entry < last:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", data, entry)
            (generation,) = struct.unpack_from("<I", data, entry + 28)
            yield entry + entry_header, payload, kind, generation
            entry += entry_header + payload
        at = last


def main():
    source, target, *kept = sys.argv[1:]
    kept = {int(generation) for generation in kept}
    sections = subprocess.run(["readelf", "-SW", source], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\.nv_fatbin\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", sections)
    if not found:
        sys.exit(f"{source}: no .nv_fatbin section: not a CUDA library")
    begin = int(found[1], 16)
    with open(source, "rb") as file:
        data = bytearray(file.read())
    removed = total = 0
    for at, size, kind, generation in entries(data, begin, begin + int(found[2], 16)):
        total += size
        if kind != MACHINE_CODE or generation not in kept:
            data[at : at + size] = bytes(size)
            removed += size
    with open(target, "wb") as file:
        file.write(data)
    print(f"{target}: {total - removed} of {total} bytes of device code kept")


if __name__ == "__main__":
    main()
