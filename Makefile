# Each target sets up .venv by itself, and only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST_ARGS ?=
SEARCH_ARGS ?=

.PHONY: search test lint types bench clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; a few minutes on a fresh machine)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@# For one parity test. Its own dependencies hold outdated NumPy stubs that would blind mypy.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--constraint constraints.txt smart-pytorch
	@touch $@

search: $(READY)
	$(BIN)/python -m tuner.search $(SEARCH_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

bench: $(READY)
	@for file in $(wildcard benchmarks/*.py); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
