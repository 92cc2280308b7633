#!/usr/bin/env python3
"""The checks of the source tree catch what they are for: each test breaks one rule in a tree of its own."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

DOCS = "docs"  # apart from the names, which check-house would look for in this tree
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def findings(script, files):
    """What `script` says about a tree of `files` (path: text); no lines when it passes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, SCRIPTS / script, folder], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0), (done.returncode, done.stdout, done.stderr)
    return lines


class CheckIncludes(unittest.TestCase):
    def check(self, room, header, allowed):
        lines = findings("check-includes", {f"src/{room}/file.cpp": f"// one\n#include {header}\n"})
        self.assertEqual(len(lines), 0 if allowed else 1, lines)
        if not allowed:
            self.assertTrue(lines[0].startswith(f"src/{room}/file.cpp:2: "), lines)

    def test_rooms(self):
        self.check("wire", '"base/status.h"', True)
        self.check("dispatch", '"base/status.h"', True)  # through wire
        self.check("cmd", '"moe/engine.h"', True)
        self.check("base", '"wire/frame.h"', False)
        self.check("wire", '"net/loop.h"', False)
        self.check("dispatch", '"moe/engine.h"', False)
        self.check("client", '"wire/frame.h"', False)
        self.check("backend", '"worker/serve.h"', False)
        self.check("hub", '<client/pull.h>', False)

    def test_libraries(self):
        self.check("moe", '<ggml-backend.h>', True)
        self.check("dispatch", '<ggml.h>', False)
        self.check("cmd", '<llama.h>', True)
        self.check("backend", '"llama.h"', False)
        self.check("net", '<boost/asio.hpp>', True)
        self.check("worker", '<boost/asio.hpp>', False)
        self.check("client", '<nlohmann/json.hpp>', True)
        self.check("moe", '<nlohmann/json.hpp>', False)
        self.check("worker", '<CLI/CLI.hpp>', False)
        self.check("client", '<sqlite3.h>', False)
        self.check("hub", '<avahi-core/core.h>', True)
        self.check("cmd", '<avahi-core/core.h>', False)
        self.check("base", '"../base/status.h"', False)

    def test_unknown_room(self):
        self.assertEqual(len(findings("check-includes", {"src/util/helpers.h": ""})), 1)

    def test_length(self):
        self.assertEqual(findings("check-includes", {"tests/a.cpp": "\n" * 600}), [])
        self.assertEqual(len(findings("check-includes", {"tests/a.cpp": "\n" * 601})), 1)


class CheckHouse(unittest.TestCase):
    def check(self, text, n_findings, name=f"{DOCS}/PAGE.md"):
        lines = findings("check-house", {f"{DOCS}/OTHER.md": "# A heading: one\n", name: text})
        self.assertEqual(len(lines), n_findings, lines)

    def test_links(self):
        self.check("[a](OTHER.md) [b](OTHER.md#a-heading-one) [c](https://example.org/x) [d](#own)\n# Own\n", 0)
        self.check("[a](MISSING.md)\n", 1)
        self.check("[a](OTHER.md#no-such-heading)\n", 1)

    def test_mentions(self):
        self.check(f"// see {DOCS}/OTHER.md\n", 0, "src/base/a.h")
        self.check(f"// see {DOCS}/MISSING.md\n", 1, "src/base/a.h")

    def test_words(self):
        self.check("kept in /wo" + "rk/main\n", 1)
        self.check("kept in ${prefix}/work/main, models/wo" + "rk/x\n", 0)
        self.check("registry.np" + "mjs.org\n", 1)


if __name__ == "__main__":
    unittest.main()
