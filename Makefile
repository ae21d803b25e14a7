PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint check format pictures

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/clearhead explain "a joyless , tedious film that never finds its heart" --out demo.html

test: setup
	$(BIN)/python -m pytest $(PYTEST)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Everything that must be green before a commit, with the coverage of the tests.
check: lint
	$(MAKE) test PYTEST="--cov --cov-report=term:skip-covered"

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pictures: setup
	$(BIN)/python docs/pictures.py
