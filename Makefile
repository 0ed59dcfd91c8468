# Each target sets up .venv by itself, and only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV_READY := $(VENV)/.dev-ready
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt
# On all cores, where pip would take one. Some packages hold files that no Python of today compiles.
COMPILE := $(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true
# $(call alive,COMMAND): with a dot every two seconds, as pip and compileall may say nothing for long.
# The dots end with the shell that runs the command, however it ends.
alive = (while sleep 2; kill -0 $$$$ 2> /dev/null; do printf .; done) & $(1); code=$$?; echo; exit $$code
PYTEST_ARGS ?=
SEARCH_ARGS ?=
BENCHES ?= throughput operations smart smart_terms evaluation turnover composition repeats scale soup startup silences neighbours disk report board simulated_faults fault_campaign soak

.PHONY: search test quick test-cluster packages lint types bench dist clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) with PyTorch, transformers, Ray, Optuna and what they need, in the versions"
	@echo "of constraints.txt (once; a few minutes on a fresh machine)"
	@$(call alive,test -x $(BIN)/python || $(PYTHON) -m venv $(VENV))
	@$(call alive,$(PIP) --editable '.[local]')
	@echo "compiling the packages, so that the first start is quick"
	@$(call alive,$(COMPILE))
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) with all that tests need (once; a few minutes on a fresh machine)"
	@$(call alive,test -x $(BIN)/python || $(PYTHON) -m venv $(VENV))
	@$(call alive,$(PIP) --editable '.[dev]')
	@# For one parity test. Its own dependencies hold outdated NumPy stubs that would blind mypy.
	@$(call alive,$(PIP) --no-deps smart-pytorch)
	@echo "compiling the packages, so that the first start is quick"
	@$(call alive,$(COMPILE))
	@touch $(READY) $@

search: $(READY)
	$(BIN)/python -m tuner.search $(SEARCH_ARGS)

lint: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_READY)
	$(BIN)/mypy

# $(call beside,TARGETS,COMMAND): the command, with the targets meanwhile. What they say comes last.
beside = log=$$(mktemp); $(MAKE) --no-print-directory --keep-going $(1) > $$log 2>&1 & \
	other=$$!; trap "kill $$other" INT TERM; $(2); code=$$?; wait $$other || code=1; \
	cat $$log; rm -f $$log; exit $$code
# Threads that wait sleep. Awake, as OpenMP has them, they take the cores of those that they wait for.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --no-loadscope-reorder --dist loadfile

# Everything. The clusters' tests mostly wait, so they run beside the others.
test:
	@$(MAKE) --no-print-directory --jobs $(DEV_READY) packages
	@$(MAKE) --no-print-directory lint
	$(call beside,types $(if $(PYTEST_ARGS),,test-cluster),$(PYTEST) -n 4 -m 'not cluster' $(PYTEST_ARGS))

# Before every commit: no searches, no runs that are killed, no clusters.
quick: lint
	$(call beside,types,$(PYTEST) -n 3 -m 'not slow and not cluster' $(PYTEST_ARGS))

# Machines of their own, made of namespaces. Both files at once: they wait a lot.
test-cluster: $(DEV_READY) packages
	$(PYTEST) -n 2 -m cluster tests/cluster

# What some tests need of the system; without it they are skipped, with the reason.
packages:
	@.ci/packages

bench: $(DEV_READY)
	@for name in $(BENCHES); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py || exit 1; done

# Wheel and source archive in dist/, looked at by the tools of an index. Uploads nothing.
dist:
	@rm -rf dist && test -x build/tools/bin/python || $(PYTHON) -m venv build/tools
	@build/tools/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt \
		build check-wheel-contents twine
	build/tools/bin/python -m build --outdir dist
	build/tools/bin/twine check --strict dist/*
	build/tools/bin/check-wheel-contents dist/*.whl

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
