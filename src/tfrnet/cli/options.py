"""Options that several subcommands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tfrnet.method import DEFAULT, method_names

DEFAULT_STATE = Path("tfrnet-state")

State = Annotated[Path, typer.Option(help="Folder of the state.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model: hub id, folder of a model or of a PEFT adapter, .gguf file, smollm2-135m "
        "(the default), or one of its fine-tuned versions that come along: smollm2-tasks, "
        "smollm2-tofu-full, smollm2-tofu-retain90. An existing state knows its model.",
        show_default=False,
    ),
]
Retain = Annotated[
    Path, typer.Option(help="JSON Lines of examples that must be kept; scored beside each request.")
]
Guard = Annotated[
    Path | None,
    typer.Option(
        help="JSON Lines of examples that decide whether a request is accepted. "
        "Without it they are drawn from the retain data.",
        show_default=False,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help=f"Method: {DEFAULT} (the default), {', '.join(method_names()[1:])}. "
        "An existing state knows its method.",
        show_default=False,
    ),
]
Guarded = Annotated[
    bool,
    typer.Option(
        "--guarded",
        help="Let the retain guard reject, and undo, requests of any method; tfr always does. "
        "The same as --set use_guard=true.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Settings: default, tuned (chosen by a search; of tfr the default), and of tfr also "
        "paper and fisher (the step before the default's: cheaper, with a guard of 15 %). "
        "'tfrnet settings' lists those of a method.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change one setting; may be repeated. 'tfrnet settings' lists them.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of the samples; 0 for a new state.", show_default=False)
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16, or auto (float32 on a CPU).")]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ..., auto, or balanced over several GPUs.")
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Examples per pass. Without it 8 on a CPU, and on a GPU, for tfr, what its memory "
        "holds. Changes speed, and results by rounding only; keep it for a bit-identical resume.",
        show_default=False,
    ),
]
Keep = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Generations kept for rollback and 'eval --tasks stream', besides the first; 20, or "
        "as many as there are, but fewer (2 at least) where 20 would take over 4 GB.",
        show_default=False,
    ),
]
Checkpointing = Annotated[
    bool,
    typer.Option(
        "--gradient-checkpointing",
        help="Trade time for memory when a large model is scored or trained. Without a batch size "
        "tfr does so by itself where it is needed.",
    ),
]
Compiled = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Compile the model's layers with torch.compile (tfr only). The first request takes "
        "half a minute or so longer for it; then large models on a GPU are scored faster and in "
        "less memory. The numbers agree up to rounding.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the datasets (boolq/, openbookqa/, arithmetic/, tofu/); TFRNET_DATA "
        "names one too. Without a folder they come from the Hugging Face hub.",
        show_default=False,
    ),
]
DataSource = Annotated[
    str,
    typer.Option(
        "--source",
        help="auto, folder, hub, or generated (arithmetic only; auto takes it without a folder).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@dataclass(frozen=True)
class SessionOptions:
    """What `forget` and `run` are told of the state, its method, and the model."""

    retain: Retain
    state: State = DEFAULT_STATE
    model: Model = None
    guard: Guard = None
    method: Method = None
    guarded: Guarded = False
    preset: Preset = None
    overrides: Set = None
    seed: Seed = None
    dtype: Dtype = "auto"
    device: Device = "auto"
    batch_size: BatchSize = None
    keep: Keep = None
    gradient_checkpointing: Checkpointing = False
    compiled: Compiled = False


def takes_session_options(command: Callable[..., int]) -> Callable[..., int]:
    """Let typer see the fields of `SessionOptions` in the place of a command's `options`."""
    hints = get_type_hints(command, include_extras=True)
    shared = get_type_hints(SessionOptions, include_extras=True)
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name != "options":
            parameters.append((parameter.name, parameter.default, hints[parameter.name]))
            continue
        for field in fields(SessionOptions):
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            parameters.append((field.name, default, shared[field.name]))

    def spread(**values: Any) -> int:
        options = SessionOptions(**{name: values.pop(name) for name in shared})
        return command(options=options, **values)

    spread.__doc__ = command.__doc__
    spread.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )
            for name, default, hint in parameters
        ]
    )
    return spread
