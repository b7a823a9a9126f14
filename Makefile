# Entry points for working with this checkout; `make` alone lists them.
# Extra arguments: `make up ARGS="--data /srv/terrarium"`, `make test ARGS="-k outbox -q"`.
# `make up MODEL=small` downloads a better model once and uses it (docs/models.md).

VENV := .venv
BIN := $(VENV)/bin
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3
ARGS :=
MODEL :=
REPOSITORY :=
# Do not pass ARGS and MODEL on to nested makes: a test of the README runs make.
MAKEOVERRIDES :=
LOCKED := pyproject.toml deploy/install deploy/requirements-build.txt
FIT := import sys, venv; sys.exit(sys.version_info < (3, 11))

# Before `make up` installs anything: a busy port should not be found a minute later.
CHECK_PORTS = $(if $(filter up,$(MAKECMDGOALS)),$(if $(findstring --config,$(ARGS)),,deploy/check_ports.py))

.DEFAULT_GOAL := help
.PHONY: help up test test-fast ray check format bench train docs site lock release clean

help: ## what can be done here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/.base ## start everything (Ctrl-C stops it); MODEL=small|medium|large|NAME for a better model
	@exec $(BIN)/terrarium up $(if $(MODEL),--model '$(MODEL)') $(ARGS)

# Tests start hundreds of Python processes: without cached bytecode each would compile our modules.
test: $(VENV)/.dev ## all tests, on real parts; with root it installs the IRC servers and the browser
	@$(BIN)/python -m tests.kit.system
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: $(VENV)/.dev ## the tests that start no process and no server, in a minute
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not (process or server or slow)" $(ARGS)

ray: $(VENV)/.dev ## Ray too, for its tests and bench-ray (300 MB)
	@deploy/install $(BIN)/python ray -e

check: $(VENV)/.dev ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## put the code into the style that `check` asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## measure, print and save under benchmarks/results; bench-NAME for one
	@$(BIN)/python -m benchmarks $(ARGS)

bench-%: $(VENV)/.dev
	@$(BIN)/python -m benchmarks $* $(ARGS)

train: $(VENV)/.dev ## fit how questions are read to the labelled sentences
	@$(BIN)/python -m benchmarks.reading_fit

docs: $(VENV)/.dev ## check that the documentation is true and complete
	@$(BIN)/python -m pytest tests/docs $(ARGS)

site: $(VENV)/.dev ## build the documentation into build/site; a warning or a broken link is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html . build/site

lock: ## choose the versions in constraints.txt anew (see there)
	@deploy/lock

release: $(VENV)/.dev ## build and try the tag that is checked out, and list what to check by hand
	@$(if $(REPOSITORY),REPOSITORY='$(REPOSITORY)' )$(BIN)/python deploy/release.py

clean: ## remove what can be made again (./data stays)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files: dependencies are installed again only if a lock file or pyproject.toml has changed.
$(VENV)/.dev: $(LOCKED) deploy/requirements-dev.txt | $(BIN)/python
	@echo "installing Terrarium and what its tests need into $(VENV) ..."
	@deploy/install $(BIN)/python dev -e
	@touch $(VENV)/.base $@

$(VENV)/.base: $(LOCKED) deploy/requirements-base.txt | $(BIN)/python
	@$(if $(CHECK_PORTS),$(BIN)/python $(CHECK_PORTS))
	@echo "installing Terrarium into $(VENV) (a minute or two, once) ..."
	@deploy/install $(BIN)/python base -e
	@touch $@

# Check for ensurepip first: Debian packages it separately (python3-venv), and without it `venv`
# leaves a broken environment behind.
$(BIN)/python:
	@for python in $(PYTHONS); do \
	    $$python -c '$(FIT)' 2>/dev/null || continue; \
	    $(if $(CHECK_PORTS),$$python $(CHECK_PORTS) || exit;) \
	    if $$python -c 'import ensurepip' 2>/dev/null; then exec $$python -m venv $(VENV); fi; \
	    lacking="$$lacking $$python"; \
	done; \
	if [ -n "$$lacking" ]; then \
	    echo "make: cannot make a virtual environment:$$lacking has no ensurepip." >&2; \
	    echo "  On Debian and Ubuntu: apt install python3-venv" >&2; \
	else \
	    echo "make: Terrarium needs Python 3.11 or newer; looked for: $(PYTHONS)." >&2; \
	    echo "  Install one, or name yours: make PYTHONS=/path/to/python3" >&2; \
	fi; exit 1
