# Every target makes its own virtual environment; nothing else has to be installed
# but Python 3.11+ and make. `make demo` and `make test` are the two to know.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.oasis-stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench soak reproduce-small clean

help:            ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "oasis needs Python 3.11 or newer, found $$($(PYTHON) --version); try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing oasis and its tools into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

setup: $(STAMP)  ## make the virtual environment

demo: $(STAMP)   ## run a stream through the system and look at it
	@$(BIN)/python -m oasis demo

test: $(STAMP)   ## run the tests
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto $(ARGS)

check: $(STAMP)  ## format, lint, types, import order
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## put the code into the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure speed and memory, as ratios
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(STAMP)   ## the long fault and load runs
	@$(BIN)/python -m pytest -m soak $(ARGS)

reproduce-small: $(STAMP) ## a reduced grid of experiments, and its report
	@$(BIN)/python -m oasis reproduce --dataset synthetic@1200,icons \
	  --method oasis-paper,oasis,fomh,lemon,itq,float-cosine,probe \
	  --bits 16,64 --seeds 1 --jobs 2 --out results/small
	@$(BIN)/python -m oasis report results/small --out results/small/report

clean:           ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
