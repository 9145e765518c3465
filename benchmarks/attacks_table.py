"""The tables of notebook/attacks.md, from the cells of benchmarks.calibrated.

python -m benchmarks.attacks_table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from benchmarks.default_table import STREAMS, Row, of, read_cells
from benchmarks.neighbours_table import table

ATTACKS = {
    **{name: ("quantise", name) for name in ("int8-row", "int4-row", "int4-block", "nf4", "fp4")},
    **{f"relearnt {steps}": ("relearn", f"forgotten, {steps} steps") for steps in (20, 80)},
    "benign 80": ("relearn", "benign, 80 steps"),
}
_SEEDS = (3, 4, 5)
FOUR_BITS = ("int4-row", "int4-block", "nf4", "fp4")
# Where a method's cells are, and what they are called there.
METHODS = {
    "TFR-Net (default)": ("attacks", "default"),
    "TFR-Net, held guard, `memory_rows` 64": ("limits", "d64"),
    "NPO": ("witness", "npo"),
    "SimNPO": ("witness", "simnpo"),
    "GradDiff": ("attacks", "graddiff"),
    "RMU": ("attacks", "rmu"),
    "GA": ("attacks", "ga"),
}


def attacks_table() -> str:
    """Return a line for each stream and method, after what a retrained model gets right."""
    lines: list[Sequence[str]] = []
    for stream in STREAMS:
        right = fmean(_retrained(stream, seed) for seed in _SEEDS)
        seeds, rest = ", ".join(map(str, _SEEDS)), [""] * len(ATTACKS)
        lines.append((stream, "*a retrained model*", seeds, f"{right:.1f}", *rest))
        for name, (file, candidate) in METHODS.items():
            if own := _attacked(read_cells(file), candidate, stream):
                seeds = ", ".join(str(row["seed"]) for row in own)
                lines.append((stream, name, seeds, *under_attack(own)))
    return table(", ".join(("stream", "method", "seeds", "no attack", *ATTACKS)), lines)


def seeds_table() -> str:
    """Return a line for each cell of the default, beside the retrained model of its seed."""
    lines: list[Sequence[str]] = []
    for stream in STREAMS:
        for row in _attacked(read_cells("attacks"), "default", stream):
            right = _retrained(stream, row["seed"])
            found = [next(attacked([row], *ATTACKS[name])) for name in FOUR_BITS]
            # Adding 0.0 turns -0.0 into 0.0.
            above = (f"{each:.1f} ({round(each - right, 1) + 0.0:+.1f})" for each in found)
            lines.append((stream, str(row["seed"]), f"{right:.1f}", *above))
    return table(", ".join(("stream", "seed", "a retrained model", *FOUR_BITS)), lines)


def _retrained(stream: str, seed: int) -> float:
    (row,) = (
        row for row in read_cells("default-oracle") if (row["task"], row["seed"]) == (stream, seed)
    )
    # The attacker has the items of the first two requests.
    return fmean(row["by_request"][2:])


def _attacked(rows: Sequence[Row], candidate: str, stream: str) -> list[Row]:
    return [row for row in of(rows, candidate, stream) if "attacks" in row]


def under_attack(rows: Sequence[Row]) -> list[str]:
    """Return the means over cells: without an attack, and under each."""
    plain = fmean(row["attacks"][0]["plain"] for row in rows)
    figures = [fmean(attacked(rows, *attack)) for attack in ATTACKS.values()]
    return [f"{each:.1f}" for each in (plain, *figures)]


def attacked(rows: Sequence[Row], attack: str, variant: str) -> Iterator[float]:
    """Return the accuracy of each cell under an attack."""
    for row in rows:
        (found,) = (
            each["attacked"]
            for each in row["attacks"]
            if (each["attack"], each["variant"]) == (attack, variant)
        )
        yield found


if __name__ == "__main__":
    print(attacks_table(), seeds_table(), sep="\n\n")
