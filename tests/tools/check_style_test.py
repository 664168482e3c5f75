"""Plants one offence at a time and asks tools/check_style.py for exactly that finding."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_style  # noqa: E402

CLEAN = {
    "cmake/PdLibrary.cmake": "set(PD_LAYERS base model kv device mlx open cli)\n",
    "src/base/CMakeLists.txt": "pd_library(base SOURCES error.cc)\n",
    "src/base/error.h": "#pragma once\n#include <string>\n",
    "src/base/error.cc": '#include "base/error.h"\nvoid Check() { fprintf(stderr, "bug"); }\n',
    "src/model/spec.h": '#include "base/error.h"\n',  # headers only: below it stands base
    "src/kv/CMakeLists.txt": "pd_library(kv SOURCES segment.cc)\n",
    "src/kv/segment.h": "#pragma once\n",
    "src/device/CMakeLists.txt": "pd_library(device SOURCES lane.cc\n  DEPS base)\npd_library(open SOURCES open.cc DEPS base device)\n",
    "src/device/lane.h": '#include "base/error.h"\n#include "model/spec.h"\n',
    "src/device/lane.cc": '#include "device/lane.h"\n',
    "src/device/open.h": '#include "device/lane.h"\n#include "base/error.h"\n',
    "src/device/open.cc": '#include "device/open.h"\n',
    "src/cli/CMakeLists.txt": "pd_library(cli SOURCES main.cc DEPS open)\n",
    "src/cli/main.cc": '#include "device/open.h"\nint x = printf("talks");\n',
    "src/cli/command.cc": "#include <CLI/CLI.hpp>\n",
    "src/mlx/CMakeLists.txt": "pd_library(mlx SOURCES mlx_device.cc)\n",
    "src/mlx/mlx_device.h": "#include <mlx/array.h>\n#pragma once\n",
    "README.md": "Fetched from the package index; see docs/adding.md. A session is one prompt. snprintf(to, 3, format)\n",
}


def findings(tree: dict[str, str]) -> list[str]:
    return [f"{f.path}:{f.line}: {f.what}" for check in check_style.CHECKS for f in check(tree)]


class CheckStyle(unittest.TestCase):
    def expect(self, path: str, text: str, *words: str, line: int = 1) -> None:
        found = findings(CLEAN | {path: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:{line}: "), found)
        for word in words:
            self.assertIn(word, found[0])

    def test_clean_tree_has_no_findings(self):
        self.assertEqual(findings(CLEAN), [])

    def test_layers(self):
        self.expect("src/base/error.h", '// above\n#include "device/lane.h"\n', "belongs to device", "base: none", line=2)
        self.expect("src/device/lane.cc", '#include "device/open.h"\n', "belongs to open")  # two libraries in one folder
        self.expect("src/device/lane.h", '#include "kv/segment.h"\n', "belongs to kv", "DEPS of device: base, model")
        self.expect("src/model/spec.h", '#include "device/lane.h"\n', "belongs to device")
        self.expect("src/cli/main.cc", '#include "base/error.h"\n', "belongs to base")  # only through open
        self.expect("src/device/lane.cc", '#include "mlx/mlx_device.h"\n', "belongs to mlx")
        self.expect("src/device/lane.h", '#include "lane_types.h"\n', "rooted at src/")

    def test_foreign_libraries(self):
        self.expect("src/device/lane.h", "#include <mlx/array.h>\n", "src/mlx/ only")
        self.expect("src/cli/main.cc", "#include <CLI/CLI.hpp>\n", "src/cli/command.cc only")
        self.expect("src/device/open.cc", '#include "device/open.h"\n#include <CLI/CLI.hpp>\n', "src/cli/command.cc only", line=2)
        self.expect("src/device/lane.h", "#include <immintrin.h>\n", "src/cpu/ only")

    def test_libraries_are_quiet(self):
        for code in ('std::cout << "x";', 'printf("x");', 'std::fprintf(stderr, "x");', 'std::getenv("HOME");', "exit(1);"):
            self.expect("src/device/lane.cc", code + "\n", "a library neither prints")
        self.expect("src/device/open.cc", "#ifdef PD_MLX\n", "chosen by CMake")
        quiet = "// printf(x) in a comment\nsnprintf(to, 3, format); logger.exit(); Reexit(1);\n"
        self.assertEqual(list(check_style.check_libraries_are_quiet(CLEAN | {"src/device/lane.cc": quiet})), [])

    def test_words(self):
        self.expect("README.md", "index: https://" + "pypi" + ".org/simple\n", "registry's host")
        self.expect("README.md", "a\nwrites to " + "/tm" + "p/x\n", "absolute path", line=2)
        self.expect("README.md", "as Iss" + "ue #12 says\n", "issue's number")
        self.expect("README.md", "fixes " + "#12\n", "issue's number")
        self.expect("README.md", "cp .." + "/shared/x .\n", "outside the repository")
        self.expect("README.md", "<<<<<<" + "< HEAD\n", "a merge left in the middle")
        lock = 'source = "registry+https://host/rust-lang/' + "crates" + '.io-index"\n'
        self.assertEqual(list(check_style.check_words({"crates/text/Cargo.lock": lock, "tests/data/a.txt": "Issue" + " 7\n"})), [])

    def test_lengths(self):
        self.expect("src/device/lane.cc", "\n" * 601, "601 lines", line=601)
        fatal = [f.fatal for n in (600, 601, 901) for f in check_style.check_lengths({"src/device/lane.cc": "\n" * n})]
        self.assertEqual(fatal, [False, True])


if __name__ == "__main__":
    unittest.main()
