#!/usr/bin/env python3
"""Checks the rules of docs/decisions/layers.md that no compiler checks: layers, foreign libraries, what a library may not do, what the
repository may not say, file lengths; then clang-format and shellcheck. Prints one line a finding: path:line: what is wrong.

usage: tools/check_style.py [--require-tools]      --require-tools: a missing clang-format or shellcheck is an error
"""
from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Iterator, NamedTuple

Tree = dict[str, str]  # path from the repository's root -> text, for every text file that git does not ignore


class Finding(NamedTuple):
    path: str
    line: int
    what: str
    fatal: bool = True


CPP = (".cc", ".h", ".mm")
CODE = CPP + (".py", ".sh", ".rs", ".cmake", "CMakeLists.txt")
REPORTED_LINES, REFUSED_LINES = 600, 900

# A backend's library, or a heavy one, is included in one folder only.
FOREIGN = [
    (r"<mlx/", "src/mlx/"),
    (r"<(CoreML|Foundation|IOSurface|Metal|objc)/", "src/coreml/runtime/"),
    (r"<google/protobuf/|.*\.pb\.h.$", "src/coreml/package/"),
    (r"<(immintrin|x86intrin|arm_neon)\.h>", "src/cpu/"),
    (r"<boost/", "src/server/"),
    (r"<CLI/", "src/cli/command.cc"),  # four seconds of compiling for each file that uses it
]

# The command line talks to the user; base/error.cc reports a bug of ours before it aborts.
MAY_TALK = ("src/cli/", "src/base/error.cc")
TALK = re.compile(r"\bstd::(cout|cerr|clog)\b|\bfmt::print\("
                  r"|(?<![\w.>])(printf|fprintf|puts|fputs|putchar|getenv|secure_getenv|exit|_exit|quick_exit)\s*\(")
BACKEND_IF = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*\bPD_(MLX|COREML|CUDA|METAL|CPU)")

# Spelt with classes of one letter, so that this file does not say what it forbids.
WORDS = [
    (re.compile(r"p[y]pi\.org|p[y]thonhosted\.org|c[r]ates\.io|n[p]mjs\.(org|com)|d[e]bian\.org|m[a]ven\.org|proxy\.g[o]lang"),
     "names a package registry's host: say the registry's name, and leave the host to its client's configuration"),
    (re.compile(r"(?<![\w./$})-])/(w[o]rk|t[m]p|r[o]ot|h[o]me|U[s]ers)\b"),
     "an absolute path of one machine: take it from an argument, the environment or mktemp"),
    (re.compile(r"^(<{7}|>{7}) "), "a merge left in the middle"),
    (re.compile(r"\.\./s[h]ared\b"), "a path outside the repository"),
    (re.compile(r"\bi[s]sues?\s*#?\d+|\b(fix(es|ed)?|close[sd]?|see)\s+#\d+", re.IGNORECASE), "an issue's number: say what it was about"),
]
DATA = ("tests/data/", "fuzz/corpus/")  # texts given to the program may say anything
HAS_HOSTS = ("Cargo.lock",)  # cargo writes its registry's address there


def numbered(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), 1)


def without_comment(line: str) -> str:
    return re.sub(r'//(?=(?:[^"]*"[^"]*")*[^"]*$).*', "", line)


class Libraries:
    """The libraries of src/ as CMake knows them: which one a file belongs to, and whose headers it may include."""

    def __init__(self, tree: Tree):
        layers = re.search(r"set\(PD_LAYERS ([^)]*)\)", tree.get("cmake/PdLibrary.cmake", ""))
        self.layers = layers.group(1).split() if layers else []
        self.deps: dict[str, list[str]] = {}
        self.by_folder: dict[str, list[tuple[str, list[str]]]] = {}  # folder -> (library, stems of its sources)
        for path, text in tree.items():
            if not re.fullmatch(r"src/.*CMakeLists\.txt", path):
                continue
            for name, rest in re.findall(r"\bpd_library\(\s*([\w-]+)([^)]*)\)", re.sub(r"#.*", "", text)):
                sections: dict[str, list[str]] = {}
                section: list[str] = []
                for word in rest.split():
                    if word.isupper():
                        section = sections.setdefault(word, [])
                    else:
                        section.append(word)
                self.deps[name] = sections.get("DEPS", [])
                stems = [source.rsplit(".", 1)[0] for source in sections.get("SOURCES", [])]
                self.by_folder.setdefault(os.path.dirname(path), []).append((name, stems))

    def of(self, path: str) -> str:
        """The library of a file of src/: the nearest folder that declares one; among several, the one that lists its source."""
        folder = os.path.dirname(path)
        while folder and folder not in self.by_folder:
            folder = os.path.dirname(folder)
        if not folder:
            return path.split("/")[1]  # headers only so far
        here = self.by_folder[folder]
        stem = os.path.relpath(path, folder).rsplit(".", 1)[0]
        own = os.path.basename(folder)
        return next((name for name, stems in here if stem in stems),
                    next((name for name, _ in here if name == own), here[0][0]))

    def reach(self, library: str) -> set[str]:
        """What its files may include: its own headers and those of its DEPS, not of theirs; of folders that hold headers only, so
        that CMake knows no library by their name, those that stand below it."""
        below = self.layers[: self.layers.index(library)] if library in self.layers else []
        headers_only = {name for name in below if library not in self.deps or name not in self.deps}
        return {library, *self.deps.get(library, []), *headers_only}


