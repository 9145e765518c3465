"""One HTML page of a bench run or of a state, to be read anywhere without a network."""

from tfrnet_bench.report.write import make_report, write_report

__all__ = ["make_report", "write_report"]
