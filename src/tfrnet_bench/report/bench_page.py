"""The page of a bench run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfrnet_bench.report import provenance
from tfrnet_bench.report.bench_run import BenchRun, read_bench_run
from tfrnet_bench.report.cell_data import cell_data
from tfrnet_bench.report.cost_table import cost_table
from tfrnet_bench.report.method_data import method_data
from tfrnet_bench.report.page import Page, Section, render
from tfrnet_bench.report.robustness_tables import robustness_tables
from tfrnet_bench.report.score_tables import ablation_table, stream_table, trade_off_table
from tfrnet_bench.report.scores import StreamScores
from tfrnet_bench.report.summary import facts, main_result, paragraphs, what_was_run
from tfrnet_bench.report.table import Table
from tfrnet_bench.report.tofu_table import tofu_table


def bench_page(folder: Path) -> Page:
    """Return the page of a run."""
    run = read_bench_run(folder)
    scores = StreamScores(run.of_kind("stream"))
    sections = [_summary(run, scores)]
    if scores.cells:
        by_stream = [stream_table(scores, stream) for stream in scores.streams]
        sections += [
            _tables("scores", "Main scores", *by_stream),
            Section("charts", "Methods compared", "<div id=methods></div>"),
        ]
    sections += _more_tables(run, scores)
    if run.cells:
        sections.append(Section("cell", "One cell", "<div id=chosen></div>"))
    sections += _origin(run)
    data = {
        "methods": method_data(scores) if scores.cells else None,
        "cells": [cell_data(cell) for cell in run.cells],
    }
    html = render("Bench report", str(folder.resolve().name), sections, data)
    return Page("bench", html, {"cells": len(run.cells), "failed": len(run.failures)})


def _summary(run: BenchRun, scores: StreamScores) -> Section:
    body = facts(what_was_run(run))
    if run.failures or run.unfinished:
        count = len(run.failures) + len(run.unfinished)
        body += f'<p><a href="#failures">Cells without a result: {count}</a></p>'
    if scores.cells:
        body += f"<div class=result>{paragraphs(main_result(scores))}</div>"
        body += trade_off_table(scores).to_html()
    return Section("summary", "Summary", body)


def _more_tables(run: BenchRun, scores: StreamScores) -> list[Section]:
    ablations = [ablation_table(scores, stream) for stream in scores.streams]
    candidates = [
        _tables("ablations", "Ablations and other variants", *ablations),
        _tables("tofu", "TOFU", tofu_table(run.of_kind("tofu"))),
        _tables("robustness", "Robustness", *robustness_tables(run.of_kind("robust"))),
        _tables("cost", "Cost", cost_table(run)),
    ]
    return [section for section in candidates if section.body]


def _origin(run: BenchRun) -> list[Section]:
    tables = (
        provenance.origin_table(run),
        provenance.input_table(run),
        provenance.settings_table(run),
    )
    body = facts(provenance.bench_facts(run.bench)) + tables_html(tables)
    sections = [Section("provenance", "Provenance", body)]
    failures = _tables("failures", "Failed cells", provenance.failure_table(run))
    return [*sections, failures] if failures.body else sections


def tables_html(tables: Sequence[Table | None]) -> str:
    """Return tables side by side where there is room; nothing if there are none."""
    found = "".join(table.to_html() for table in tables if table is not None)
    return f"<div class=tables>{found}</div>" if found else ""


def _tables(name: str, title: str, *tables: Table | None) -> Section:
    return Section(name, title, tables_html(tables))
