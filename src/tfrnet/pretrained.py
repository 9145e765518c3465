"""TFR-Net as users of transformers and peft expect it: `from_pretrained` and `save_pretrained`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Example
from tfrnet.export import FORMATS
from tfrnet.export.format import Job
from tfrnet.export.origin import Origin
from tfrnet.export.write import write_export
from tfrnet.method_state import guard_of, refuse_other_model, settings_of
from tfrnet.methods.tfr import model as method
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.models.fingerprint import fingerprint
from tfrnet.models.load import LoadedModel, load_model
from tfrnet.state.base_model import bare_name
from tfrnet.state.store import StateStore

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class TFRNet(method.TFRNet):
    """TFR-Net on one model, in memory: use it, forget more, save it as an ordinary model folder.

        from transformers import AutoModelForCausalLM
        from tfrnet import TFRNet, read_examples, read_requests

        net = TFRNet.from_pretrained("smollm2-135m", "tfrnet-state")
        inputs = net.tokenizer("The capital of France is", return_tensors="pt")
        print(net.tokenizer.decode(net.generate(**inputs, max_new_tokens=8)[0]))

        outcome = net.forget(read_requests("more.jsonl")[0], retain=read_examples("retain.jsonl"))
        print(outcome.outcome, outcome.reason)
        net.save_pretrained("unlearned")
        model = AutoModelForCausalLM.from_pretrained("unlearned")

    `TFRNet(model, tokenizer, retain, config)` starts without a state. Nothing here writes to a
    state folder; `tfrnet.Session` does. The weights are never changed; a mask scales the outputs
    of projections until `detach`.
    """

    _store: StateStore | None = None

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path | PreTrainedModel | None,
        state: str | Path,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        retain: Sequence[Example] | None = None,
        guard: Sequence[Example] | None = None,
        generation: int | None = None,
        dtype: str = "auto",
        device: str = "auto",
        trust_remote_code: bool = False,
        **options: Any,
    ) -> Self:
        """Load a base model and apply a state to it: its current or an earlier generation.

        `model` is anything that `tfrnet.load_model` takes, such as a folder or a hub id, or a
        loaded model with its tokenizer; None is the state's own model. Retain data is needed only
        to forget more, here or in `forget`; the state's guard examples must be in it or in `guard`.
        Further options are those of `TFRNet`.
        """
        folder = Path(state)
        store = StateStore.open(folder)
        manifest = store.manifest
        manifest.refuse_method(folder, cls.method)
        config = settings_of(manifest)
        assert isinstance(config, TFRConfig)
        shown = cls.read_state(store.load(generation).tensors())
        known_guard = guard_of(store, [*(guard or ()), *retain]) if retain is not None else None
        loaded = _loaded(
            store.model if model is None else model,
            tokenizer,
            manifest.dtype(dtype),
            device,
            trust_remote_code,
        )
        refuse_other_model(store, *loaded)
        net = cls(*loaded, retain, config, guard=known_guard, seed=manifest.seed, **options)
        try:
            manifest.refuse_layout(folder, net.layout())
            net.restore(shown)
        except BaseException:
            net.detach()
            raise
        # As in a session: samples are seeded by the number of requests.
        net.requests_seen = store.position.seen
        net._store = store
        return net

    def generate(self, *inputs: Any, **options: Any) -> Any:
        """Generate with the unlearned model, as `model.generate` does."""
        return self.model.generate(*inputs, **options)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the unlearned model as an ordinary folder, with its tokenizer, for any tool.

        The mask is folded into a copy of the weights. The folder must be new or empty; it is
        written only if the reloaded copy has the same logits as this model.
        """
        origin = Origin(
            made_by="TFRNet.save_pretrained",
            base_model=bare_name(
                self._store.manifest.model if self._store else self.model.name_or_path
            ),
            base_fingerprint=fingerprint(self.model),
            state_digest=self.state.digest(),
            method=self.method,
            seed=self.seed,
            config=self.config.to_dict(),
        )
        write_export(Job(self.effect, self.tokenizer, origin), FORMATS.find("dense"), Path(folder))

    def _guard_among(self, retain: Sequence[Example]) -> Sequence[Example]:
        return guard_of(self._store, retain) if self._store else super()._guard_among(retain)


def _loaded(
    model: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    dtype: str,
    device: str,
    trust_remote_code: bool,
) -> LoadedModel:
    if isinstance(model, (str, Path)):
        found = load_model(str(model), dtype, device, trust_remote_code=trust_remote_code)
        return found if tokenizer is None else LoadedModel(found.model, tokenizer)
    if tokenizer is None:
        raise InputError("a loaded model needs its tokenizer: give tokenizer=...")
    return LoadedModel(model, tokenizer)
