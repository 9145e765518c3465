"""The model card of an export: what it is, what was measured, and what it does not promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from tfrnet.export.format import Format, Job
from tfrnet.export.origin import Measured, Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOVABLE = (
    "* **The forgetting can be taken off.** The base model still holds what was forgotten; whoever "
    "leaves the adapter away has it back. Ship a `dense` or `gguf` export where that matters."
)
_FOLDED = (
    "* Weights of channels at mask 0 are gone from this copy; those at a small mask are only "
    "scaled, and whoever knows that can scale them back."
)
_LIMITS = """\
* **Less likely is not unknown.** Forgetting was measured on the answers of the requests. Other
  wordings, other languages, fine-tuning or quantisation may bring part of it back.
* What is close to the forgotten may have suffered too; the guard watched its own examples only.
* This is no certificate that a person's data had no influence on the model."""


def model_card(job: Job, form: Format, difference: float, folder: str) -> str:
    """Return the card as the hub reads it: a head in YAML, then Markdown."""
    origin = job.origin
    return "\n".join(
        [
            _head(origin, form),
            f"# {_title(origin)}",
            "",
            f"`{origin.base_model}` after {_count(origin.applied, 'deletion request')}, "
            f"applied with tfrnet (method `{origin.method}`)"
            f" and exported as `{form.name}`.",
            "",
            "## Where it comes from",
            "",
            *_table(_facts(origin)),
            "",
            "## What was measured",
            "",
            *_measured(origin),
            f"The export's logits agree with the live model's: relative difference "
            f"{difference:.1e} on three fixed texts"
            + (", before the conversion to GGUF." if form.name == "gguf" else "."),
            "",
            "## How to use it",
            "",
            form.usage(job, folder),
            "",
            "## Limits",
            "",
            _REMOVABLE if form.removable else _FOLDED,
            _LIMITS,
            "",
        ]
    )


def _head(origin: Origin, form: Format) -> str:
    lines = ["---", f"library_name: {form.library}"]
    # The hub accepts names of its own models only; a folder of ours is none.
    if "/" in origin.base_model and not origin.base_model.startswith((".", "/", "~")):
        lines += [f"base_model: {origin.base_model}", f"base_model_relation: {form.relation}"]
    return "\n".join([*lines, "tags:", "- unlearning", "- tfrnet", "---", ""])


def _title(origin: Origin) -> str:
    return f"{origin.base_model.rstrip('/').rsplit('/', 1)[-1]}, unlearned"


def _facts(origin: Origin) -> Mapping[str, object]:
    facts = {
        "base model": f"`{origin.base_model}`",
        "revision": origin.base_revision or "unknown (not from the hub)",
        "fingerprint of its weights": f"`{origin.base_fingerprint}`",
        "method": f"`{origin.method}`",
        "requests": f"{origin.applied} applied, {origin.rejected} rejected",
        "guard": _guard(origin.config),
        "generation": origin.generation,
        "digest of the state": f"`{origin.state_digest}`",
        "head of the ledger": f"`{origin.ledger_head}`" if origin.ledger_head else None,
        "versions": ", ".join(f"{name} {found}" for name, found in origin.versions.items()),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _guard(config: Mapping[str, Any]) -> str:
    if not config.get("use_guard"):
        return "off"
    absolute = config.get("guard_absolute", 0)
    return f"a request may raise its loss by at most {100 * config['guard_relative']:g} %" + (
        f" plus {absolute:g} nats" if absolute else ""
    )


def _measured(origin: Origin) -> Iterator[str]:
    if origin.requests:
        yield from _table(_losses(origin.requests))
        yield ""
    elif not origin.unrecorded:
        yield "No request was applied, so nothing was measured."
        yield ""
    if origin.unrecorded:
        yield (
            f"Of {_count(origin.unrecorded, 'request')} nothing is recorded here: the lines in the "
            "ledger were lost before a repair of the state."
        )
        yield ""


def _losses(requests: Sequence[Measured]) -> Mapping[str, object]:
    before = mean(request.forget_loss_before for request in requests)
    after = mean(request.forget_loss_after for request in requests)
    first, last = requests[0], requests[-1]
    # In between the guard may have lost examples; these two are of those that are left.
    untouched = last.guard_loss_untouched
    guard_before = first.guard_loss_before if untouched is None else untouched
    return {
        "loss of the answers to forget, mean": f"{before:.3f} before their request, "
        f"{after:.3f} after",
        "loss of the guard examples": f"{guard_before:.3f} before all, "
        f"{last.guard_loss_after:.3f} after the last",
        "examples to forget": sum(r.examples for r in requests),
    }


def _table(rows: Mapping[str, object]) -> Iterator[str]:
    yield "| | |"
    yield "| --- | --- |"
    for name, value in rows.items():
        yield f"| {name} | {value} |"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
