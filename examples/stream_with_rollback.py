"""Apply requests one after another, take the last one back, and go on.

python examples/stream_with_rollback.py [--model NAME_OR_FOLDER] [--out FOLDER]
"""

import argparse
import json
from pathlib import Path

from tfrnet import Example, Request, Session, load_model

REQUESTS = [
    Request("ticket-1", (Example("The capital of Portugal is", "Lisbon"),)),
    Request("ticket-2", (Example("The author of Hamlet is", "William Shakespeare"),)),
    Request("ticket-3", (Example("The largest ocean is the", "Pacific"),)),
]
RETAIN = [
    Example("The capital of France is", "Paris"),
    Example("The capital of Japan is", "Tokyo"),
    Example("The capital of Italy is", "Rome"),
    Example("The author of War and Peace is", "Leo Tolstoy"),
    Example("The author of Pride and Prejudice is", "Jane Austen"),
    Example("The largest planet in the solar system is", "Jupiter"),
    Example("Water is made of hydrogen and", "oxygen"),
    Example("The opposite of hot is", "cold"),
]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", type=Path, default=Path("stream-state"))
    options = parser.parse_args(arguments)

    model, tokenizer = load_model(options.model)
    with Session(model, tokenizer, options.out, RETAIN, model_name=options.model) as session:
        # Stopped here and started again, it goes on with the requests that are not yet applied.
        for outcome in session.run(REQUESTS[:2]):
            print(f"{outcome.id}: {outcome.outcome}")
        session.rollback(1)  # ticket-2 is undone; the record of it stays
        for outcome in session.run(REQUESTS[2:]):
            print(f"{outcome.id}: {outcome.outcome}")
        applied = [request.id for request in REQUESTS if session.is_applied(request)]
    print("in force:", *applied)
    print("the ledger:")
    for line in (options.out / "ledger.jsonl").read_text().splitlines():
        entry = json.loads(line)
        print(f"  {entry['kind']} {entry.get('id', '')}")
    return applied


if __name__ == "__main__":
    main()
