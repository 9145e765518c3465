"""Options that several subcommands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tfrnet.method import DEFAULT, method_names
from tfrnet.models.shipped import BACKBONES

DEFAULT_STATE = Path("tfrnet-state")

State = Annotated[Path, typer.Option(help="Folder of the state.")]
AskedState = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Folder of the state. Default: tfrnet-state, if there is one; else the model alone.",
        show_default=False,
    ),
]
Untouched = Annotated[
    bool,
    typer.Option("--untouched", help="Ask the model alone, even if there is a state."),
]
Generation = Annotated[
    int | None,
    typer.Option(min=0, help="Generation of the state to use.", show_default="the current one"),
]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Maximum number of new tokens.")]
_MODELS = (
    "Hub id, model or PEFT adapter folder, .gguf file, smollm2-135m (a 4-bit copy of "
    "SmolLM2-135M-Instruct: Q4_1), gemma3-270m, or with the package tfrnet-backbones: "
    f"{', '.join(BACKBONES)}."
)
Model = Annotated[
    str | None,
    typer.Option(
        help=f"{_MODELS} Default: the model of the state, or smollm2-135m for a new one.",
        show_default=False,
    ),
]
UntouchedModel = Annotated[
    str | None,
    typer.Option("--model", help=f"{_MODELS} Default: smollm2-135m.", show_default=False),
]
BaseModel = Annotated[
    str | None,
    typer.Option(
        "--model", help=f"{_MODELS} Default: the one that the adapter names.", show_default=False
    ),
]
Retain = Annotated[
    Path, typer.Option(help="JSON Lines file with examples that the model must keep.")
]
RetainOrOwn = Annotated[
    Path | None,
    typer.Option(
        "--retain",
        help="JSON Lines file with examples that the model must keep. Without it the model writes "
        "some text of its own to be kept, once per state; data of your own protects better.",
        show_default=False,
    ),
]
Guard = Annotated[
    Path | None,
    typer.Option(
        help="JSON Lines file with the examples that decide whether a request is accepted. "
        "Default: a sample of the retain data; tfr leaves it out of its steps if enough is left. "
        'Lines may name a "group", such as a task or a source; each is then judged for itself.',
        show_default=False,
    ),
]
RetireGuard = Annotated[
    int,
    typer.Option(
        min=0,
        help="How many of the state's original guard examples have been taken out of the data so "
        "far, in all: for when one of them must be forgotten itself. Take out its line and give "
        "the new total; the same command can be repeated. At least half must be left.",
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        help="JSON Lines file with examples like those of the requests which the model never saw. "
        "Answers are made as unlikely as these, in place of an estimate.",
        show_default=False,
    ),
]
Holdout = Annotated[
    Path | None,
    typer.Option(
        help="JSON Lines file with examples of your own that no step and no guard uses; their loss "
        "is measured at every request, to see what else was lost.",
        show_default=False,
    ),
]
NoAudit = Annotated[
    bool,
    typer.Option(
        "--no-audit",
        help="Do not look at what each request did: whether other wordings still give what was "
        "forgotten, and what became of kept and general text. Saves up to a quarter of the time.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        help=f"Unlearning method: {', '.join(method_names())}. Default: the method of the state, "
        f"or {DEFAULT} for a new one.",
        show_default=False,
    ),
]
Guarded = Annotated[
    bool,
    typer.Option(
        "--guarded",
        help="Let the guard reject requests with this method too, as it does with tfr. Same as "
        "--set use_guard=true.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="Named settings of a new state: default, tuned (found by 'tfrnet search'; deep for "
        "tfr), published (as in the published results; with tfr deep too), and with tfr also "
        "quick, thorough, deep, paper, fisher or calibrated. 'tfrnet settings' lists those of a "
        "method.",
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
    int | None,
    typer.Option(
        help="Random seed of a new state. Default: 0, or the seed of the state.",
        show_default=False,
    ),
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16, float16, or auto (float32 on a CPU).")]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run Python code that the model folder or hub repository brings along; without it "
        "such code never runs. Only for models whose authors you trust.",
    ),
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, ..., auto, or balanced (over several GPUs).")
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Examples per forward pass. Default: 8; with tfr as many as fit into a GPU's memory, "
        "or as are fastest on a CPU. Affects results only by rounding; keep it to resume bit for "
        "bit.",
        show_default=False,
    ),
]
Keep = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of generations to keep for rollback, besides the first. Default: 20, or fewer "
        "(at least 2) if 20 would take more than 4 GB.",
        show_default=False,
    ),
]
Checkpointing = Annotated[
    bool,
    typer.Option(
        "--gradient-checkpointing",
        help="Use less memory and more time on a large model. Without --batch-size, tfr turns this "
        "on where needed.",
    ),
]
Compiled = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Compile the model's layers with torch.compile (tfr only). The first request takes "
        "about half a minute longer; large models on a GPU are then faster and need less memory. "
        "Affects results only by rounding.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the datasets, one subfolder each (boolq/, tofu/, ...). Default: the "
        "folder that the variable TFRNET_DATA names, else the Hugging Face hub.",
        show_default=False,
    ),
]
DataSource = Annotated[
    str,
    typer.Option(
        "--source",
        help="Where datasets come from: folder, hub, generated (arithmetic only), or auto: the "
        "folder if there is one, else generated or hub.",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(
        help="PEM file of the key that signs the ledger; the variable TFRNET_KEY can name it too. "
        "Made on first use, readable by its owner only. Keep it outside the state.",
        show_default=False,
    ),
]
ReadKey = Annotated[
    Path | None,
    typer.Option(
        "--key",
        help="PEM file of the key that signs the ledger; the variable TFRNET_KEY can name it too.",
        show_default=False,
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        help="PEM file of the public key that you trust; 'tfrnet key public' prints one.",
        show_default=False,
    ),
]
Full = Annotated[
    bool,
    typer.Option("--full", help="With --json: also the 128 channels of highest risk per request."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@dataclass(frozen=True)
class SessionOptions:
    """The options that `forget` and `run` share: state, method and model."""

    retain: RetainOrOwn = None
    state: State = DEFAULT_STATE
    model: Model = None
    guard: Guard = None
    retire_guard: RetireGuard = 0
    reference: Reference = None
    holdout: Holdout = None
    no_audit: NoAudit = False
    method: Method = None
    guarded: Guarded = False
    preset: Preset = None
    overrides: Set = None
    seed: Seed = None
    dtype: Dtype = "auto"
    device: Device = "auto"
    trust_remote_code: TrustRemoteCode = False
    batch_size: BatchSize = None
    keep: Keep = None
    key: Key = None
    gradient_checkpointing: Checkpointing = False
    compiled: Compiled = False


def takes_session_options(command: Callable[..., int]) -> Callable[..., int]:
    """Replace a command's `options` parameter by the fields of `SessionOptions`, for typer."""
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
