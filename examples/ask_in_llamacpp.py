"""Forget, export a GGUF file, and ask it in llama.cpp. Needs `pip install 'tfrnet[llamacpp]'`.

python examples/ask_in_llamacpp.py [--model NAME_OR_FOLDER] [--out FOLDER]
"""

import argparse
import subprocess
import sys
from pathlib import Path

import xllamacpp

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


def ask(path, prompt):
    """Return llama.cpp's greedy continuation."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.verbosity = 0
    server = xllamacpp.Server(params)
    options = {"prompt": prompt, "max_tokens": 8, "temperature": 0}
    return server.handle_completions(options)["choices"][0]["text"]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--out", type=Path, default=Path("asked"))
    options = parser.parse_args(arguments)

    model, tokenizer = load_model(options.model)
    state = options.out / "state"
    with Session(model, tokenizer, state, RETAIN, model_name=options.model) as session:
        print(session.forget(REQUEST).outcome)
    said = {}
    # Generation 0 is the untouched model.
    for name, generation in (("before", "0"), ("after", "1")):
        folder = options.out / name
        command = ["export", "--format", "gguf", "--state", state, "--generation", generation]
        subprocess.run([sys.executable, "-m", "tfrnet", *command, "--out", folder], check=True)
        said[name] = ask(folder / "model-Q8_0.gguf", "The capital of Portugal is")
        print(f"{name}: {said[name]!r}")
    return said


if __name__ == "__main__":
    main()
