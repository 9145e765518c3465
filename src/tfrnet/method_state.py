"""States on disk as their methods read them: settings, masks, and acting on a model.

The store knows tensors by name and nothing of methods; a method knows nothing of the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.core.drift import Drift
from tfrnet.core.errors import InputError, StateError
from tfrnet.core.settings import Settings
from tfrnet.data.examples import Example
from tfrnet.data.own_text import OwnText
from tfrnet.masking.strength import MaskStrength
from tfrnet.method import find_config, find_method
from tfrnet.state.check import Check
from tfrnet.state.digests import example_digest
from tfrnet.state.evidence import NOTHING_KEPT, Kept
from tfrnet.state.manifest import Manifest
from tfrnet.state.store import StateStore
from tfrnet.state.verify import verify

# Whoever only looks at a state should not wait for torch.
if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tfrnet.core.arrays import Arrays
    from tfrnet.core.tensors import State

# The share of a state's first guard examples without which the guard would say too little.
_LEAST_GUARD = 0.5


def settings_of(manifest: Manifest) -> Settings:
    """Return the settings that a state was made with."""
    config = find_config(manifest.method)
    # A state that was made before there was a limit on the total drift has none.
    older = {name: None for name in config.changeable() if name not in manifest.config}
    try:
        return config.from_record(older | dict(manifest.config))
    except InputError as error:
        raise StateError(f"the manifest's config cannot be used: {error}") from None


def read_state(store: StateStore) -> State:
    """Return the state of the current generation."""
    tensors = store.load().tensors()
    state: State = find_method(store.manifest.method).read_state(tensors)
    return state


@dataclass(frozen=True)
class KnownGuard:
    """A state's guard examples that were found, and the digests of those that were not.

    `retired` is how many of the first ones the state does without already.
    """

    examples: list[Example]
    missing: list[str]
    retired: int

    @classmethod
    def of(cls, store: StateStore, data: Sequence[Example]) -> KnownGuard:
        """Find a state's own guard examples again, by their digests, in the data given now."""
        key, wanted = store.key(), store.guard
        own = own_text_of(store)
        known = [*(own.guard if own else ()), *data]
        # Of examples that say the same, the first: guard data comes before retain data.
        found = {example_digest(example, key): example for example in reversed(known)}
        return cls(
            [found[digest] for digest in wanted if digest in found],
            [digest for digest in wanted if digest not in found],
            len(store.manifest.guard) - len(wanted),
        )

    def to_retire(self, folder: Path, told: int) -> list[str]:
        """Return what is missing and to be done without, or raise.

        `told` is how many are to be done without in all, those retired earlier among them: the same
        command goes on, and whatever else is missing is an error.
        """
        in_all = self.retired + len(self.missing)
        if told and not self.missing and told != in_all:
            raise InputError(
                f"--retire-guard {told}: of the guard examples of state {folder} {self.retired} "
                "are retired, and no other is missing from the data; leave the option out"
            )
        if told != in_all and self.missing:
            more = (
                ". If they are gone for good, as when one is to be forgotten, --retire-guard "
                f"{in_all} goes on without them (Session: retire_guard={in_all})"
            )
            raise InputError(f"{self._lack(folder)}{more if self._leaves_enough else ''}")
        if self.missing and not self._leaves_enough:
            raise InputError(
                f"only {len(self.examples)} of the first {len(self.examples) + in_all} guard "
                f"examples of state {folder} would be left, which is too few to judge by; begin a "
                "new state with other guard data. 'tfrnet export --format ia3' and 'tfrnet import' "
                "take a mask along"
            )
        return self.missing

    def all_of(self, folder: Path) -> list[Example]:
        """Return the examples, or raise if some are missing."""
        if self.missing:
            raise InputError(
                f"{self._lack(folder)}. One that is to be forgotten is first retired on disk: "
                "'tfrnet forget --retire-guard', or Session(retire_guard=...)"
            )
        return self.examples

    @property
    def _leaves_enough(self) -> bool:
        left = len(self.examples)
        return left >= _LEAST_GUARD * (left + len(self.missing) + self.retired)

    def _lack(self, folder: Path) -> str:
        count = len(self.missing)
        return (
            f"{count} of the {count + len(self.examples)} guard examples of state {folder} are "
            "not in the retain and guard data given; give all the data it was made with (more "
            "may be added)"
        )


