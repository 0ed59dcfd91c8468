# Each target sets up .venv by itself, and only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST_ARGS ?=
SEARCH_ARGS ?=

.PHONY: search test test-cluster lint types bench clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; a few minutes on a fresh machine)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[local]'
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) with all that tests need (once; a few minutes on a fresh machine)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[dev]'
	@# For one parity test. Its own dependencies hold outdated NumPy stubs that would blind mypy.
	@$(PIP) --no-deps smart-pytorch
	@touch $(READY) $@

search: $(READY)
	$(BIN)/python -m tuner.search $(SEARCH_ARGS)

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_READY)
	$(BIN)/mypy

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal -m 'not cluster' $(PYTEST_ARGS)

# Several machines each, so one after the other. Needs root and Debian's openssh-server, rsync and
# iproute2; without them the tests are skipped, with the reason.
test-cluster: $(DEV_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 -m cluster tests/cluster

bench: $(DEV_READY)
	@for file in $$(grep -l __main__ benchmarks/*.py); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