def check_layers(tree: Tree) -> Iterator[Finding]:
    libraries = Libraries(tree)
    folders = {path.split("/")[1] for path in tree if path.startswith("src/") and path.count("/") > 1}
    for path, text in tree.items():
        if not (path.startswith("src/") and path.endswith(CPP)):
            continue
        own = libraries.of(path)
        reach = libraries.reach(own)
        for line, code in numbered(text):
            match = re.match(r'\s*#\s*(?:include|import)\s*"([^"]+)"', code)
            if not match:
                continue
            target = match.group(1)
            if target.split("/")[0] not in folders:
                yield Finding(path, line, f'"{target}": an include of ours is rooted at src/; another library\'s takes <>')
            elif libraries.of("src/" + target) not in reach:
                yield Finding(path, line, f'"{target}" belongs to {libraries.of("src/" + target)}, which is not among the DEPS of '
                                          f'{own}: {", ".join(sorted(reach - {own})) or "none"}')


def check_foreign(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        if not (path.startswith("src/") and path.endswith(CPP)):
            continue
        for line, code in numbered(text):
            match = re.match(r'\s*#\s*(?:include|import)\s*([<"][^>"]+[>"])', code)
            if match:
                for library, home in FOREIGN:
                    if re.match(library, match.group(1)) and not path.startswith(home):
                        yield Finding(path, line, f"{match.group(1)[1:-1]} is included in {home} only")


def check_libraries_are_quiet(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        if not (path.startswith("src/") and path.endswith(CPP)):
            continue
        for line, code in numbered(text):
            if BACKEND_IF.search(code):
                yield Finding(path, line, "a backend is chosen by CMake, not by the preprocessor")
            if not path.startswith(MAY_TALK) and (talk := TALK.search(without_comment(code))):
                yield Finding(path, line, f"{talk.group(0).rstrip('( ')}: a library neither prints, nor exits, nor reads the environment")


def check_words(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        if path.startswith(DATA) or os.path.basename(path) in HAS_HOSTS:
            continue
        for line, words in numbered(text):
            for pattern, what in WORDS:
                if match := pattern.search(words):
                    yield Finding(path, line, f'"{match.group(0)}": {what}')


def check_lengths(tree: Tree) -> Iterator[Finding]:
    for path, text in tree.items():
        lines = len(text.splitlines())
        if path.endswith(CODE) and not path.startswith(DATA) and lines > REPORTED_LINES:
            yield Finding(path, lines, f"{lines} lines: near 300 is the aim, {REFUSED_LINES} the end", fatal=lines > REFUSED_LINES)


CHECKS = [check_layers, check_foreign, check_libraries_are_quiet, check_words, check_lengths]


def read_tree(root: pathlib.Path) -> Tree:
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                             capture_output=True, text=True)
    if listing.returncode != 0:
        sys.exit(f"style: the list of files comes from git, which says: {listing.stderr.strip()}")
    tree: Tree = {}
    for name in sorted(filter(None, listing.stdout.split("\0"))):
        file = root / name
        if file.is_file() and not file.is_symlink():
            try:
                tree[name] = file.read_bytes().decode()
            except UnicodeDecodeError:
                pass  # not a text
    return tree


def find_clang_format() -> str | None:
    """Version 19: another one would lay the same code out differently."""
    for name in ("clang-format-19", "clang-format"):
        if shutil.which(name) and " 19." in subprocess.run([name, "--version"], capture_output=True, text=True).stdout:
            return name
    return None


def run_tools(root: pathlib.Path, tree: Tree, required: bool) -> bool:
    """clang-format and shellcheck over their files; True when both were content."""
    scripts = ["dev"] + [path for path, text in tree.items() if re.match(r"#!.*\b(ba)?sh\b", text) and path != "dev"]
    sources = [path for path in tree if path.endswith(CPP) and not path.startswith(DATA)]
    commands, content = [], True
    for name, tool, files in [("clang-format 19", find_clang_format(), sources), ("shellcheck", shutil.which("shellcheck"), scripts)]:
        if not tool:
            print(f"{name} is not installed: {'an error' if required else 'not checked'}")
            content = content and not required
        elif name == "shellcheck":
            commands.append([tool, "--external-sources", *files])
        else:
            commands += [[tool, "--dry-run", "--Werror", *sources[i::8]] for i in range(min(8, len(sources)))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(lambda command: subprocess.run(command, cwd=root, capture_output=True, text=True), commands):
            print(result.stdout + result.stderr, end="")
            content = content and result.returncode == 0
    return content


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    tree = read_tree(root)
    findings = [finding for check in CHECKS for finding in check(tree)]
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {'' if finding.fatal else 'note: '}{finding.what}")
    content = run_tools(root, tree, "--require-tools" in sys.argv[1:])
    failed = not content or any(finding.fatal for finding in findings)
    print(f"style: {len(tree)} files, {'errors above' if failed else 'clean'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
