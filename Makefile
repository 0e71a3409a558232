# Everything sets itself up: only Python 3.11 or newer and a package index are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help run test test-slow reference lint bench figures docs validate readme clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Rebuilt when the dependencies change. An old pip cannot read dependency groups.
$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "marconi-sim needs Python 3.11 or newer; make PYTHON=/path/to/python3.11 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (a minute or two, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

# Only what drives a real model needs it; on some systems it is several gigabytes.
$(VENV)/.models: $(VENV)/.installed
	@echo "installing torch and transformers"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group models
	@touch $@

run: $(VENV)/.installed ## replay SWE-agent sessions against a 40 GB cache under the Marconi policy
	@$(BIN)/marconi-sim run --trace swebench --policy marconi

test: lint $(VENV)/.models ## lint, types and the test suite
	@$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(VENV)/.models ## the whole suite, with 10,000 random traces per policy (about half an hour)
	@$(BIN)/python -m pytest -n 2

# Overflowing on purpose, a hash warns where it is not compiled.
reference: $(VENV)/.installed ## the suite without the JIT: catches what compiled code hides
	@NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n 2 -m "not slow and not compiled" -W "ignore:overflow encountered:RuntimeWarning"

lint: $(VENV)/.installed ## style and types
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary

bench: $(VENV)/.installed ## measure speed and memory; prints the table of the README
	@$(BIN)/python tests/bench.py

figures: $(VENV)/.installed ## draw every figure of the paper into figures/, from nothing, and print the paper's numbers beside ours
	@$(BIN)/marconi-sim figures --out figures
	@$(BIN)/marconi-sim paper --out figures

docs: $(VENV)/.installed ## put fresh figures and the table of the paper's numbers into docs/
	@$(BIN)/marconi-sim figures --out figures
	@$(BIN)/marconi-sim paper --out figures --into docs/paper.md
	@mkdir -p docs/figures && cp figures/*.png docs/figures/
	@$(BIN)/python docs/models_page.py

validate: $(VENV)/.models ## on real models (CPU): prove that reuse is exact, and compare measured with predicted TTFT
	@$(BIN)/marconi-sim validate-exact
	@$(BIN)/marconi-sim validate-ttft --out validation

readme: $(VENV)/.models ## put fresh output of every command and of the benchmark into README.md
	@$(BIN)/python tests/readme.py --write

clean: ## remove the environment, caches and compiled kernels
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name '__pycache__' -type d -prune -exec rm -rf {} +