def guard_of(store: StateStore, data: Sequence[Example]) -> list[Example]:
    """Return a state's own guard examples, all of which must be in the data given now."""
    return KnownGuard.of(store, data).all_of(store.layout.folder)


def own_text_of(store: StateStore) -> OwnText | None:
    """Return what the model wrote in place of retain data, if the state began without."""
    kept = store.manifest.own_text
    return OwnText.from_dict(kept, f"{store.layout.manifest}: own_text") if kept else None


def needed_own_text(store: StateStore) -> OwnText:
    """Return what the model wrote, or raise because the state began with retain data."""
    if own := own_text_of(store):
        return own
    raise InputError(
        f"state {store.layout.folder} was begun with retain data, so it needs them (--retain)"
    )


def requests_words(store: StateStore) -> str:
    """Return how many requests are applied now, were rejected and were seen at all."""
    checked = "" if store.manifest.config.get("use_guard", True) else ", not checked (no guard)"
    now = store.position
    return f"{now.applied} applied{checked}, {now.rejected} rejected, {now.seen} seen in total"


def drift_of(store: StateStore) -> Drift | None:
    """Return the total drift of a state, if its ledger tells it."""
    known = store.measures
    if "guard_loss_untouched" not in known or "guard_loss" not in known:
        return None
    settings = settings_of(store.manifest).to_dict()
    limit = settings.get("drift_limit") if settings.get("use_guard") else None
    return Drift(known["guard_loss_untouched"], known["guard_loss"], limit)


def has_mask(store: StateStore) -> bool:
    """Tell whether a state is a mask over channels."""
    return find_config(store.manifest.method).has_mask


def mask_of(store: StateStore, generation: int | None = None) -> torch.Tensor:
    """Return a generation's mask over the channels."""
    if not has_mask(store):
        raise StateError(
            f"state {store.layout.folder} belongs to method {store.manifest.method}, which has "
            "no mask"
        )
    return store.load(generation).tensors()["mask"]


def dormant_threshold_of(store: StateStore) -> float:
    """Return the mask at or below which a channel of a state counts as dormant."""
    threshold: float = settings_of(store.manifest).to_dict()["dormant_threshold"]
    return threshold


def strength_of(store: StateStore) -> MaskStrength | None:
    """Return how strong a state's mask is now; None for methods without a mask."""
    # Other states may be as large as their model and hold nothing to count.
    if not has_mask(store):
        return None
    return MaskStrength.of(store.arrays()["mask"], dormant_threshold_of(store))


def verify_state(folder: Path, kept: Kept = NOTHING_KEPT) -> list[Check]:
    """Check a state folder without changing it, and against what was kept of it elsewhere."""
    return verify(folder, _problem, kept)


def refuse_other_model(
    store: StateStore, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> None:
    """Raise if a state belongs to another base model, or, where one is given, tokenizer."""
    from tfrnet.models.fingerprint import ModelFacts, fingerprint, tokenizer_digest

    manifest, folder = store.manifest, store.layout.folder
    manifest.refuse_base(folder, fingerprint(model))
    found = asdict(ModelFacts.of(model)) if manifest.bound else {}
    if manifest.bound and tokenizer:
        found["tokenizer"] = tokenizer_digest(tokenizer)
    manifest.refuse_unbound(folder, found)


def apply_state(
    model: PreTrainedModel,
    state: str | Path | StateStore,
    generation: int | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Any:
    """Let a base model act as in a state (the current or a kept generation), until `detach`.

    For TFR-Net what is returned is the mask; the methods' `with` blocks end in `detach` too. Given
    the tokenizer, one that the state was not made with is refused.
    """
    store = state if isinstance(state, StateStore) else StateStore.open(Path(state))
    manifest = store.manifest
    refuse_other_model(store, model, tokenizer)
    shown = store.load(generation)
    effect = find_method(manifest.method).attach(model, settings_of(manifest))
    try:
        manifest.refuse_layout(store.layout.folder, effect.layout())
        effect.show(shown)
    except BaseException:
        effect.detach()
        raise
    return effect


def _problem(store: StateStore, arrays: Arrays) -> str:
    config = find_config(store.manifest.method)
    return config.state_problem(arrays, store.manifest.channels)
