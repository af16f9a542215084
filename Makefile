# Every target makes its own virtual environment and installs there what it needs; nothing else
# has to be on the machine but Python 3.11+ and make. `make demo` and `make test` are the two to know.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

# pip compiles nothing here, so that `make demo` starts early; each module is compiled when it is first
# imported and kept. Where nothing is kept, every process of the tests compiles all libraries again.
unexport PYTHONDONTWRITEBYTECODE

# one stamp for each set of extras; `dev` holds `test`, which holds `demo`
DEV  := $(VENV)/.installed-dev
TEST := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.installed-test)
DEMO := $(if $(wildcard $(DEV) $(TEST)),$(TEST),$(VENV)/.installed-demo)

# ROOM=index: the tests and the doctests of one room; without it all of them
ROOM  ?=
WHERE := $(if $(ROOM),$(wildcard tests/$(ROOM) tests/test_$(ROOM).py src/oasis/$(ROOM) src/oasis/$(ROOM).py))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast room check format bench soak reproduce-small clean

help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(VENV)/.installed-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "oasis needs Python 3.11 or newer, found $$($(PYTHON) --version); try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing oasis with the extra '$*' into $(VENV), the first time only"
	@$(PIP) --editable '.[$*]'
	@touch $@

setup: $(DEV)    ## make the virtual environment with everything in it

demo: $(DEMO)    ## run a stream through the system and look at it
	@$(BIN)/python -m oasis demo

test: room $(DEV) ## run the tests; ROOM=index: of one room; ARGS: for pytest
	@$(PYTEST) -n auto $(WHERE) $(ARGS)

test-fast: room $(TEST) ## the quick part: starts no server, no browser and no other process
	@$(PYTEST) -n auto -m 'not scale and not slow' $(WHERE) $(ARGS)

room:
	@test -z '$(ROOM)' -o -n '$(WHERE)' || \
	  { echo "there is no room '$(ROOM)'; rooms: $(notdir $(patsubst %/,%,$(dir $(wildcard src/oasis/*/__init__.py))))"; exit 2; }

check: $(DEV)    ## format, lint, types, import order
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(DEV)   ## put the code into the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(DEV)    ## measure speed and memory, as ratios
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(DEV)     ## an hour of faults and load, and one table; ARGS='--minutes 10 --only disk,fork'
	@$(BIN)/python -m tests.soak $(ARGS)

reproduce-small: $(DEV) ## a reduced grid, its report, and a comparison with reports/small.jsonl
	@$(BIN)/python -m oasis reproduce studies/small.toml --jobs 2 --out results/small
	@$(BIN)/python -m oasis report results/small --out results/small/report
	@$(BIN)/python -m oasis report --compare reports/small.jsonl results/small

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
