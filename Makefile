# Two commands on a fresh machine: `make demo` and `make test`. Each does its own set-up in .venv and is safe to repeat.
.PHONY: test-full test-frameworks help setup demo test check lint types layers clean
# Which Python: PYTHON=/path/to/python3 (default: the distribution's own /usr/bin/python3, else python3).
export PYTHON
# Most tests wait for ranks that wait: five at a time keep two cores busy.
WORKERS ?= 5
# Ranks on a small machine: one thread each, or eight of them fight for two cores.
export OMP_NUM_THREADS ?= 1

help:
	@echo "make demo    hang one rank of a real 8-rank training and let hangdoctor name it"
	@echo "make test    set up, check style, types and layers, run all tests"
	@echo "make test-frameworks  hangs of other people's frameworks (installs them beside .venv)"
	@echo "make check   style, types and layers only"
	@echo "make setup   only make .venv"

setup:
	@scripts/setup

demo:
	@scripts/setup train
	@.venv/bin/hangdoctor demo

check: setup lint types layers

lint:
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .

types:
	@.venv/bin/mypy

layers:
	@.venv/bin/lint-imports --no-cache >/tmp/hangdoctor-layers.$$$$ 2>&1 || { cat /tmp/hangdoctor-layers.$$$$; rm -f /tmp/hangdoctor-layers.$$$$; exit 1; }; rm -f /tmp/hangdoctor-layers.$$$$

test: setup check
	@scripts/setup-slurm
	@scripts/setup-web
	@WORKERS=$(WORKERS) scripts/run-tests $(PYTEST_ARGS)

# Everything, also what `make test` leaves out to stay below 25 minutes.
test-full:
	@$(MAKE) test PYTEST_ARGS="-m ''"

# Hangs of accelerate, transformers, Lightning, ignite, JAX, mpi4py and torch's own parallel layers.
test-frameworks: setup
	@scripts/setup-frameworks
	@PYTHONPATH=$(CURDIR)/.frameworks/site-packages .venv/bin/python -m pytest -m '' tests/frameworks $(PYTEST_ARGS)

clean:
	rm -rf .frameworks .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
