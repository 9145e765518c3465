"""`tfrnet prepare`: fine-tune a backbone for experiments by one of the recipes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.lists import numbers
from tfrnet.cli.opening import load
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from tfrnet.models.finetune import EpochRecord


def command(
    recipe: Annotated[
        str,
        typer.Option(
            help="smollm2-tasks, smollm2-tofu-full or -retain90 (question and answer), "
            "smollm2-tofu-chat-full, -retain90, -retain95 or -retain99 (the model's own chat "
            "template), smollm2-lume, smollm2-knowundo, gemma3-tasks, gemma3-tofu-full or "
            "-retain90."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder to create for the adapter or model.")],
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Write a full model with the adapter merged in."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="Base model.", show_default="the recipe's"),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Training epochs.", show_default="the recipe's")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate.", show_default="the recipe's")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Train on the first N examples only.", show_default="all"),
    ] = None,
    without: Annotated[
        str,
        typer.Option(
            help="Make an oracle: leave out everything that the streams of these seeds forget, as "
            "in 3,4,5. For smollm2-tasks, gemma3-tasks, smollm2-lume and smollm2-knowundo.",
            show_default="nothing",
        ),
    ] = "",
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    dtype: opt.Dtype = "float32",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    as_json: opt.AsJson = False,
) -> int:
    """Fine-tune a model with LoRA, so that it knows what the experiments will forget.

    Some adapters come with the package tfrnet-backbones, so --model smollm2-tasks needs no
    training; training one takes minutes on a GPU. The folder will hold the adapter in half
    precision (about 10 MB), training.json with settings, data digest and losses, and a model card.
    Any command loads it, merged into its base, with --model FOLDER.

    An oracle also has without.json, the digests of what it never saw.
    """
    from tfrnet.data.forgotten import forgotten_items
    from tfrnet.data.sources import Source
    from tfrnet.export.new_folder import refuse_unwritable
    from tfrnet_bench.backbones.recipes import find_recipe
    from tfrnet_bench.backbones.train import save_adapter, save_merged, train

    output = Output(as_json)
    chosen = find_recipe(recipe)
    options = chosen.options
    if epochs:
        options = replace(options, epochs=epochs)
    if learning_rate is not None:
        if not 0 < learning_rate < math.inf:
            raise InputError(
                f"--learning-rate must be a finite number above 0, but is {learning_rate:g}"
            )
        options = replace(options, learning_rate=learning_rate)
    refuse_unwritable(out)
    where = Source(source, data_dir)
    if model:
        # The adapter names its base, and is loaded from other folders too.
        base = str(Path(model).absolute()) if Path(model).is_dir() else model
        chosen = replace(chosen, base=base)
    seeds = numbers(without, "--without", "3,4,5")
    if without and not seeds:  # as of variables that are not set: "$FIRST,$SECOND"
        raise InputError(f"--without {without!r} names no seeds; write them as in 3,4,5")
    left_out = forgotten_items(seeds, where, chosen.streams) if seeds else None
    loaded = load(chosen.base, dtype, device, output, trust_remote_code=trust_remote_code)
    with output.progress(options.epochs, "epochs") as bar:

        def report(record: EpochRecord) -> None:
            bar.advance()
            output.say(f"epoch {record.epoch}: loss {record.loss:.4f}, {record.seconds:.0f} s")

        prepared = train(chosen, loaded, where, options, report, limit, left_out)
    if merge:
        save_merged(prepared, loaded.tokenizer, out)
    else:
        save_adapter(prepared, out)
    output.say(f"{'model' if merge else 'adapter'} written to {out}")
    output.result("prepare", {"out": str(out), "merged": merge} | prepared.log)
    return 0
