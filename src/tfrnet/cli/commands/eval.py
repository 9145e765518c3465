"""`tfrnet eval`: what a model knows, leaks and reveals under attack."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.evaluation import show_results
from tfrnet.cli.lists import names, numbers
from tfrnet.cli.opening import load, model_name
from tfrnet.cli.output import Output
from tfrnet.cli.sharing import shared
from tfrnet.core.errors import InputError
from tfrnet.data.tasks import task_names
from tfrnet.evaluation.attacking.attack import ATTACKS

if TYPE_CHECKING:
    from tfrnet.core.effect import Effect
    from tfrnet.data.protocol import Split
    from tfrnet.data.requests import Request
    from tfrnet.evaluation.plan import Plan
    from tfrnet.models.load import LoadedModel
    from tfrnet.state.store import StateStore


@shared
def command(
    tasks: Annotated[
        str,
        typer.Option(
            help=f"Separated by commas: {', '.join(task_names())}, tofu, privacy, robustness "
            "(attacks on a state), stream (a state request by request, its scores and side "
            "effects). "
            "arithmetic:2da+3ds selects some of 1dc 2da 2ds 2dm 3da 3ds 4da 4ds 5da 5ds."
        ),
    ],
    model: opt.Model = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Evaluate the model as unlearned by this state. Default: the untouched model.",
            show_default=False,
        ),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="Generation of the state to use.", show_default="the current one"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help="Items per task or TOFU set. Default: 100 per task, and all rows of TOFU.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Evaluate every item.")] = False,
    items: Annotated[
        str,
        typer.Option(help="sample: drawn by --seed; first: in file order, like lm-eval's limit."),
    ] = "sample",
    seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    split: Annotated[
        Path | None,
        typer.Option(
            help="Evaluate the forgotten and held-out items of a folder made by 'tfrnet split'.",
            show_default=False,
        ),
    ] = None,
    forgotten: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines file of requests; refuse to evaluate on any of their examples.",
            show_default=False,
        ),
    ] = None,
    oracle: Annotated[
        str | None,
        typer.Option(
            help="Model that never saw the forget data, for Forget Quality, PrivLeak and a "
            "stream's distance to it.",
            show_default=False,
        ),
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Attacks for the task robustness, separated by commas. Default: all that fit the "
            f"method, of {', '.join(ATTACKS.names())}.",
            show_default=False,
        ),
    ] = None,
    relearn_steps: Annotated[
        str, typer.Option(help="Steps after which relearning is measured.")
    ] = "0,5,10,20,40,80",
    relearn_seeds: Annotated[int, typer.Option(min=1, help="Relearning runs to average.")] = 3,
    shots: Annotated[int, typer.Option(min=0, help="Few-shot examples before each question.")] = 0,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=16, help="Longest prompt with answer, in tokens; by default 256, for LUME 512."
        ),
    ] = None,
    truncation: Annotated[
        str,
        typer.Option(
            help="How long prompts are cut. passage_left: at the start of the passage, never in "
            "the question; lm_eval: as lm-evaluation-harness does."
        ),
    ] = "passage_left",
    mutual_info: Annotated[
        bool,
        typer.Option(
            "--mutual-info",
            help="Also rank choices by how much the prompt raises their likelihood.",
        ),
    ] = False,
    tofu_template: Annotated[
        str,
        typer.Option(
            help="Form of TOFU's prompts: qa ('Question: ... Answer: ') or chat (the tokenizer's)."
        ),
    ] = "qa",
    tofu_boundary: Annotated[
        str,
        typer.Option(
            help="First scored token of an answer: open-unlearning (the first after the tokens of "
            "the prompt alone, as OpenUnlearning does) or answer (always the answer's first)."
        ),
    ] = "open-unlearning",
    tofu_forget: Annotated[
        str, typer.Option(help="TOFU's forget set: 01, 05 or 10 (2, 10 or 20 authors).")
    ] = "10",
    tofu_paraphrased: Annotated[
        bool, typer.Option("--tofu-paraphrased", help="Use TOFU's paraphrased questions.")
    ] = False,
    es_compat: Annotated[
        bool,
        typer.Option(
            "--es-compat", help="Compute extraction strength exactly as OpenUnlearning does."
        ),
    ] = False,
    min_k: Annotated[
        float, typer.Option(help="Share of tokens that Min-K% and Min-K%++ use.")
    ] = 0.4,
    gradient_norm: Annotated[
        bool,
        typer.Option(
            "--gradient-norm",
            help="Add the white-box attack by gradient norm to privacy; it takes one backward "
            "pass per answer.",
        ),
    ] = False,
    truth_ratio: Annotated[
        str,
        typer.Option(
            help="Form of the truth ratio: geometric (OpenUnlearning), arithmetic or probability."
        ),
    ] = "geometric",
    data_dir: opt.DataDir = None,
    source: opt.DataSource = "auto",
    samples: Annotated[
        Path | None,
        typer.Option(
            help="JSON Lines file to write with the results of every item.", show_default=False
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not read or write cached model outputs.")
    ] = False,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    batch_size: Annotated[
        int,
        typer.Option(min=1, help="Sequences per forward pass. Affects results only by rounding."),
    ] = 16,
    as_json: opt.AsJson = False,
) -> int:
    """Evaluate a model, untouched or as unlearned by a state.

    BoolQ and OpenBookQA are scored by ranking the choices as in lm-evaluation-harness, arithmetic
    by generation, TOFU and privacy as in OpenUnlearning; robustness attacks the model. Every figure
    comes with its sample count, its standard error and a chance baseline. Model outputs are cached
    under a digest of weights, mask and inputs, so a second evaluation is fast and never stale.

    Examples:

      tfrnet eval --tasks boolq,openbookqa,arithmetic --data-dir data --limit 100

      tfrnet eval --state tfrnet-state --split stream --tasks boolq,arithmetic,robustness

      accelerate launch -m tfrnet eval --tasks boolq --data-dir data --full
    """
    from tfrnet import method_state
    from tfrnet.core.versions import versions
    from tfrnet.data.examples import Truncation
    from tfrnet.data.requests import read_requests
    from tfrnet.data.sources import Source
    from tfrnet.data.split_files import read_split
    from tfrnet.data.tofu import SIZES, Boundary, Template
    from tfrnet.distributed.launch import joined_team
    from tfrnet.distributed.together import load_together
    from tfrnet.evaluation.attacking.subject import AttackOptions
    from tfrnet.evaluation.cache import Cache
    from tfrnet.evaluation.evaluator import Evaluator
    from tfrnet.evaluation.metrics.tofu_scores import TruthRatio
    from tfrnet.evaluation.plan import Options, make_plan
    from tfrnet.evaluation.robustness import attacks_that_fit, check_attacks
    from tfrnet.evaluation.stream import stream_entries
    from tfrnet.evaluation.suite import compare, measure, measure_oracle
    from tfrnet.evaluation.tofu import TofuOptions
    from tfrnet.masking.digest import model_digest

    output = Output(as_json)
    with joined_team(device, led=False) as (team, own_device), team.together():
        store = _open_state(state, generation)
        has_mask = store is None or method_state.has_mask(store)
        options = Options(
            tasks=names(tasks),
            limit=limit,
            full=full,
            items=_one_of("items", items, ("sample", "first")),
            seed=seed,
            shots=shots,
            max_length=max_length,
            mutual_info=mutual_info,
            truncation=_one_of("truncation", truncation, get_args(Truncation)),
            tofu=TofuOptions(
                template=_one_of("tofu-template", tofu_template, get_args(Template)),
                boundary=_one_of("tofu-boundary", tofu_boundary, get_args(Boundary)),
                truth_ratio=_one_of("truth-ratio", truth_ratio, get_args(TruthRatio)),
                es_compat=es_compat,
                paraphrased_questions=tofu_paraphrased,
                forget=_one_of("tofu-forget", tofu_forget, SIZES),
            ),
            min_k=min_k,
            gradient_norm=gradient_norm,
            attacks=attacks_that_fit(has_mask) if attacks is None else names(attacks),
            attack=AttackOptions(
                limit=limit,
                relearn_steps=numbers(relearn_steps, "--relearn-steps", "0,5,10"),
                relearn_seeds=relearn_seeds,
                dormant_threshold=method_state.dormant_threshold_of(store)
                if store and has_mask
                else AttackOptions.dormant_threshold,
            ),
        )
        for name in ("robustness", "stream"):
            if name in options.tasks and state is None:
                raise InputError(
                    f"{name} evaluates what a state made a model forget; give --state FOLDER"
                )
        where = Source(source, data_dir)
        requests = read_requests(forgotten) if forgotten else []
        plan = make_plan(options, where, read_split(split, where) if split else None, requests)
        _refuse_forgotten(requests, plan)
        known_state = _describe_state(store, generation)
        if "robustness" in options.tasks:
            _refuse_unexportable(store)
            check_attacks(options.attacks, has_mask)
        if store and plan.split and "stream" in options.tasks:
            stream_entries(store, plan.split)
            _refuse_knowing_oracle(oracle, plan.split, output)
        if samples:
            _check_writable(samples)
        start = time.perf_counter()
        name = model_name(model, store)
        reference = None
        with output.progress(plan.steps(), "prompts") as bar:

            def evaluator(which: str, its_dtype: str) -> Evaluator:
                cache = None if no_cache else Cache()
                loaded = load_together(
                    team,
                    lambda: load(
                        *(which, its_dtype, own_device, output),
                        trust_remote_code=trust_remote_code,
                    ),
                )
                return Evaluator(loaded, batch_size, cache, bar.advance, team)

            if oracle:
                # First and on its own, so that two models are never in memory together.
                reference = measure_oracle(evaluator(oracle, dtype), plan, bar.stage)
            asked = evaluator(name, store.manifest.dtype(dtype) if store else dtype)
            with _applied(asked.loaded, store, generation) as effect:
                digest = model_digest(asked.loaded.model)
                found = measure(asked, plan, effect, bar.stage, store)
        compared = compare(found, reference)
        if samples and team.leads:
            _write_lines(samples, found.samples())
        show_results(output, compared)
        output.result(
            "eval",
            {
                "model": name,
                "model_digest": digest,
                "state": known_state,
                "oracle": oracle,
                "split": str(split) if split else None,
                "options": dataclasses.asdict(plan.options),
                "versions": versions("peft", "scipy", "scikit-learn", "rouge-score"),
                "results": compared.results,
                "missing": compared.missing,
                "cached": asked.hits,
                "seconds": round(time.perf_counter() - start, 2),
            },
        )
        return 0


def _one_of(option: str, value: str, choices: Iterable[str]) -> Any:
    if value not in (known := tuple(choices)):
        raise InputError(f"--{option} must be {' or '.join(known)}, not {value!r}")
    return value


def _refuse_forgotten(requests: Sequence[Request], plan: Plan) -> None:
    from tfrnet.data.requests import refuse_overlap

    for part in plan.parts:
        if part.name != "forget":
            label = f"evaluation set of {part.task.name}"
            refuse_overlap(requests, [item.example() for item in part.plain], label)


def _refuse_knowing_oracle(oracle: str | None, split: Split, output: Output) -> None:
    """Refuse an oracle that was trained on what the stream forgets, as far as it says so."""
    if oracle is None:
        return
    from tfrnet.data.forgotten import FILE, read_forgotten
    from tfrnet.models.shipped import find_shipped

    folder = find_shipped(oracle) or Path(oracle)
    if not (folder / FILE).is_file():
        output.note(f"{oracle} does not say what it was trained without, so that is not checked")
    elif known := read_forgotten(folder).missing(split):
        raise InputError(
            f"the oracle {oracle} may have been trained on {known} of the {len(split.forget)} "
            "items that the stream forgets; make one with 'tfrnet prepare --without SEEDS'"
        )


def _open_state(state: Path | None, generation: int | None) -> StateStore | None:
    """Open the state, so that a missing or damaged one is found before the model is loaded."""
    if state is None:
        if generation is not None:
            raise InputError("--generation needs --state FOLDER")
        return None
    from tfrnet.state.store import StateStore

    store = StateStore.open(state)
    store.load(generation)
    return store


def _refuse_unexportable(store: StateStore | None) -> None:
    from tfrnet.method import find_method

    method = find_method(store.manifest.method) if store else None
    if method and not method.exportable:
        raise InputError(
            f"robustness attacks an exported model, and a state of {method.method} cannot be "
            f"exported: {method.why_not_exportable}"
        )


def _describe_state(store: StateStore | None, generation: int | None) -> dict[str, Any] | None:
    if store is None:
        return None
    number = store.generation if generation is None else generation
    return {
        "folder": str(store.layout.folder),
        "generation": number,
        "digest": store.digest_of(number),
    }


@contextmanager
def _applied(
    loaded: LoadedModel, store: StateStore | None, generation: int | None
) -> Iterator[Effect | None]:
    if store is None:
        yield None
        return
    from tfrnet.method_state import apply_state

    with apply_state(loaded.model, store, generation, loaded.tokenizer) as effect:
        yield effect


def _check_writable(path: Path) -> None:
    """Fail before the work, not after it, if its result cannot be written."""
    try:
        path.open("a").close()
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    try:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
