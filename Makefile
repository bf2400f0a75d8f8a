# Two commands do everything: `make demo` runs the main job, `make test` runs what CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint types layers unit wheel bench clean

help:
	@echo "make demo    install what the demo needs and run it (no torch)"
	@echo "make test    install what the tests need and run everything that CI runs"
	@echo "make quick   the fast part of it, for daily work"
	@echo "make bench   measure against the peers (minutes); results in docs/benchmarks.md"
	@echo "make clean   remove what the other targets made"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[demo]"
	touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) --editable ".[test,neural]"
	touch $@

demo: $(VENV)/.demo
	$(BIN)/mild demo

test: lint types layers unit wheel

quick: $(VENV)/.test lint types layers
	$(BIN)/python -m pytest -q -m "not slow" -x

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

layers: $(VENV)/.test
	$(BIN)/lint-imports

unit: $(VENV)/.test
	$(BIN)/python -m pytest -q

# The wheel is what users get: build it, install it into a clean environment, use it from elsewhere.
wheel: $(VENV)/.test
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd dist && ../.venv-wheel/bin/python ../tests/smoke_wheel.py
	rm -rf .venv-wheel

bench: $(VENV)/.test
	$(PIP) --editable ".[bench]"
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-wheel dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
