"""Asking a model, with or without a state: answers appear as they come, before beside after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.cli.opening import load, model_name
from tfrnet.cli.options import DEFAULT_STATE
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError
from tfrnet.core.text import printable

if TYPE_CHECKING:
    from tfrnet.core.effect import Effect
    from tfrnet.models.load import LoadedModel
    from tfrnet.state.store import StateStore

# The untouched model's answer, and that of the unlearned one.
BEFORE, AFTER = "before", "after"
# Says something to a model, given which of the two it is, and returns the answer.
Ask = Callable[[str, Callable[[str], None]], str]


@dataclass(frozen=True)
class AskedModel:
    """A loaded model; with a state it can act as before and as after."""

    loaded: LoadedModel
    state: Path | None = None
    effect: Effect | None = None

    def answer(self, ask: Ask, output: Output) -> dict[str, str]:
        """Ask the model, before and after if there is a state; show and return the answers."""
        answers: dict[str, str] = {}
        kinds = (BEFORE, AFTER) if self.effect else (BEFORE,)
        with _showing(output, kinds) as heard:
            for kind in kinds:
                lift = self.effect and kind == BEFORE
                with self.effect.lifted() if self.effect and lift else nullcontext():
                    answers[kind] = ask(kind, lambda text, kind=kind: heard(kind, text))  # type: ignore[misc]
                if not output.is_terminal:
                    label = kind if self.effect else "answer"
                    output.say(f"{label:<7} {on_one_line(answers[kind])}")
        return answers


@contextmanager
def asked_model(
    state: Path | None,
    untouched: bool,
    generation: int | None,
    model: str | None,
    dtype: str,
    device: str,
    trust_remote_code: bool,
    output: Output,
) -> Iterator[AskedModel]:
    """Load a model, with the state that is named, or the one in its usual place, if any."""
    store = None if untouched else _found(state)
    if store:
        store.load(generation)
        dtype = store.manifest.dtype(dtype)
    name = model_name(model, store)
    loaded = load(name, dtype, device, output, trust_remote_code=trust_remote_code)
    if store is None:
        yield AskedModel(loaded)
        return
    with ExitStack() as while_asked:
        with output.waiting("opening the state"):
            from tfrnet.method_state import apply_state

            effect = while_asked.enter_context(
                apply_state(loaded.model, store, generation, loaded.tokenizer)
            )
        yield AskedModel(loaded, store.layout.folder, effect)


def _found(state: Path | None) -> StateStore | None:
    from tfrnet.state.store import StateStore

    if state is None and not StateStore.exists(DEFAULT_STATE):
        return None
    return StateStore.open(state or DEFAULT_STATE)


def refuse_undecoded(text: str, where: str) -> None:
    """Raise at bytes that are no UTF-8: Python lets them through, and no tokenizer takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where} is not UTF-8 text") from None


def on_one_line(text: str) -> str:
    """Return a text with its line ends as spaces."""
    return " ".join(text.split())


@contextmanager
def _showing(output: Output, kinds: tuple[str, ...]) -> Iterator[Callable[[str, str], None]]:
    """Show answers side by side on a terminal while they come; elsewhere nothing is shown yet."""
    if not output.is_terminal:
        with output.waiting("answering"):
            yield lambda kind, text: None
        return
    from rich.live import Live
    from rich.table import Table

    texts = dict.fromkeys(kinds, "")

    def table() -> Table:
        made = Table(
            *(kinds if len(kinds) > 1 else ("answer",)), expand=len(kinds) > 1, show_edge=False
        )
        made.add_row(*(_plain(texts[kind]) for kind in kinds))
        return made

    how: dict[str, Any] = {"auto_refresh": False, "vertical_overflow": "visible"}
    with Live(table(), console=output.text, **how) as live:

        def heard(kind: str, text: str) -> None:
            texts[kind] += text
            live.update(table(), refresh=True)

        yield heard


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(printable(on_one_line(text)))
