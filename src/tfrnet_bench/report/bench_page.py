"""The page of a bench run."""

from __future__ import annotations

from tfrnet.core.errors import InputError
from tfrnet_bench.report import origin_tables
from tfrnet_bench.report.cell_data import cell_data
from tfrnet_bench.report.cost_section import cost_table
from tfrnet_bench.report.html_table import html_table, html_tables
from tfrnet_bench.report.method_data import method_data
from tfrnet_bench.report.method_scores import MethodScores
from tfrnet_bench.report.page import Page, Section, render
from tfrnet_bench.report.robustness_section import robustness_tables
from tfrnet_bench.report.score_sections import ablation_table, stream_table, trade_off_table
from tfrnet_bench.report.summary import facts, main_result, paragraphs, what_was_run
from tfrnet_bench.report.tofu_section import tofu_table
from tfrnet_bench.results import Run
from tfrnet_bench.tables.published_table import published_tables
from tfrnet_bench.tables.table import Table
from tfrnet_bench.tables.yardstick_table import yardstick_tables


def bench_page(run: Run) -> Page:
    """Return the page of a run."""
    if not run.results and not run.failures:
        raise InputError(f"the run {run.name} has no finished cell yet")
    scores = MethodScores(run)
    sections = [_summary(run, scores)]
    if scores.results:
        by_stream = [stream_table(scores, stream) for stream in scores.streams]
        sections += [
            _tables("scores", "Main scores", *by_stream),
            Section("charts", "Methods compared", "<div id=methods></div>"),
        ]
    sections += _more_tables(run, scores)
    if run.results:
        sections.append(Section("cell", "One cell", "<div id=chosen></div>"))
    sections += _origin(run)
    data = {
        "methods": method_data(scores) if scores.results else None,
        "cells": [cell_data(result) for result in run.results],
    }
    html = render("Bench report", run.name, sections, data)
    counts = {"cells": len(run.results), "failed": len(run.failures)}
    return Page("bench", html, counts, f"{counts['cells']} cells, {counts['failed']} failed")


def _summary(run: Run, scores: MethodScores) -> Section:
    body = facts(what_was_run(run))
    if run.failures or run.unfinished:
        count = len(run.failures) + len(run.unfinished)
        body += f'<p><a href="#failures">Cells without a result: {count}</a></p>'
    if scores.results:
        body += f"<div class=result>{paragraphs(main_result(scores))}</div>"
        body += html_tables(yardstick_tables(run))
        body += html_table(trade_off_table(scores))
    return Section("summary", "Summary", body)


def _more_tables(run: Run, scores: MethodScores) -> list[Section]:
    ablations = [ablation_table(scores, stream) for stream in scores.streams]
    candidates = [
        _tables("ablations", "Ablations and other variants", *ablations),
        _tables("tofu", "TOFU", tofu_table(run)),
        _tables("private-data", "Private data", *published_tables(run)),
        _tables("robustness", "Robustness", *robustness_tables(run)),
        _tables("cost", "Cost", cost_table(run)),
    ]
    return [section for section in candidates if section.body]


def _origin(run: Run) -> list[Section]:
    tables = (
        origin_tables.origin_table(run),
        origin_tables.input_table(run),
        origin_tables.settings_table(run),
    )
    body = facts(origin_tables.plan_facts(run)) + html_tables(tables)
    sections = [Section("provenance", "Provenance", body)]
    failures = _tables("failures", "Failed cells", origin_tables.failure_table(run))
    return [*sections, failures] if failures.body else sections


def _tables(name: str, title: str, *tables: Table | None) -> Section:
    return Section(name, title, html_tables(tables))
