# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Needs python3 (3.11 or newer) with its venv module, git and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check full clean

demo: $(VENV)/installed
	$(BIN)/clifftop demo

test: $(VENV)/test-installed
	scripts/test

check: $(VENV)/test-installed
	scripts/check

full: $(VENV)/test-installed
	scripts/full

$(VENV)/bin/python:
	@scripts/make-venv $(PYTHON) $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/test-installed: $(VENV)/installed requirements-test.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --requirement requirements-test.txt
	@touch $@

clean:
	rm -rf $(VENV)
