"""The tables of notebook/repair.md, from the cells of benchmarks.calibrated.

python -m benchmarks.repair_table
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.attacks_table import ATTACKS, FOUR_BITS, attacked
from benchmarks.cost_table import TOFU, by_seed
from benchmarks.default_table import STREAMS, Row, lost_accuracy, mean, of, read_cells
from benchmarks.neighbours_table import table

_STREAM_VARIANTS = (
    *("deep", "d", "R3", "s1", "s2", "f", "p1", "fp", "fps"),
    *("b1", "b3", "b5"),
)
_TOFU_VARIANTS = ("t", "ts", "tfp", "tR", "dR")
_FIGURES = {
    "seed": "{}",
    "accepted": "{}",
    "honest": "{:.1f}",
    "forgetting": "{:.0f}",
    "keeping": "{:.0f}",
    "trade_off": "{:.1f}",
    "not_yet": "{:.0f}",
    "fresh_ratio": "x{:.2f}",
}
_FEW_CHANNELS = "c4096"
_ROUNDED = ("d", "r1", "r2", "n1")
_REQUESTS = 20


def tofu_table(rows: Sequence[Row]) -> str:
    """Return a line for each variant on TOFU: what five requests forget and keep."""
    lines = []
    for name in _TOFU_VARIANTS:
        (row,) = of(rows, name, TOFU)
        depths, kept = row["forget_loss_after"], row["sets"]["retain"]
        lines.append(
            (
                *(name, f"{fmean(depths):.1f}", " ".join(f"{each:.1f}" for each in depths)),
                *(f"{each:.3f}" for each in row["fresh_loss"][:2]),
                *(f"{kept[each]:.2f}" for each in ("probability", "rouge")),
                f"{row['sets']['forget']['probability']:.2f}",
                f"{row['utility']:.2f}",
                f"{row['request_seconds']:.0f}",
                f"{row['request_seconds_by_stage']['score']:.1f}",
            )
        )
    head = (
        "variant, nats, by request, fresh before, after, retain p, ROUGE, forget p, utility, s, "
        "scoring s"
    )
    return table(head, lines)


def streams_table(rows: Sequence[Row]) -> str:
    """Return a line for each stream and variant, with one seed after the other."""
    lines = []
    for stream in STREAMS:
        for name in _STREAM_VARIANTS:
            if own := of(rows, name, stream):
                figures = (by_seed(own, *figure) for figure in _FIGURES.items())
                lines.append((stream, name, *figures))
    head = "stream, variant, seeds, accepted, H, forgotten, kept, T, not yet, fresh"
    return table(head, lines)


def rounded_table(rows: Sequence[Row]) -> str:
    """Return what is right without an attack and after 4 bits, a line for each cell."""
    lines = []
    for name in _ROUNDED:
        for row in of(rows, name, "openbookqa"):
            if "attacks" in row:
                found = [next(attacked([row], *ATTACKS[each])) for each in FOUR_BITS]
                figures = (row["honest"], row["attacks"][0]["plain"], *found)
                shown = (f"{each:.1f}" for each in figures)
                lines.append((name, row["seed"], *shown, f"x{row['fresh_ratio']:.2f}"))
    return table(f"variant, seed, H, no attack, {', '.join(FOUR_BITS)}, fresh", lines)


def channels_table(rows: Sequence[Row]) -> str:
    """Return the facts that are forgotten and kept if few channels may move, and if all may."""
    lines = []
    for row in read_cells("repair"):
        if row["candidate"] == _FEW_CHANNELS:
            before = of(rows, "d", row["task"])
            (all_channels,) = [each for each in before if each["seed"] == row["seed"]]
            lines += [facts_cells(each) for each in (all_channels, row)]
    return table("facts, variant, forgotten, same topic, others, nats, fluency, accepted", lines)


def facts_cells(row: Row) -> tuple[str, ...]:
    """Return the cells of one set of facts, after the last request."""
    last = row["points"][-1]
    return (
        *(f"{row['task'].removeprefix('demo:')} {row['seed']}", row["candidate"]),
        *(f"{last[name]:.1f}" for name in ("forgotten", "same_topic", "others")),
        f"{last['forgotten_nats']:.1f}",
        f"x{last['fluency']['perplexity_ratio']:.2f}",
        f"{row['accepted']} of {row['requests']}",
    )


def sums_table() -> str:
    """Return arithmetic without retain data: means over seeds, without and with sums held."""
    before = of(read_cells("wrong-answers"), "own text", "arithmetic")
    lines = []
    for held, own in (("no", before), ("yes", of(read_cells("repair"), "ot", "arithmetic"))):
        lines.append(
            (
                *(held, by_seed(own, "seed", "{}"), mean(own, "honest", ".1f")),
                *(mean(own, name) for name in ("forgetting", "keeping", "not_yet")),
                f"{fmean(map(lost_accuracy, own)):+.1f}",
                f"x{mean(own, 'fresh_ratio', '.2f')}",
            )
        )
    return table("sums held, seeds, H, forgotten, kept, not yet, R, fresh", lines)


def cells() -> list[Row]:
    """Return the cells of the page, and those of before that they are compared with.

    Streams that the clock cut short do not compare.
    """
    own = [row for row in read_cells("repair") if row["task"] not in STREAMS or _is_whole(row)]
    known = {(row["candidate"], row["task"], row["seed"]) for row in own}
    seeds = {row["seed"] for row in own}
    before = [row for row in read_cells("cost") if row["candidate"] == "d"]
    before += _renamed(of(read_cells("wrong-answers"), "median", "openbookqa"), "d")
    # What is `deep` now was the default then.
    for stream in STREAMS:
        before += _renamed(of(read_cells("calibrated"), "default", stream), "deep")
    return own + [
        row
        for row in before
        if row["seed"] in seeds and (row["candidate"], row["task"], row["seed"]) not in known
    ]


def _renamed(rows: Sequence[Row], name: str) -> list[Row]:
    return [{**row, "candidate": name} for row in rows]


def _is_whole(row: Row) -> bool:
    return bool(row["requests"] == _REQUESTS)


if __name__ == "__main__":
    found = cells()
    print(
        tofu_table(found),
        streams_table(found),
        rounded_table(found),
        channels_table(found),
        sums_table(),
        sep="\n\n",
    )
