"""What a request costs at real sizes, method by method, against what the machine allows.

    python -m benchmarks.scale --json FILE [--shapes 135m,1b,7b] [--lengths 128,256,...]
    python -m benchmarks.scale --json FILE --growth 1000 --growth-shape 135m

Models have random weights: nothing here depends on what they say. A request has 8 examples to
forget, 24 retain and 64 guard examples. Every method runs at 256 tokens; TFR-Net also compiled, and
with the paper's settings at every length, and on fewer channels. Seconds are the median of several
requests after the first; `own` leaves out losses that are measured for the record alone. The floor
is the larger of counted matrix operations over the measured matrix rate and of bytes over the
measured bandwidth: weights once per pass, and for trained ones gradients and the optimiser's state.
A case that is in the file is not run again. With `--left 24` another process holds all of the GPU's
memory but 24 GB, as if the card were that small; such results need a file of their own.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from benchmarks.scale_card import only_left
from benchmarks.scale_case import (
    ALL_CHANNELS,
    METHOD_LENGTH,
    OVER_LENGTHS,
    VARIANTS,
    Bench,
    Case,
    measure_case,
)
from benchmarks.scale_growth import measure_growth
from benchmarks.scale_rates import Rates, describe_machine, find_device, measure_rates
from benchmarks.scale_results import OUT_OF_MEMORY, Record, Results
from benchmarks.scale_shapes import SHAPES, build_model
from tfrnet import TFRConfig
from tfrnet.core.errors import InputError
from tfrnet.models.load import use_tensor_cores

CHANNELS = (ALL_CHANNELS, "down_proj", "q_proj+v_proj")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the file lacks; return 1 if a case failed for anything but memory."""
    options = _parse(arguments)
    device = find_device(options.device)
    with only_left(options.left, device) if options.left else nullcontext():
        return _measure(options, device)


def _measure(options: argparse.Namespace, device: torch.device) -> int:
    deadline = time.monotonic() + 60 * options.minutes
    use_tensor_cores(device.type)
    machine = describe_machine(device)
    if options.left:
        machine["left_bytes"] = int(options.left * 1e9)
    results = Results(options.json, machine)
    if options.growth:
        run_growth(results, options, device, deadline)
    else:
        cases = plan(
            options.shapes, options.methods, options.lengths, options.batch_size, options.channels
        )
        run_cases(results, cases, device, options.repeats, deadline)
        print("\n".join(table(results.cases)))
    results.save()
    for target in results.document["targets"]:
        print("{method}: {what}: {measured:.3g}, {target}, met: {met}".format(**target))
    return int(any(r.get("error", OUT_OF_MEMORY) != OUT_OF_MEMORY for r in results.cases))


def plan(
    shapes: Sequence[str],
    methods: Sequence[str],
    lengths: Sequence[int],
    batch_size: int | None,
    channels: Sequence[str] = CHANNELS,
) -> list[Case]:
    """Return the cases, those of a shape together: every method, then lengths, then channels."""
    cases = []
    for shape in shapes:
        cases += [Case(shape, name, METHOD_LENGTH, batch_size=batch_size) for name in methods]
        if OVER_LENGTHS in methods:
            over = [(length, ALL_CHANNELS) for length in lengths]
            over += [(METHOD_LENGTH, chosen) for chosen in channels]
            cases += [Case(shape, OVER_LENGTHS, *where, batch_size) for where in over]
    return list(dict.fromkeys(cases))


def run_cases(
    results: Results, cases: Sequence[Case], device: torch.device, repeats: int, deadline: float
) -> None:
    """Measure the cases that the file lacks, for as long as the clock is before the deadline."""
    missing = [case for case in cases if not results.is_finished(case)]
    if not missing:
        return
    rates = _rates(results, device)
    models = Models(device)
    for number, case in enumerate(missing):
        if time.monotonic() > deadline:
            print(f"out of time: {len(missing) - number} cases are left")
            break
        record = _attempt(case, models, rates, repeats)
        # Here, not where the error is caught: its traceback holds on to tensors.
        models.tidy(keep="error" not in record)
        results.add_case(case, record)
        print(line(results.cases[-1]), flush=True)


def run_growth(
    results: Results, options: argparse.Namespace, device: torch.device, deadline: float
) -> None:
    """Run the stream unless the file has it."""
    shape, preset = options.growth_shape, options.growth_preset
    asked = shape, options.growth, options.batch_size
    if results.has_stream(*asked, preset):
        print("the stream is in the file already")
    else:
        model = build_model(shape, device)
        results.add_stream(measure_growth(model, *asked, deadline, preset))
    stream = next(s for s in results.growth if (s["shape"], s["preset"]) == (shape, preset))
    print(f"{len(stream['requests'].get('seconds', ()))} requests on {stream['shape']}")
    for name, values in stream["summary"].items():
        first, last, ratio = values["first"], values["last"], values["ratio"]
        print(f"  {name:<18}{first:>14.5g} -> {last:>14.5g}   x {ratio:.3f}")


