# The two commands of the README are `make demo` and `make test`; `make check` is exactly CI.
# Each sets up what it needs in .venv, from the versions in constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed
DOCS := $(VENV)/.docs
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 --dist loadfile

.PHONY: help install browser demo test check lint types imports site generated accept clean

help:  ## say what each target does
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED)  ## set up .venv with everything the other targets need

# torch first, then the project: beside an installed torch nothing pulls another build of it.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[demo,int8,openvino,tables,timm,viewer,dev]"
	touch $@

# The tests of the viewer drive Debian's chromium; where it cannot be installed they are skipped.
browser:  ## install chromium where that can be done (Debian, as root)
	@command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 \
	  install --no-install-recommends chromium fonts-dejavu-core >/dev/null; }

demo: install  ## the whole path on synthetic slides, offline, into zoommil-demo/
	$(BIN)/zoommil demo

test: install  ## the short form of every test, under 6 minutes
	$(PYTEST) -m "not slow and not browser and not network and not gpu"

check: install browser lint types imports site  ## exactly CI: lint, types, imports, all tests
	ZOOMMIL_FAIL_ON_SKIP=1 $(PYTEST) -m "not network and not gpu"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright

imports: install
	$(BIN)/lint-imports

$(DOCS): $(INSTALLED)
	$(PIP) -e ".[docs]"
	touch $@

site: $(DOCS)  ## build the documentation into site/, warnings being errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would count no warning

generated: install  ## write what is made from the code: reference pages, diagrams, the README's figures
	$(BIN)/python scripts/reference_pages.py
	$(BIN)/python scripts/pictures.py
	$(BIN)/python scripts/figures.py

accept: install  ## the full figures, written to docs/results/
	$(BIN)/zoommil bench accept --out docs/results

clean:  ## remove what the targets made, but not .venv
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis site zoommil-demo zoommil-demo-quick
