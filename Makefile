# Two commands for a newcomer: `make demo` and `make test`. Both need Python >= 3.11, git and make. They create a
# virtual environment in .venv, install exactly the packages of requirements/*.lock, and change nothing else except
# uv's cache. `make test` as root with apt-get also installs Chromium and bubblewrap, which some tests need.

ifndef PYTHON
PYTHON := $(shell ./requirements/interpreter)
endif
VENV   := .venv
BIN    := $(VENV)/bin

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test versions docs bench lock clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/.runtime  ## run six goals at once on a sample repository
	@$(BIN)/agents demo

test: $(VENV)/.dev  ## run all checks and tests
	@./requirements/system
	@$(BIN)/nox

versions: $(VENV)/.dev  ## run the tests that may depend on the Python version with the other versions
	@$(BIN)/nox -s others

docs: $(VENV)/.dev  ## build the documentation site into build/site
	@$(BIN)/python -m tools.docs_site

bench: $(VENV)/.dev  ## run the benchmarks, each against its floor
	@$(BIN)/nox -s bench

lock:  ## resolve the dependencies again
	@test -x $(BIN)/uv || $(MAKE) --no-print-directory $(VENV)/.bootstrap
	@./requirements/lock $(BIN)/uv

clean:  ## remove the files that these targets created
	rm -rf $(VENV) .venvs .nox .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .asv build htmlcov robot/output

# The package itself, from this tree: edits take effect, and `agents` is on the environment's path.
install-in-place = $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . \
  && $(BIN)/python -m compileall -q src

$(VENV)/.bootstrap: requirements/bootstrap.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "CleverAgents needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) -V) …"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/bootstrap.lock
	@touch $@

$(VENV)/.runtime: $(VENV)/.bootstrap requirements/runtime.lock pyproject.toml
	@./requirements/install $(BIN)/python requirements/runtime.lock
	@$(install-in-place)
	@touch $@

$(VENV)/.dev: $(VENV)/.bootstrap requirements/dev.lock pyproject.toml
	@./requirements/install $(BIN)/python requirements/dev.lock
	@$(install-in-place)
	@touch $@ $(VENV)/.runtime
