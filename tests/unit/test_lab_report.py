from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np

from sdk_tools.lab.compare import compare_rows
from sdk_tools.lab.limits import LimitPolicy, Verdict, judge
from sdk_tools.lab.report import Series, render_bench, render_error_map, render_log_chart, render_parity, render_table


def make_verdict(stage: str, error: float) -> Verdict:
    want = np.random.default_rng(1).normal(size=(12, 8)).astype(np.float32)
    return judge(compare_rows(stage, want * np.float32(1 + error), want), LimitPolicy("f16").make_limit(1, 12))


def parse_svgs(html: str) -> list[ET.Element]:
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def test_parity_page_is_self_contained_and_well_formed() -> None:
    html = render_parity({"model": "<m> & co"}, [make_verdict("layer.0.hidden", 1e-4), make_verdict("logits", 0.5)])
    assert "FAILED: the first diverging stage is logits" in html
    assert "&lt;m&gt; &amp; co" in html
    assert "http" not in html
    assert len(parse_svgs(html)) == 2
    assert html.count('<tr class="bad">') == 1


def test_a_passing_page() -> None:
    html = render_parity({}, [make_verdict("logits", 0.0)])
    assert "PASSED" in html
    assert "every value is exactly 0" not in html  # the limits are drawn


def test_chart_draws_each_series_and_leaves_gaps() -> None:
    lines = (Series("a", (1e-3, None, 1e-1)), Series("limit", (1.0, 1.0, 1.0), 1, dashed=True))
    (svg,) = parse_svgs(render_log_chart("errors", ["x", "y", "z"], lines))
    assert len(svg.findall("polyline")) == 3  # two parts around the gap, one limit
    assert len(svg.findall("circle")) == 2
    levels = {text.text for text in svg.findall("text")}
    assert {"1e-3", "1e0", "x", "z"} <= levels


def test_chart_of_zeros_says_so() -> None:
    assert "exactly 0" in render_log_chart("errors", ["x"], (Series("a", (0.0,)),))


def test_error_map_marks_what_is_over_its_limit() -> None:
    text = render_error_map("map", ["a", "b"], [[0.0, 0.5, 2.0], [0.0, 0.0, 0.0]], [1.0, 1.0])
    (svg,) = parse_svgs(text)
    fills = [rect.attrib["fill"] for rect in svg.findall("rect")]
    assert len(fills) == 6
    assert fills.count("#d1242f") == 1
    assert fills.index("#d1242f") == 2


def test_error_map_of_a_long_prompt_shows_the_worst_of_each_group() -> None:
    errors = [0.0] * 500
    errors[317] = 9.0
    (svg,) = parse_svgs(render_error_map("map", ["a"], [errors], [1.0]))
    fills = [rect.attrib["fill"] for rect in svg.findall("rect")]
    assert len(fills) <= 60
    assert fills.count("#d1242f") == 1


def test_table_escapes() -> None:
    assert "&lt;b&gt;" in render_table(("a",), [("<b>",)])


def test_bench_page() -> None:
    report = {"warnings": ["<busy>"], "runs": [{"prefill_ms": 1.5}], "params": {"a": {"b": [1, 2]}}, "checks": []}
    html = render_bench("title", ("", "median"), [("prefill", "12.5")], report)
    assert "&lt;busy&gt;" in html
    assert "12.5" in html
    assert "<td>a.b</td><td>1, 2</td>" in html
