#!/usr/bin/env python3
"""Compares the declarations that we wrote of Apple's frameworks (stubs/) with what others generated from Apple's SDK: TypeScript
declarations of the package that typings.txt names. Each class, selector, property, enumerator with its value, function and
constant of ours must be there by name, selectors in their class or what it inherits from. Prints what is not.

usage: verify_declarations.py STUBS TYPINGS      STUBS holds Frameworks/NAME.framework/Headers, TYPINGS holds NAME.d.ts
"""
from __future__ import annotations

import pathlib
import re
import sys
from typing import Iterator, NamedTuple


class Typings:
    """What TypeScript declarations name. A selector a:b: is the member aB there, and an enum an object of numbers."""

    def __init__(self, texts: list[str]):
        self.members: dict[str, set[str]] = {}  # of a class or interface: "name", and "static name"
        self.parents: dict[str, set[str]] = {}
        self.enums: dict[str, dict[str, int]] = {}
        self.globals: set[str] = set()
        for text in texts:
            self._read(text)

    def _read(self, text: str) -> None:
        self.globals |= set(re.findall(r"^declare (?:function|const|var|let) (\w+)", text, re.M))
        for name, body in re.findall(r"^declare const (\w+): \{\n(.*?)^\};", text, re.M | re.S):
            self.enums.setdefault(name, {}).update((key, int(value)) for key, value in re.findall(r"(\w+): (-?\d+),", body))
        for name, header, body in re.findall(r"^declare (?:class|interface) (\w+)([^{]*)\{\n(.*?)^\}", text, re.M | re.S):
            members = re.findall(r"^  (static )?(?:readonly |get |set )*(\w+)\s*[(:?<]", body, re.M)
            self.members.setdefault(name, set()).update(static + member for static, member in members)
            self.parents.setdefault(name, set()).update(set(re.findall(r"\b[A-Z]\w+", re.sub(r"<[^<>]*>", "", header))) - {name})

    def has_member(self, owner: str, member: str) -> bool:
        seen: set[str] = set()
        left = [owner]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            if member in self.members.get(name, ()):
                return True
            left += self.parents.get(name, ())
        return False


class Declared(NamedTuple):
    kind: str  # "class", "class method", "member", "enumerator", "name"
    owner: str
    name: str
    value: int = 0

    def __str__(self) -> str:
        owner = f"{self.owner} " if self.owner else ""
        return f"{self.kind} {owner}{self.name}" + (f" = {self.value}" if self.kind == "enumerator" else "")


def without_parentheses(text: str) -> str:
    while re.search(r"\([^()]*\)", text):
        text = re.sub(r"\([^()]*\)", " ", text)
    return text


def selector(method: str) -> str:
    """ "- (id)a:(int)x b:(int)y" is a:b: """
    bare = without_parentheses(method.lstrip("+- "))
    labels = re.findall(r"(\w+)\s*:", bare)
    return ":".join(labels) + ":" if labels else re.findall(r"\w+", bare)[0]


def enumerators(name: str, body: str) -> Iterator[Declared]:
    for key, value in re.findall(r"(\w+)\s*=\s*([\s\w|]+)", body):
        terms = [int(term.strip().rstrip("u"), 0) for term in value.split("|")]
        total = 0
        for term in terms:
            total |= term
        yield Declared("enumerator", name, key.removeprefix(name), total)


def declarations(header: str) -> Iterator[Declared]:
    text = re.sub(r"//.*|/\*.*?\*/|^\s*#(?:.*\\\n)*.*", "", header, flags=re.M)
    for name, body in re.findall(r"NS_(?:ENUM|OPTIONS)\(\w+, (\w+)\) \{(.*?)\}", text, re.S):
        yield from enumerators(name, body)
    for kind, owner, body in re.findall(r"^@(interface|protocol) (\w+)([^;]*?[\n{].*?)^@end", text, re.M | re.S):
        if kind == "interface":
            yield Declared("class", "", owner)
        for member in re.findall(r"^(?:@property|[-+] ?\().*?;", body, re.M | re.S):
            if member.startswith("@property"):
                yield Declared("member", owner, re.findall(r"\w+", re.sub(r"API_AVAILABLE\s*;", ";", without_parentheses(member)))[-1])
            else:
                yield Declared("class method" if member.startswith("+") else "member", owner, selector(member))
    outside = re.sub(r"^@(?:interface|protocol) \w+[^;]*?[\n{].*?^@end", "", text, flags=re.M | re.S)
    noise = r'extern "C" \{|__attribute__\s*\(\(.*?\)\)|API_AVAILABLE\(.*?\)\)|^\}'
    for statement in re.sub(r"\{[^{}]*\}", "", re.sub(noise, "", outside, flags=re.M)).split(";"):
        statement = statement.strip()
        if re.match(r"typedef|enum|@|NS_", statement):
            continue
        if function := re.search(r"(\w+)\s*\(", statement):
            yield Declared("name", "", function.group(1))
        elif re.match(r"extern|FOUNDATION_EXPORT|\w+_EXTERN", statement):
            yield from (Declared("name", "", name) for name in re.findall(r"(\w+)\s*(?:,|$)", statement))


def is_known(declared: Declared, typings: Typings) -> bool:
    if declared.kind == "class":
        return declared.name in typings.members
    if declared.kind == "enumerator":
        return typings.enums.get(declared.owner, {}).get(declared.name) == declared.value
    if declared.kind == "name":
        return declared.name in typings.globals
    first, *others = declared.name.rstrip(":").split(":")
    static = "static " if declared.kind == "class method" else ""
    return typings.has_member(declared.owner, static + first + "".join(other[0].upper() + other[1:] for other in others))


def main() -> int:
    stubs, types = map(pathlib.Path, sys.argv[1:])
    typings = Typings([path.read_text() for path in sorted(types.glob("*.d.ts"))])
    checked, unknown = 0, []
    for header in sorted(stubs.glob("Frameworks/*.framework/Headers/*.h")):
        for declared in declarations(header.read_text()):
            checked += 1
            if not is_known(declared, typings):
                unknown.append(f"{header.name}: {declared}")
    for line in unknown:
        print(f"{line}: not in Apple's SDK, as the typings describe it")
    print(f"{checked} declarations of Apple's frameworks compared, {len(unknown)} unknown")
    return 1 if unknown or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
