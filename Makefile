PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint check format docs api pictures notebooks release-check

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

# The documentation site in build/site; a broken link or a name that is not there is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Everything that must be green before a commit, with the coverage of the tests. A test builds the site.
check: lint
	$(MAKE) test PYTEST="--cov --cov-report=term:skip-covered"

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Records the public names and signatures, which a test compares: docs/stability.md.
api: setup
	$(BIN)/python tests/helpers/public_api.py

pictures: setup
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/example_pictures.py methods
	$(BIN)/python docs/example_pictures.py metrics

# Executes the notebooks and stores their outputs.
notebooks: setup
	$(BIN)/python tests/helpers/notebooks.py docs/notebooks/*.ipynb

# Walks the checklist in CONTRIBUTING.md: builds, installs into a new environment, tries what was installed.
release-check: setup
	$(BIN)/python tools/release_check.py
