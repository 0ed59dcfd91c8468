# Each target sets up .venv by itself, and only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST_ARGS ?=
SEARCH_ARGS ?=
BENCHES ?= throughput smart evaluation turnover efficiency scale soup startup disk report board fault_campaign soak

.PHONY: search test test-cluster packages lint types bench clean
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

# Machines of their own, so not beside the other tests. Both files at once: they wait a lot.
CLUSTER_TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m cluster tests/cluster

# Three at once on two cores: searches spend half of their time waiting for processes to start.
test: lint types packages
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal -m 'not cluster' $(PYTEST_ARGS)
	$(if $(PYTEST_ARGS),,$(CLUSTER_TESTS))

test-cluster: $(DEV_READY) packages
	$(CLUSTER_TESTS)

# What some tests need of the system; without it they are skipped, with the reason.
packages:
	@.ci/packages

bench: $(DEV_READY)
	@for name in $(BENCHES); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
