# Every target makes what it needs. Paths are relative throughout: the tree may stand in a folder with a space in its name.

ifeq ($(OS),Windows_NT)
$(error Penstock runs on Linux and macOS; on Windows use it inside WSL)
endif

PYTHON ?= python3
PY := .venv/bin/python
STAMPS := .venv/.stamps
# Appended to the command of `test`, `test-long`, `demo` and the benches: make test ARGS="-k recovery -x"
ARGS ?=
# Two workers, whatever the machine: while one waits for a JVM to start the other works. `make test TWO_AT_A_TIME=` for one.
TWO_AT_A_TIME ?= -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## this list
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ---- what everything needs

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { echo "Penstock needs Python 3.11 or later: no $(PYTHON) found; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Penstock needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1): set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "Python's venv module is missing (on Debian: package python3-venv)" >&2; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

# Cython and setuptools first, so that the package is built with the versions pinned here and with nothing fetched aside.
# The compiled modules have a rule of their own: a change of one compiles it and installs nothing.
$(STAMPS)/packages: pyproject.toml constraints.txt $(STAMPS)/venv
	@echo "installing packages (about two minutes the first time)"
	@$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt setuptools cython
	@PENSTOCK_INTERPRETED=1 $(PY) -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,spark,payloads]'
	@touch $@

$(STAMPS)/kernels: setup.py $(wildcard src/penstock/*/*.py src/penstock/*/*.pxd src/penstock/*/*.h) $(STAMPS)/packages
	@for made in src/penstock/*/*.so; do [ -e "$${made%%.*}.py" ] || rm -f "$$made"; done  # its module is gone
	@$(PY) setup.py -q build_ext --inplace --parallel 2
	@if ls src/penstock/records/kernels.*.so >/dev/null 2>&1; then touch $@; fi  # without a compiler: once more next time

$(STAMPS)/java: tools/java.py $(STAMPS)/packages
	@$(PY) tools/java.py >/dev/null
	@touch $@

.PHONY: install
install: $(STAMPS)/kernels $(STAMPS)/java ## .venv with pinned packages, compiled kernels and a Java runtime
	@$(PY) -m compileall -q src  # as pip does where it installs: or each start compiles the source, where Python may keep nothing

.PHONY: judges
judges: $(STAMPS)/java ## Apache Kafka's jars and the other programs that judge the tests
	@$(PY) -m tools.fetch_judges

# ---- work

.PHONY: demo
demo: install ## the whole at work: broker, generator, pipeline on Spark, a proof, a picture
	@.venv/bin/penstock demo --picture .demo/throughput-and-lag.png $(ARGS)

.PHONY: test
test: install judges ## every test and every judge, small
	@$(PY) -m pytest -m "not long" $(TWO_AT_A_TIME) $(ARGS)

.PHONY: test-long
test-long: install judges ## the same with full counts, and the long tests
	@PENSTOCK_TEST_PROFILE=long $(PY) -m pytest $(TWO_AT_A_TIME) $(ARGS)

SEEDS ?= 1000
.PHONY: simulate
simulate: install ## clusters in one process, by seed: make simulate SEEDS=10000 FIRST=0
	@$(PY) -m tests.simulation $(or $(FIRST),0) $(SEEDS)

.PHONY: test-cluster
test-cluster: install judges ## real ZooKeeper and brokers, killed, paused and cut off under load
	@PENSTOCK_TEST_PROFILE=long $(PY) -m pytest tests/cluster $(ARGS)

.PHONY: check
check: install ## style, types, import contracts, documents in step
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports
	@$(PY) -m tools.check_docs

.PHONY: format
format: install ## rewrite the source in the house style
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

.PHONY: bench-storage
bench-storage: install judges ## the log beside cp, a dict and Apache Kafka, as ratios
	@$(PY) -m benchmarks.storage $(ARGS)

.PHONY: bench
bench: install judges ## one broker beside Apache Kafka, as ratios
	@$(PY) -m benchmarks.broker $(ARGS)

.PHONY: bench-transactions
bench-transactions: install judges ## transactions beside Apache Kafka, as ratios
	@$(PY) -m benchmarks.transactions $(ARGS)

.PHONY: bench-cluster
bench-cluster: install judges ## three brokers beside three of Apache Kafka, as ratios
	@$(PY) -m benchmarks.cluster $(ARGS)

.PHONY: bench-spark
bench-spark: install judges ## topics in Spark beside Spark's own connector, as ratios
	@$(PY) -m benchmarks.spark $(ARGS)

.PHONY: pins
pins: install ## what is installed, as constraints.txt wants it
	@$(PY) -m pip freeze --all --exclude-editable --exclude pip | LC_ALL=C sort -f

.PHONY: clean
clean: ## removes what was made here: .venv, builds, caches, judges, compiled kernels
	@rm -rf .venv build dist .judges .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests tools benchmarks -name __pycache__ -prune -exec rm -rf {} +
	@find src \( -name '*.so' -o -name '*.egg-info' \) -prune -exec rm -rf {} +
