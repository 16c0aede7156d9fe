"""One self-contained HTML file: tables, and charts as inline SVG. Nothing is loaded from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from sdk_tools.lab.limits import Verdict

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
table { display: block; overflow-x: auto; }
th, td { text-align: left; padding: .2rem .7rem; border-bottom: 1px solid #8884; vertical-align: top; }
tr.bad td { background: #e5484d33; }
.pass { color: #1a7f37; } .fail { color: #d1242f; } .pass, .fail { font-weight: 600; }
svg { max-width: 100%; height: auto; } svg text { fill: currentColor; font: 11px system-ui, sans-serif; }
.note { opacity: .75; }
"""
_COLOURS = ("#2f6fdf", "#d97706", "#159957", "#8b5cf6")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 340, 64, 80, 28
_MAP_LEFT, _MAP_CELL = 110, 14
_MAX_MAP_COLUMNS = 60
_COOL, _WARM = (0x5C, 0xBF, 0x8A), (0xE9, 0xA2, 0x3B)

_Scale = Callable[..., float]


@dataclass(frozen=True)
class Series:
    """One line of a chart. None leaves a gap. colour: an index. dashed: a limit, not a measurement."""

    name: str
    values: tuple[float | None, ...]
    colour: int = 0
    dashed: bool = False


