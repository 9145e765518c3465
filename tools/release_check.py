"""Can this tree be released? Builds it, installs the wheels alone, and tries them.

    python -m tools.release_check              # what `make release-check` runs; needs the network
    python -m tools.release_check --tag v0.1.0 # also: is this version ready for this tag?

The wheel is installed twice in an empty environment: with the lowest versions that pyproject.toml
allows, and with the newest. Each time `tools.smoke_test` must pass. torch stays at the version of
constraints.txt among the newest, which keeps pip from choosing a build for other hardware.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

from tools.versions import ready_for

ROOT = Path(__file__).parents[1]
PROJECTS = (ROOT, ROOT / "packages" / "backbones")
_LARGEST = 2 * 2**20  # bytes of tfrnet's own files: code and a few texts


def main() -> None:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", help="the tag to be published, such as v0.1.0")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for what is built")
    options = parser.parse_args()
    if options.tag:
        ready_for(options.tag, ROOT)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wheels = [wheel for project in PROJECTS for wheel in build(project, options.out)]
        lowest = work / "lowest.txt"
        lowest.write_text("\n".join(lowest_versions(ROOT / "pyproject.toml")) + "\n")
        for title, constraints in (("lowest", lowest), ("newest", ROOT / "constraints.txt")):
            print(f"== the {title} dependencies", flush=True)
            python = install(wheels, constraints, work / title)
            _run([python, "-m", "tools.smoke_test"])


def build(project: Path, out: Path) -> list[Path]:
    """Build a project's sdist, and its wheel from that; return the wheel."""
    _run([sys.executable, "-m", "build", "--quiet", "--outdir", out, project])
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    stem = about["name"].replace("-", "_")
    wheels = sorted(out.glob(f"{stem}-*.whl"), key=lambda path: path.stat().st_mtime)
    for path in (wheels[-1], *out.glob(f"{stem}-*.tar.gz")):
        if project == ROOT and path.stat().st_size > _LARGEST:
            sys.exit(f"{path.name} has {path.stat().st_size:,} bytes: what does not belong there?")
    return wheels[-1:]


def lowest_versions(project: Path) -> list[str]:
    """Return constraints that hold every direct dependency at its lowest version."""
    pins = []
    for text in tomllib.loads(project.read_text())["project"]["dependencies"]:
        requirement = Requirement(text)
        (lowest,) = (part.version for part in requirement.specifier if part.operator == ">=")
        pins.append(f"{requirement.name}=={lowest}")
    return pins


def install(wheels: list[Path], constraints: Path, folder: Path) -> Path:
    """Install wheels in a new environment, and return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run([python, "-m", "pip", "install", "--quiet", "--constraint", constraints, *wheels])
    _run([python, "-m", "pip", "check"])
    return python


def _run(command: list[object]) -> None:
    # Nothing of the environment that runs the check may help.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, check=False)
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}")


if __name__ == "__main__":
    main()
