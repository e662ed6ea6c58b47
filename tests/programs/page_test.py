#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of fp8-inspect in a real browser: no error, every chart drawn, the report's numbers.

Needs Debian's chromium; exit 77 (skipped) where there is none. Usage: page_test.py FP8_CONVERT FP8_INSPECT
MAKE_CHECKPOINT. With PAGE_SCREENSHOTS=FOLDER in the environment it leaves pictures there, to be looked at.
"""

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import support
import tensors
from support import CONVERT, INSPECT

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import tiny_models  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


class Document(html.parser.HTMLParser):
    """Elements by tag, each with its attributes and its text."""

    VOID = {"meta", "link", "br", "input"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.found.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        while self.open and self.open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [
            one
            for one in self.found
            if one["tag"] == tag
            and all(one.get(key.rstrip("_").replace("_", "-")) == value for key, value in attributes.items())
        ]


@unittest.skipUnless(BROWSER, "no chromium")
class Page(support.Case):
    def setUp(self):
        super().setUp()
        tiny_models.write(self.path("in"), "qwen3_5_moe", sizes=tiny_models.WHOLE)

    def browse(self, page, *more):
        command = [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            f"--user-data-dir={self.path('profile')}",
            "--enable-logging=stderr",
            "--virtual-time-budget=4000",
        ]
        outcome = subprocess.run([*command, *more, page.as_uri()], capture_output=True, text=True, timeout=120)
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        return outcome.stdout, [line for line in outcome.stderr.splitlines() if "CONSOLE" in line]

    def page_of(self, *arguments, code=0):
        page, report = self.path("page.html"), self.path("page.json")
        outcome = support.run(INSPECT, "--html", page, "--json", report, *arguments)
        self.assertEqual(outcome.returncode, code, outcome.stderr)
        text, console = self.browse(page, "--dump-dom")
        self.assertEqual(console, [])
        return Document(text.replace("\u00a0", " ").replace("&nbsp;", " ")), self.report(report)

    def pictures(self, name):
        """The page on a desk, on a phone and in the dark."""
        folder = os.environ.get("PAGE_SCREENSHOTS")
        for kind, size, *more in (
            ("desk", "1200,2600"),
            ("phone", "390,5200"),
            ("dark", "1200,2600", "--blink-settings=preferredColorScheme=0"),
        ):
            if folder:
                picture = pathlib.Path(folder).resolve() / f"{name}-{kind}.png"
                self.browse(self.path("page.html"), f"--window-size={size}", f"--screenshot={picture}", *more)
                self.assertGreater(picture.stat().st_size, 10000)

    def test_a_checkpoint_against_its_original(self):
        self.good(CONVERT, self.path("in"), self.path("out"))
        document, report = self.page_of("--against", self.path("in"), self.path("out"))
        self.pictures("checkpoint")
        pairs, summary = report["pairs"], report["summary"]
        title = document.all("h1")[0]["text"]
        self.assertEqual(title, str(self.path("out")))

        # Bars: one a layer with its lowest SQNR, one an exponent with its blocks.
        charts = {one["aria-label"]: one for one in document.all("svg")}
        self.assertEqual(set(charts), {"SQNR of every layer", "Histogram of scale exponents"})
        labels = [one["text"] for one in document.all("title") if ": " in one["text"]]
        layers = {}
        for pair in pairs:
            layer = re.match(r"(.*layers\.\d+)\.", pair["name"])[1]
            layers[layer] = min(layers.get(layer, (1e9, "")), (pair["error"]["sqnr_db"], pair["name"]))
        for layer, (lowest, name) in layers.items():
            self.assertIn(f"{layer}: {lowest:.2f} dB in {name}", labels)
        exponents = {}
        for pair in pairs:
            for exponent, count in pair["exponents"].items():
                exponents[exponent] = exponents.get(exponent, 0) + count
        for exponent, count in exponents.items():
            self.assertIn(f"2^{exponent}: {count:,} blocks", labels)
        bars = [one for one in document.all("rect") if "bar" in one["class"]]
        self.assertEqual(len(bars), len(labels))
        self.assertTrue(all(float(one["height"]) >= 0 and float(one["width"]) > 0 for one in bars))

        # Heat maps: the six tensors with the lowest SQNR, in their order.
        maps = [one["aria-label"].removeprefix("SQNR of the blocks of ") for one in document.all("canvas")]
        several = [p for p in pairs if p["error"]["heat"]["rows"] * p["error"]["heat"]["cols"] > 1]
        self.assertEqual(maps, [p["name"] for p in sorted(several, key=lambda p: p["error"]["sqnr_db"])[:6]])

        # The table: one row a pair, with the report's own numbers.
        rows = [one["text"] for one in document.all("tr") if "F8_E4M3" in one["text"]]
        self.assertEqual(len(rows), len(pairs))
        for row, pair in zip(rows, pairs):
            self.assertTrue(row.startswith(pair["name"]), row)
            self.assertIn(f'F8_E4M3 [{", ".join(map(str, pair["shape"]))}]', row)
            self.assertIn(f'{pair["error"]["sqnr_db"]:.2f} dB', row)
            self.assertIn(f'{pair["encoding"]} {pair["block"]}', row)
        self.assertEqual(len(document.all("input", type="search")), 1)
        text = document.all("main")[0]["text"]
        for number, label in (
            (summary["pairs"], "pairs of codes and scales"),
            (summary["blocks"], "blocks"),
            (summary["zero_blocks"], "of them all zero"),
            (report["audit"]["in_fp8"], "of "),
            (f'{summary["error"]["sqnr_db"]:.2f} dB', "signal to noise"),
        ):
            shown = f"{number:,}" if isinstance(number, int) else number
            self.assertIn(f"{shown}{label}", text)
        for preset in summary["presets"]:
            name = f'{preset["name"]} {preset["scale"]}' + ("" if "BF16" in preset["from"] else " from FP32")
            self.assertIn(name, [one["text"] for one in document.all("code")])

    def test_a_broken_one_and_two_that_differ(self):
        self.good(CONVERT, self.path("in"), self.path("out"))
        shard = sorted(self.path("out").glob("*.safetensors"))[0]
        made, metadata = tensors.load(shard)
        del made["model.language_model.layers.0.linear_attn.in_proj_z.weight_scale_inv"]
        # The index still names it: a bare file has none.
        tensors.save(self.path("broken.safetensors"), made, metadata)
        document, report = self.page_of(self.path("broken.safetensors"), code=1)
        self.assertEqual(report["summary"]["broken"], 1)
        text = document.all("main")[0]["text"]
        self.assertIn("codes without scales", text)
        self.assertIn("None: there is no config.json", text)
        self.good(CONVERT, "--recipe", "te-block", self.path("in"), self.path("other"))
        document, report = self.page_of(self.path("out"), self.path("other"), code=1)
        self.pictures("comparison")
        rows = [one["text"] for one in document.all("tr")][1:]
        self.assertEqual(len(rows), len(report["differences"]))
        self.assertIn(f'{report["differences"][0]["differ"]:,}'.replace(",", ""), rows[0].replace(",", ""))

    def test_an_error_on_the_page_would_be_noticed(self):
        self.good(CONVERT, self.path("in"), self.path("out"))
        self.good(INSPECT, "--html", self.path("page.html"), self.path("out"))
        text = self.path("page.html").read_text(encoding="utf-8")
        self.path("page.html").write_text(text.replace("? showCheckpoint()", "? showNothing()"), encoding="utf-8")
        _, console = self.browse(self.path("page.html"), "--dump-dom")
        self.assertTrue(any("showNothing" in line for line in console), console)


if __name__ == "__main__":
    if not BROWSER:
        print("SKIPPED: no chromium here; Debian's package has one")
        sys.exit(77)
    unittest.main()
