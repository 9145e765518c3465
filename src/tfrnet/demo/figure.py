"""The demo's figure: losses, channels and risks after each request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tfrnet.state.store import StateStore

_SHOWN_CHANNELS = 10
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_ORANGE, _BLUE, _GREEN, _RED = "#E69F00", "#0072B2", "#009E73", "#D55E00"
_LIMITS = {1.0: _ORANGE, 0.9: _BLUE, 0.5: _GREEN, 0.1: _RED}
# A legend below the axes never hides a line.
_BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2}


def draw_trajectory(store: StateStore, path: Path) -> None:
    """Draw the requests of a state that still has all of its generations."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    entries = [entry for entry in store.entries if entry["kind"] == "request"]
    accepted = [entry for entry in entries if entry["outcome"] == "accepted"]
    states = [store.load(number).tensors() for number in [0, *(e["generation"] for e in accepted)]]
    requests = range(1, len(entries) + 1)
    figure, (losses, channels, risks) = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")

    losses.plot(requests, [e["forget_loss_before"] for e in entries], "o--", color=_ORANGE)
    losses.plot(requests, [e["forget_loss_after"] for e in entries], "o-", color=_RED)
    losses.plot(requests, [e["guard_loss_after"] for e in entries], "s-", color=_BLUE)
    losses.legend(["request, before", "request, after", "guard (kept facts)"], **_BELOW)
    losses.set(title="Loss", xlabel="request", ylabel="nats per answer token", xticks=requests)

    after = range(len(states))
    for limit, colour in _LIMITS.items():
        below = [int((state["mask"] < limit).sum()) for state in states]
        channels.plot(after, below, "o-", color=colour, label=f"mask below {limit:g}")
    channels.legend(**_BELOW)
    total = store.manifest.channel_count()
    channels.set(title=f"Channels (of {total:,})", xlabel="request", xticks=after)
    channels.set_yscale("symlog", linthresh=10)
    channels.set_ylim(bottom=0, top=2 * total)

    top = torch.sort(states[-1]["priority"], descending=True, stable=True).indices
    risk = torch.stack([state["risk"][top[:_SHOWN_CHANNELS]] for state in states])
    risks.plot(after, risk.numpy(), "-", color=_GREEN, alpha=0.7)
    risks.set(
        title=f"Risk of the {_SHOWN_CHANNELS} channels of highest priority",
        xlabel="request",
        xticks=after,
        ylabel="risk",
    )
    for axes in (losses, channels, risks):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
