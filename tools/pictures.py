"""Make the pictures of the documents again: the demo, a state's page, the dashboard.

All but mask.svg, a drawing made by hand.

    python -m tools.pictures                 # runs the demo first, minutes
    python -m tools.pictures --demo FOLDER   # a folder in which 'tfrnet demo > said.txt' was run

Needs chromium. What is shown is what the programs print and serve.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tfrnet.demo.corpus import Fact, load_facts, split
from tfrnet.evaluation.ranking import rank
from tfrnet.method_state import apply_state
from tfrnet.models.load import LoadedModel, load_model

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
TFRNET = Path(sys.executable).with_name("tfrnet")
LARGEST = 150_000  # bytes
_COLUMNS = 120
_SIZE = {"width": 1280, "height": 800}
_REQUEST = {
    "id": "ticket-6",
    "examples": [{"prompt": "The capital of Kenya is", "answer": "Nairobi"}],
}


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", type=Path, help="folder of an earlier demo")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if options.demo:
            shutil.copytree(options.demo / "tfrnet-demo", work / "tfrnet-demo")
            said = (options.demo / "said.txt").read_text()
        else:
            said = _tfrnet(work, "demo")
        draw_terminal("tfrnet demo", excerpt(said), PICTURES / "terminal.svg")
        _save((work / "tfrnet-demo" / "trajectory.png").read_bytes(), PICTURES / "trajectory.png")
        draw_facts(work / "tfrnet-demo", PICTURES / "facts.png")
        _tfrnet(work, "report", "tfrnet-demo/state", "--out", "report.html")
        with browser() as page:
            page.goto((work / "report.html").as_uri())
            heading = page.get_by_role("heading", name="Requests", exact=True)
            heading.evaluate("heading => heading.scrollIntoView()")
            _save(page.screenshot(), PICTURES / "report.png")
            with serving(work) as address:
                page.goto(address)
                page.locator("#live", has_text="live").wait_for(timeout=60_000)
                page.locator("#audit").wait_for()
                _save(page.screenshot(), PICTURES / "dashboard.png")
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
        if path.stat().st_size > LARGEST:
            sys.exit(f"{path.name} is larger than {LARGEST:,} bytes")


def excerpt(said: str) -> str:
    """Return what the demo printed up to its first request, and from the last to the answers."""
    lines = said.splitlines()
    second = next(number for number, line in enumerate(lines) if "-2: " in line)
    last = max(number for number, line in enumerate(lines) if line.startswith("ranked right"))
    end = next(number for number, line in enumerate(lines) if line.startswith("three of"))
    return "\n".join([*lines[:second], "...", *lines[last:end]])


def draw_facts(demo: Path, path: Path) -> None:
    """Draw how unlikely the right answer to each of the demo's facts was before, and is after."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    asked = {line["prompt"] for line in _examples(demo / "requests.jsonl")}
    facts = load_facts()
    topic = next(fact.topic for fact in facts if fact.prompt in asked)
    parts = split(facts, topic, requests=3)
    if {fact.prompt for fact in parts.forgotten} != asked:
        sys.exit(f"{demo} is not the demo that is run without options")
    loaded = load_model("smollm2-135m")
    groups = {
        "kept, other topics": (parts.others, "0.6", 10),
        f"kept, about {topic}": (parts.same_topic, "tab:blue", 20),
        "to forget": (parts.forgotten, "tab:red", 20),
    }
    before = {name: _nats(loaded, facts) for name, (facts, _, _) in groups.items()}
    with apply_state(loaded.model, demo / "state", tokenizer=loaded.tokenizer):
        after = {name: _nats(loaded, facts) for name, (facts, _, _) in groups.items()}
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, (_, colour, size) in groups.items():
        axes.scatter(before[name], after[name], s=size, color=colour, label=name)
    axes.axline((0, 0), slope=1, color="0.8", linewidth=1, zorder=0)
    axes.set(xlabel="nats before", ylabel="nats after", title="how unlikely the right answer is")
    axes.legend(loc="upper right")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=130)
    plt.close(figure)
    _save(drawn.getvalue(), path)


def _examples(requests: Path) -> Iterator[dict[str, str]]:
    for line in requests.read_text().splitlines():
        yield from json.loads(line)["examples"]


def _nats(loaded: LoadedModel, facts: list[Fact]) -> list[float]:
    rankings = rank(*loaded, [fact.question() for fact in facts], batch_size=32)
    return [-ranking.log_likelihoods[ranking.gold] for ranking in rankings]


def draw_terminal(command: str, said: str, path: Path) -> None:
    """Draw a command and what it printed as a terminal shows them."""
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    for line in (f"$ {command}", *said.rstrip().splitlines()):
        console.print(Text.from_ansi(line), highlight=False)
    # The usual form loads a font from the network.
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    path.write_text(console.export_svg(title="tfrnet", code_format=form, unique_id="demo"))


@contextmanager
def browser() -> Iterator[Any]:
    """Open a page of a browser without a window."""
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened.new_page(viewport=_SIZE)
        opened.close()


def _save(png: bytes, path: Path) -> None:
    """Save a picture in 128 colours, which takes a third of the bytes."""
    picture = Image.open(io.BytesIO(png))
    picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


@contextmanager
def serving(work: Path) -> Iterator[str]:
    """Serve the demo's state, apply one request over HTTP, and yield the service's address."""
    data = ["--state", "tfrnet-demo/state", "--retain", "tfrnet-demo/retain.jsonl"]
    command = [TFRNET, "serve", *data, "--port", "0"]
    process = subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        address = _address(process.stdout)
        with httpx.Client(base_url=address, timeout=60) as client:
            client.post("/v1/requests", json=_REQUEST).raise_for_status()
            while client.get(f"/v1/requests/{_REQUEST['id']}").json()["state"] in (
                "pending",
                "in_progress",
            ):
                time.sleep(1)
        yield address
    finally:
        process.terminate()
        process.wait()


def _address(said: IO[str]) -> str:
    """Return the address that the service prints once it listens."""
    for line in said:
        if line.startswith("dashboard"):
            return line.split()[1].rstrip("/")
    sys.exit("the service ended")


def _tfrnet(work: Path, *arguments: str) -> str:
    done = subprocess.run(
        [TFRNET, *arguments], cwd=work, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"failed: tfrnet {' '.join(arguments)}")
    return done.stdout


if __name__ == "__main__":
    main()
