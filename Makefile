# Everything starts here: `make demo` and `make test` set up what they need on a bare machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Small models on few cores run fastest as one process per core with one thread each.
export OMP_NUM_THREADS ?= 1

.PHONY: setup test slow lint demo bench results clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2

slow: $(READY)
	$(BIN)/pytest -n 2 -m slow

demo: $(READY)
	$(BIN)/vitascope compare --data digits --out demo

bench: $(READY)
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

results: $(READY)
	$(BIN)/python -m vitascope.report.results docs/records benchmarks/records docs/results.md

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache
