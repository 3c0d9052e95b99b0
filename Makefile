# make demo   a first replay: installs, makes a workload, compares rules and agents on 64 GPUs, writes out/report.html
# make test   checks and quick tests;  make test-slow  the long ones;  make lint  checks alone;  make clean
# Another interpreter: make PYTHON=/path/to/python3.12 ...

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
DEMO_POLICIES := fifo+topo-best-fit,easy+topo-best-fit,sjf+load-balance,sjf+topo-best-fit,sjf+topo-best-fit+hold(1.5,0.5),hrrn+topo-best-fit,user-fair+topo-best-fit,srtf+topo-best-fit,tuned,agents:full

.PHONY: setup demo lint test test-slow clean
.DELETE_ON_ERROR:

setup: $(STAMP)

# The stamp is older than what it was made from only when that changed, so a second run installs nothing.
$(STAMP): requirements.txt requirements-dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python of 3.11 or later found; name one: make PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

out/demo.parquet: | $(STAMP)
	@mkdir -p out
	$(BIN)/attn-sched traces synth --family helios --jobs 4000 --seed 0 --out $@

demo: setup out/demo.parquet
	$(BIN)/attn-sched compare out/demo.parquet --cluster dgx64 --policies "$(DEMO_POLICIES)" --loads 0.9 --windows 8 --later steady \
		--report out/report.html --png out/demo.png
	@echo "the report is out/report.html, its picture out/demo.png"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup lint
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow || [ $$? -eq 5 ] # 5: there are none

clean:
	rm -rf $(VENV) out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
