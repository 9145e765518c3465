"""What a release rests on: one version, dependencies with a lowest version, files that agree."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import tfrnet
from tools import release_check, versions

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ABOUT = PROJECT["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()


def test_code_and_changelog_say_one_version() -> None:
    found = versions.entries((ROOT / "CHANGELOG.md").read_text())
    assert found[0].version == tfrnet.__version__ == versions.version_of(ROOT)
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/tfrnet/core/__init__.py"
    # Only the first may be unreleased, and the newest comes first.
    days = [entry.released for entry in found[1:]]
    assert None not in days and days == sorted(days, reverse=True)


@pytest.mark.parametrize(
    ("tag", "changelog", "problem"),
    [
        ("v1.2.0", "## 1.2.0 (2026-11-17)\n", None),
        ("v1.3.0", "## 1.2.0 (2026-11-17)\n", "the tag is v1.3.0, but the code says 1.2.0"),
        ("v1.2.0", "## 1.1.0 (2026-11-17)\n", "the changelog begins with 1.1.0"),
        ("v1.2.0", "## 1.2.0 (unreleased)\n", "calls 1.2.0 unreleased"),
    ],
)
def test_a_tag_needs_a_version_with_a_date(tmp_path: Path, tag, changelog, problem) -> None:
    code = tmp_path / "src/tfrnet/core/__init__.py"
    code.parent.mkdir(parents=True)
    code.write_text('"""The base."""\n\n__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}")
    if problem is None:
        versions.ready_for(tag, tmp_path)
    else:
        with pytest.raises(SystemExit, match=re.escape(problem)):
            versions.ready_for(tag, tmp_path)


def test_an_entry_of_another_form_is_found() -> None:
    with pytest.raises(ValueError, match="'Next'"):
        versions.entries("# Changelog\n\n## Next\n")


def test_every_dependency_has_a_lowest_version_below_the_one_in_use() -> None:
    pins = release_check.lowest_versions(ROOT / "pyproject.toml")
    assert len(pins) == len(ABOUT["dependencies"])
    assert "transformers==5.0" in pins
    for text in ABOUT["dependencies"]:
        requirement = Requirement(text)
        used = importlib.metadata.version(requirement.name)
        assert requirement.specifier.contains(used), (text, used)


def test_every_python_that_is_promised_is_tested() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(ABOUT["classifiers"]))
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == promised
    assert promised[0] == str(SpecifierSet(ABOUT["requires-python"])).removeprefix(">=")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_what_exists(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    for target in re.findall(r"make ([\w-]+)", "\n".join(commands)):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target
    for module in re.findall(r"-m (tools\.\w+)", "\n".join(commands)):
        assert importlib.util.find_spec(module), module
    assert commands


def test_only_the_job_that_publishes_may_ask_for_an_identity() -> None:
    for workflow in WORKFLOWS:
        value = yaml.safe_load(workflow.read_text())
        assert value["permissions"] == {"contents": "read"}
        asking = [name for name, job in value["jobs"].items() if "permissions" in job]
        assert asking == (["publish"] if workflow.name == "release.yml" else [])


def test_every_extra_is_explained() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
    assert explained == set(ABOUT["optional-dependencies"])


def test_the_page_on_pypi_has_links_that_work_there(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "some/where")
    metadata: dict = {}
    build.Page(str(ROOT), {}).update(metadata)
    links = re.findall(r"\]\(([^)\s]+)\)", metadata["readme"]["text"])
    assert "https://git.example/some/where/blob/main/docs/security.md" in links
    assert "https://git.example/some/where/raw/main/docs/pictures/terminal.svg" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert metadata["urls"]["Issues"] == "https://git.example/some/where/issues"
    monkeypatch.delenv("GITHUB_REPOSITORY")
    build.Page(str(ROOT), {}).update(metadata)
    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text()
    assert metadata["urls"] == {}


def test_the_citation_is_complete() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "title", "message", "authors"} <= set(citation)
    assert citation["license"] == ABOUT["license"]