def render_page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML document around parts that are HTML already."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def render_table(columns: Sequence[str], rows: Sequence[Sequence[object]], bad: Sequence[bool] = ()) -> str:
    """bad: which rows to mark."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = ""
    for index, row in enumerate(rows):
        mark = ' class="bad"' if index < len(bad) and bad[index] else ""
        body += f"<tr{mark}>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>\n"
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def render_facts(facts: Mapping[str, object]) -> str:
    """Names and values as a table of two columns."""
    return render_table(("", ""), [(name, value) for name, value in facts.items() if value is not None])


def render_log_chart(title: str, labels: Sequence[str], series: Sequence[Series]) -> str:
    """Lines over labelled points, logarithmic. Zeros are drawn at the bottom."""
    positive = [value for line in series for value in line.values if value is not None and value > 0]
    if not positive:
        return f'<p class="note">{escape(title)}: every value is exactly 0.</p>'
    low, high = floor(log10(min(positive))), ceil(log10(max(positive)))
    high = max(high, low + 1)
    right, bottom = _WIDTH - 12, _HEIGHT - _BOTTOM

    def x(index: int) -> float:
        return _LEFT + (right - _LEFT) * (index + 0.5) / len(labels)

    def y(value: float) -> float:
        share = (log10(value) - low) / (high - low) if value > 0 else 0.0
        return bottom - (bottom - _TOP) * share

    out = [f"<h2>{escape(title)}</h2>"]
    out.append(f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">')
    for power in range(low, high + 1):
        level = y(10.0**power)
        out.append(f'<line x1="{_LEFT}" x2="{right}" y1="{level:.1f}" y2="{level:.1f}" stroke="#8884"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">1e{power}</text>')
    step = max(1, len(labels) // 40)
    for index in range(0, len(labels), step):
        at = f'x="{x(index):.1f}" y="{bottom + 12}" transform="rotate(-55 {x(index):.1f} {bottom + 12})"'
        out.append(f'<text {at} text-anchor="end">{escape(labels[index])}</text>')
    for number, line in enumerate(series):
        out += _draw_line(line, _LEFT + number * 170, x, y)
    return "\n".join([*out, "</svg>"])


def _draw_line(line: Series, legend_at: int, x: _Scale, y: _Scale) -> list[str]:
    colour = _COLOURS[line.colour % len(_COLOURS)]
    dash = ' stroke-dasharray="5 4"' if line.dashed else ""
    out, run = [], list[str]()
    for index, value in enumerate((*line.values, None)):
        if value is not None:
            run.append(f"{x(index):.1f},{y(value):.1f}")
            if not line.dashed:
                tip = f"<title>{escape(line.name)}: {value:.3g}</title>"
                out.append(f'<circle cx="{x(index):.1f}" cy="{y(value):.1f}" r="2.6" fill="{colour}">{tip}</circle>')
        elif run:
            out.append(f'<polyline points="{" ".join(run)}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
            run = []
    out.append(f'<line x1="{legend_at}" x2="{legend_at + 24}" y1="8" y2="8" stroke="{colour}" stroke-width="2"{dash}/>')
    out.append(f'<text x="{legend_at + 30}" y="12">{escape(line.name)}</text>')
    return out


def render_error_map(title: str, names: Sequence[str], rows: Sequence[Sequence[float]], limits: Sequence[float]) -> str:
    """One line a stage, one cell a position, coloured by how much of the limit its error takes."""
    columns = max((len(row) for row in rows), default=0)
    if not columns:
        return ""
    group = ceil(columns / _MAX_MAP_COLUMNS)
    width = _MAP_LEFT + ceil(columns / group) * _MAP_CELL + 10
    height = 4 + len(names) * _MAP_CELL
    out = [f"<h2>{escape(title)}</h2>"]
    out.append(f'<svg viewBox="0 0 {width} {height}" style="width:{width}px" role="img" aria-label="{escape(title)}">')
    for line, (name, errors, limit) in enumerate(zip(names, rows, limits, strict=True)):
        top = 2 + line * _MAP_CELL
        out.append(f'<text x="{_MAP_LEFT - 6}" y="{top + 11}" text-anchor="end">{escape(name)}</text>')
        for column in range(0, len(errors), group):
            error = max(errors[column : column + group])
            left = _MAP_LEFT + column // group * _MAP_CELL
            tip = f"<title>{escape(name)}, position {column}: {error:.2e}, limit {limit:.2e}</title>"
            box = f'x="{left}" y="{top}" width="{_MAP_CELL - 1}" height="{_MAP_CELL - 1}"'
            out.append(f'<rect {box} fill="{_heat(error, limit)}">{tip}</rect>')
    return "\n".join([*out, "</svg>"])


def _heat(error: float, limit: float) -> str:
    """Green to amber up to the limit on a logarithmic scale of three decades; red beyond."""
    if error > limit:
        return "#d1242f"
    share = 1 + log10(max(error / max(limit, 1e-30), 1e-3)) / 3
    mixed = (round(low + (high - low) * share) for low, high in zip(_COOL, _WARM, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def render_parity(facts: Mapping[str, object], verdicts: Sequence[Verdict]) -> str:
    """The report of one parity run."""
    first = next((verdict for verdict in verdicts if not verdict.passed), None)
    if first:
        name = escape(first.difference.stage)
        headline = f'<p class="fail">FAILED: the first diverging stage is {name}.</p>'
    else:
        headline = '<p class="pass">PASSED: every stage is within its limits.</p>'
    columns = (
        "stage", "verdict", "max abs", "at", "RMSE", "scale", "median row", "worst row", "worst column", "cosine",
        "argmax", "remarks",
    )  # fmt: skip
    rows = [_parity_row(verdict) for verdict in verdicts]
    measured = [verdict for verdict in verdicts if verdict.limit and not verdict.difference.problem]
    labels = [verdict.difference.stage.removesuffix(".hidden") for verdict in measured]
    chart = render_log_chart(
        "Relative error by stage",
        labels,
        (
            Series("median row", tuple(v.difference.typical for v in measured)),
            Series("worst row", tuple(v.difference.worst for v in measured), 1),
            Series("worst column", tuple(v.difference.column for v in measured), 2),
            Series("limit, median row", tuple(v.limit.typical if v.limit else None for v in measured), 0, dashed=True),
            Series("limit, worst row", tuple(v.limit.worst if v.limit else None for v in measured), 1, dashed=True),
        ),
    )
    error_map = render_error_map(
        "Error by position, as a share of the worst row's limit",
        labels,
        [verdict.difference.row_errors for verdict in measured],
        [verdict.limit.worst if verdict.limit else 0.0 for verdict in measured],
    )
    table = render_table(columns, rows, [not verdict.passed for verdict in verdicts])
    return render_page("Parity report", [headline, render_facts(facts), chart, error_map, table])


def _parity_row(verdict: Verdict) -> tuple[object, ...]:
    difference = verdict.difference
    word = "pass" if verdict.passed else "FAIL"
    remarks = "; ".join(verdict.failures)
    misses = difference.misses or ()
    if misses and not remarks:
        remarks = "; ".join(f"row {m.row}: token {m.got} for {m.want}, margin {m.margin:.2g}" for m in misses[:5])
    if difference.problem or verdict.limit is None:
        return (difference.stage, word, "", "", "", "", "", "", "", "", "", remarks)
    agreement = difference.argmax_agreement
    return (
        difference.stage,
        word,
        f"{difference.max_abs:.3g}",
        f"{difference.max_row}, {difference.max_column}",
        f"{difference.rmse:.3g}",
        f"{difference.scale:.3g}",
        f"{difference.typical:.2e}",
        f"{difference.worst:.2e}",
        f"{difference.column:.2e}",
        f"{difference.cosine:.7f}",
        "" if agreement is None else f"{agreement:.1%}",
        remarks,
    )


def render_bench(
    title: str, columns: Sequence[str], figures: Sequence[Sequence[object]], report: Mapping[str, object]
) -> str:
    """The report of one benchmark. figures: rows of `columns`; report: the JSON that it is also kept as."""
    warnings = report.get("warnings")
    notes = [f'<p class="fail">{escape(str(text))}</p>' for text in warnings] if isinstance(warnings, list) else []
    runs = report.get("runs")
    rows = [tuple(run.values()) for run in runs] if isinstance(runs, list) else []
    names = tuple(runs[0]) if isinstance(runs, list) and runs else ()
    parts = [
        *notes,
        render_table(columns, figures),
        "<h2>Runs</h2>",
        render_table(names, [[f"{value:.2f}".rstrip("0").rstrip(".") for value in row] for row in rows]),
    ]
    for name in ("params", "checks", "model", "engine", "device"):
        parts += [f"<h2>{name.capitalize()}</h2>", render_facts(_flatten(report.get(name)))]
    return render_page(title, parts)


def _flatten(value: object, prefix: str = "") -> dict[str, object]:
    """Nested objects and lists as one level with dotted names."""
    items: Sequence[tuple[object, object]]
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, (list, tuple)) and any(isinstance(item, (Mapping, list, tuple)) for item in value):
        items = list(enumerate(value))
    else:
        shown = ", ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value
        return {prefix: shown}
    flat: dict[str, object] = {}
    for name, item in items:
        flat |= _flatten(item, f"{prefix}.{name}" if prefix else str(name))
    return flat