class Models:
    """The model of the shape at hand; only one is there at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._shape = ""
        self._model: Any = None

    def of_shape(self, shape: str) -> Any:
        """Return a model of a shape."""
        if shape != self._shape:
            self.tidy(keep=False)
            self._model, self._shape = build_model(shape, self._device), shape
        return self._model

    def tidy(self, keep: bool) -> None:
        """Free what a case has left; after an error nobody knows in what state the model is."""
        if not keep:
            self._model, self._shape = None, ""
        if self._device.type == "cuda":
            gc.collect()
            # Methods ask the driver how much is free, which does not see what torch holds back.
            torch.cuda.empty_cache()


def table(records: Sequence[Record]) -> list[str]:
    """Return all records for a person."""
    return [_HEAD, *(line(record) for record in records)]


_HEAD = (
    f"{'shape':<6}{'method':<15}{'tokens':>7} {'channels':<14}{'changes':>12}{'steps':>6}"
    f"{'seconds':>10}{'own':>10}{'floor':>10}{'rate':>7}{'scoring':>8}{'peak':>10}{'x':>6}{'state':>11}"
)


def line(record: Record) -> str:
    """Return one record for a person."""
    case = record["case"]
    start = f"{case['shape']:<6}{case['method']:<15}{case['length']:>7} {case['channels']:<14}"
    if "error" in record:
        return f"{start}  {record['error']}"
    changes = record.get("channels", record.get("trained_parameters"))
    scoring = record.get("scoring")
    share = f"{100 * scoring['needed_share_of_rate']:.1f} %" if scoring else ""
    return (
        f"{start}{changes:>12,}{record['gradient_steps']:>6}"
        f"{record['seconds']:>10.4g}{record['own_seconds']:>10.4g}"
        f"{record['floor']['seconds']:>10.4g}"
        f"{100 * record['share_of_rate']:>5.1f} %{share:>8}"
        f"{record['peak_bytes'] / 1e9:>7.2f} GB{record['peak_over_weights']:>6.2f}"
        f"{record['state_bytes'] / 1e6:>8.1f} MB"
    )


def _attempt(case: Case, models: Models, rates: Rates, repeats: int) -> Record:
    """Measure a case, or return what went wrong, so that the others go on."""
    try:
        return measure_case(case, Bench(models.of_shape(case.shape), rates, repeats))
    except Exception as error:
        # A single example that does not fit is reported in words of the package's own.
        too_much = isinstance(error, InputError) and "does not fit into the device's memory" in str(
            error
        )
        if too_much or isinstance(error, torch.OutOfMemoryError):
            return {"error": OUT_OF_MEMORY}
        return {"error": f"{type(error).__name__}: {error}"}


def _rates(results: Results, device: torch.device) -> Rates:
    rates, products = measure_rates(device)
    results.document["rates"] = {
        "matrix": rates.matrix,
        "bandwidth": rates.bandwidth,
        "products": products,
    }
    print(f"{rates.matrix / 1e12:.4g} T operations/s, {rates.bandwidth / 1e9:.4g} GB/s")
    return rates


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="results, kept and added to")
    parser.add_argument("--shapes", type=_names(SHAPES), default=["135m", "1b", "7b"])
    parser.add_argument("--methods", type=_names(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--lengths", type=_numbers, default=[128, 256, 512, 1024, 2048])
    parser.add_argument("--channels", type=_names(CHANNELS), default=list(CHANNELS))
    parser.add_argument("--batch-size", type=_batch_size, default=8, help="a number, or auto")
    parser.add_argument("--repeats", type=int, default=3, help="timed requests of a case")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--left", type=float, metavar="GB", help="leave only so much of the GPU")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--growth", type=int, default=0, help="run a stream of so many requests")
    parser.add_argument("--growth-shape", choices=list(SHAPES), default="135m")
    parser.add_argument(
        "--growth-preset",
        choices=list(TFRConfig.presets()),
        default="paper",
        help="the stream's settings",
    )
    return parser.parse_args(arguments)


def _names(known: Any) -> Any:
    def read(text: str) -> list[str]:
        return list(_known(text.split(","), known))

    return read


def _known(names: Sequence[str], known: Any) -> Iterator[str]:
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        yield name


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _batch_size(text: str) -> int | None:
    return None if text == "auto" else int(text)


if __name__ == "__main__":
    raise SystemExit(main())
