#!/usr/bin/env python3
"""Checks that a file is an executable for arm64 macOS that loads exactly the libraries of a list; names each that is missing or too many.

usage: check_mach_o.py BINARY LIST      LIST: a library a line, # comments
"""
from __future__ import annotations

import pathlib
import struct
import sys

# Of mach-o/loader.h and mach/machine.h.
MAGIC_64, CPU_ARM64, EXECUTE = 0xFEEDFACF, 0x0100000C, 2
LOADS = (0xC, 0x18, 0x1F, 0x20, 0x23)  # LC_LOAD_DYLIB and the same weak, re-exported, lazy, upward; without LC_REQ_DYLD
REQUIRED_TO_RUN = 0x80000000  # LC_REQ_DYLD


def loaded_libraries(binary: bytes) -> list[str]:
    """The libraries of a Mach-O executable's load commands, in their order. Raises ValueError for any other file."""
    if len(binary) < 32:
        raise ValueError("too short")
    magic, cpu, _, kind, commands = struct.unpack_from("<5I", binary)
    if (magic, cpu, kind) != (MAGIC_64, CPU_ARM64, EXECUTE):
        raise ValueError("not an executable for arm64")
    libraries, at = [], 32
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", binary, at)
        if command & ~REQUIRED_TO_RUN in LOADS:
            name = at + struct.unpack_from("<I", binary, at + 8)[0]
            libraries.append(binary[name : binary.index(b"\0", name)].decode())
        at += size
    return libraries


def differences(loaded: list[str], expected: list[str]) -> list[str]:
    return [f"does not load {name}" for name in expected if name not in loaded] + [
        f"loads {name}, which is not on the list" for name in loaded if name not in expected
    ]


def main() -> int:
    binary, listed = map(pathlib.Path, sys.argv[1:])
    expected = [line for line in listed.read_text().splitlines() if line and not line.startswith("#")]
    data = binary.read_bytes()
    try:
        loaded = loaded_libraries(data)
    except ValueError as error:
        print(f"{binary}: {error}")
        return 1
    found = differences(loaded, expected)
    for difference in found:
        print(f"{binary}: {difference}")
    if not found:
        print(f"{binary}: arm64, {len(data) / 1e6:.1f} MB, loads {', '.join(loaded)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
