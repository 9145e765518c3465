"""Apply the same request by two methods, and judge them by examples that neither saw.

python examples/compare_methods.py [--model NAME_OR_FOLDER] [--out FOLDER] [--methods tfr npo]
"""

import argparse
from pathlib import Path

from tfrnet import Example, Request, Session, load_model

REQUEST = Request(
    "ticket-1",
    (
        Example("The capital of Portugal is", "Lisbon"),
        Example("Portugal's capital city is", "Lisbon"),
    ),
)
RETAIN = [
    Example("The capital of France is", "Paris"),
    Example("The capital of Japan is", "Tokyo"),
    Example("The capital of Egypt is", "Cairo"),
    Example("Water is made of hydrogen and", "oxygen"),
    Example("The opposite of hot is", "cold"),
    Example("Bees make", "honey"),
]
# No step and no guard uses these.
HOLDOUT = [
    Example("The capital of Spain is", "Madrid"),
    Example("The capital of Italy is", "Rome"),
    Example("The first month of the year is", "January"),
]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", type=Path, default=Path("compared"))
    parser.add_argument("--methods", nargs="+", default=["tfr", "npo"])
    options = parser.parse_args(arguments)

    outcomes = {}
    for method in options.methods:
        model, tokenizer = load_model(options.model)
        state = options.out / method
        with Session(model, tokenizer, state, RETAIN, method=method, holdout=HOLDOUT) as session:
            outcomes[method] = session.forget(REQUEST)
    print(f"{'method':<12}{'forget loss':>20}{'hold-out loss':>20}")
    for method, outcome in outcomes.items():
        forget = f"{outcome.forget_loss_before:.2f} -> {outcome.forget_loss_after:.2f}"
        kept = f"{outcome.holdout['loss_before']:.2f} -> {outcome.holdout['loss_after']:.2f}"
        print(f"{method:<12}{forget:>20}{kept:>20}  {outcome.outcome}")
    return outcomes


if __name__ == "__main__":
    main()
