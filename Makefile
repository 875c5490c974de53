# On a new machine: `make demo` or `make test`. Both install everything into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The models that are distributions of their own: models/NAME, if the files of the model are there.
MODELS := $(foreach config,$(wildcard models/*/*/config.json),$(patsubst %/,%,$(dir $(patsubst %/,%,$(dir $(config))))))

.PHONY: setup demo test lint docs clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt $(MODELS:%=%/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all,dev]' $(MODELS:%=--editable ./%)
	touch $@

demo: setup
	$(BIN)/python examples/tour.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup
	$(BIN)/python -m sphinx --fail-on-warning --quiet -c docs . docs/_build/html
	@echo The site is docs/_build/html/index.html

test: lint
	$(BIN)/python -m pytest -n auto

clean:
	rm -rf $(VENV) dist build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
