# Everything starts here: `make demo` and `make test` set up what they need on a bare machine.
# `make demo` installs the package alone, `make test` the test tools too; both into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.ready-run
READY := $(VENV)/.ready

# Small models on few cores run fastest as one process per core with one thread each.
export OMP_NUM_THREADS ?= 1
# Compiled once, not by every process that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup lock test portable coverage slow cluster lint browser demo bench studies results figures docs wheel clean
.NOTPARALLEL:

# What the tests need, and all extras.
setup: $(READY)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(PIP) -e .
	@touch $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip $(PIP) -e '.[test]'
	@touch $(INSTALLED) $@

# Pin every package that `make setup` installs. Pins that are there stay: delete a line of
# constraints.txt, or give it another version, to move a package. From 25.3 on pip reads what
# packages ask for without downloading them.
lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip $(PIP) 'pip>=25.3'
	build/lock/bin/python -m pip $(PIP) --dry-run --report build/lock/report.json '.[test]'
	$(PYTHON) scripts/lock.py build/lock/report.json constraints.txt

LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

lint: $(READY)
	$(LINT)

# The tests open pages in a real browser: any of these, or the one that CHROMIUM names.
BROWSERS := chromium chromium-browser google-chrome
APT := apt-get -qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3

browser:
	@for name in $$CHROMIUM $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ]; then as="env"; else as="sudo -n env"; fi; \
	as="$$as DEBIAN_FRONTEND=noninteractive"; \
	command -v apt-get >/dev/null && $$as true 2>/dev/null \
	&& echo "No Chromium here: installing Debian's." && { $$as $(APT) update || true; } \
	&& $$as $(APT) install -y --no-install-recommends chromium >/dev/null \
	&& command -v chromium >/dev/null \
	|| { echo "The tests need Chromium: install it (on Debian, as root: apt-get install chromium)" \
	     "or run: make test CHROMIUM=/path/to/chrome" >&2; exit 1; }

# A file goes to one worker as a whole: what its tests share is made once. In their order the files
# end with the short ones of docstrings, so that both workers end together. Lint and types, which
# use one core, are checked beside the first tests; a failure of either is a failure of all.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY) browser
	@($(LINT)) & lint=$$!; \
	$(PYTEST); tests=$$?; \
	wait $$lint && exit $$tests

# The tests three times more, rounded as on other CPUs and on two threads. Noise in the last bits
# of sums and products (tests/rounding_noise.py) is another each time. Each setting changes bits,
# too: ATen's vectorised kernels (sums, softmax), MKL's products and solvers behind torch,
# OpenBLAS's behind numpy and scipy, oneDNN's convolutions.
portable: export ATEN_CPU_CAPABILITY = default
portable: export MKL_CBWR = COMPATIBLE
portable: export OPENBLAS_CORETYPE = Nehalem
portable: export ONEDNN_MAX_CPU_ISA = SSE41
portable: export OMP_NUM_THREADS = 2
# A thread that waits sleeps: two workers of two threads on two cores would spin against each other.
portable: export OMP_WAIT_POLICY = PASSIVE
portable: $(READY) browser
	for seed in 1 2 3; do $(PYTEST) --rounding-noise $$seed || exit 1; done

# The checks that take minutes, instead of those of `make test`: a whole comparison, the page of a
# large model, the long fuzz runs.
slow: $(READY)
	$(BIN)/pytest -n 2 -m slow

# A real SLURM on this machine, started and stopped by the tests: Debian's packages, as root.
cluster: $(READY)
	@command -v slurmctld munged >/dev/null || { \
		echo "Installing Debian's slurm-wlm and munge."; $(APT) update || true; \
		DEBIAN_FRONTEND=noninteractive $(APT) install -y --no-install-recommends slurm-wlm munge \
		>/dev/null; }
	$(BIN)/pytest -m cluster tests/test_cluster.py

# Which lines and branches of src/ the tests of `make test` run, and which test runs which line
# (.coverage, for scripts/mutants.py). Commands that tests start in processes of their own count.
coverage: $(READY) browser
	$(PYTEST) --cov --cov-context=test --cov-report=
	$(BIN)/coverage report --skip-covered --sort=cover

demo: $(INSTALLED)
	$(BIN)/vitascope compare --data digits --epochs 20 --rates vit_micro=4e-3 --out demo

bench: $(READY)
	for subject in capture corruptions gpsa growth hessian inspect neighborhood training; do \
		$(BIN)/python -m benchmarks $$subject || exit 1; done

# Every table and figure of the papers that fits two cores; about an hour.
studies: $(READY)
	$(BIN)/vitascope study --all --scale laptop --out runs/studies

results: $(READY)
	PYTHONPATH=. $(BIN)/python scripts/make_results.py docs/records/desk docs/records/studies docs/records benchmarks/records docs/results

figures: $(READY)
	$(BIN)/python scripts/make_figures.py $(RUNS)
	$(BIN)/python scripts/make_result_figures.py

# The documentation site, build/site/index.html: a broken link or code that does not run is an error.
# The API reference is made by the build, and the notebooks are run (again only when they change).
docs: $(READY)
	$(BIN)/pytest tests/test_docs.py tests/test_readme.py
	$(BIN)/python scripts/make_architecture.py
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going docs build/site
	@echo build/site/index.html

# The packages that are released, dist/*, and what is in them.
wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	$(BIN)/python -m build --quiet --sdist --no-isolation
	$(BIN)/pytest -m slow tests/test_wheel.py

clean:
	rm -rf $(VENV) demo build dist docs/api .pytest_cache .mypy_cache .ruff_cache
