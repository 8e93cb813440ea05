# `make demo` and `make test` set up everything they need in .venv, once.

# The first Python on this machine that is new enough; `make PYTHON=/path/to/python3.12 test` names another.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	$$name -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$name && break; done)
# On Linux, pip takes PyTorch with CUDA unless told otherwise; without a GPU this spares gigabytes:
# make demo PIP_FLAGS='--extra-index-url https://download.pytorch.org/whl/cpu'
PIP_FLAGS ?=
JOBS ?= 2
BIN := .venv/bin

PLAIN_STAMP := .venv/.installed
DEV_STAMP := .venv/.installed-dev
AUDIT_STAMP := .venv/.installed-audit
# Python compiles what is imported, at its first import, and keeps that: compiling everything at installation takes a minute
# more, and compiling in each of the many processes of the tests doubles their time.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --no-compile $(PIP_FLAGS) -c constraints.txt -e

UNIT_TESTS := tests/config tests/corpus tests/evaluation tests/io tests/task tests/tokenization tests/weighting tests/test_words.py \
	tests/test_imports_one_way.py

.PHONY: demo quick test test-all test-browser fuzz check oldest format docs site locks audit clean
.DEFAULT_GOAL := test

# An environment with the development tools can run the demo too.
demo: $(if $(wildcard $(DEV_STAMP)),$(DEV_STAMP),$(PLAIN_STAMP))
	$(BIN)/endtask demo

# Lint, types, doctests and the unit tests: what to run after every change.
quick: check
	$(BIN)/python -m pytest -n $(JOBS) --doctest-modules -m 'not slow' $(UNIT_TESTS) src

# The checks and the browser tests take one core each, so they run side by side before the others.
test: $(DEV_STAMP)
	$(MAKE) --no-print-directory -j2 check test-browser
	$(BIN)/python -m pytest -n $(JOBS) --doctest-modules --durations=10 tests src

# Also the tests that `make test` leaves out for their time.
test-all: $(DEV_STAMP)
	$(MAKE) --no-print-directory -j2 check test-browser
	$(BIN)/python -m pytest -n $(JOBS) --doctest-modules --durations=10 -m 'not browser' tests src

# The pages of `endtask serve` in chromium, with screenshots in build/screenshots. Installs playwright, and chromium where
# this user may (as root on Debian); what cannot be installed makes the tests skip and say so.
test-browser: $(DEV_STAMP)
	@$(BIN)/python -c 'import axe_playwright_python, playwright' 2>/dev/null || $(INSTALL) '.[browser]' || true
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
		{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && timeout 300 sh -c \
		'apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends chromium' >/dev/null; } \
		|| echo 'chromium is not installed: install it to run the browser tests' >&2
	$(BIN)/python -m pytest -m browser tests/browser

# The property tests alone, with new random examples and many of them; `make test` draws the same few every time.
fuzz: $(DEV_STAMP)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(JOBS) -m hypothesis tests

check: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The same tests with the oldest releases that pyproject.toml allows, in an environment of their own.
oldest:
	'$(PYTHON)' -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install $(PIP_FLAGS) -c constraints-oldest.txt -e '.[formats,hub,search,serve,trackers]' bm25s httpx hypothesis jsonschema pytest pytest-xdist zstandard
	.venv-oldest/bin/python -m pytest -n $(JOBS) tests

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV_STAMP)
	$(BIN)/python docs/make_settings_page.py
	$(BIN)/python docs/make_commands_page.py
	$(BIN)/python docs/make_results.py

# Hashes of every package of constraints.txt, for all systems: requirements/cpu.txt leaves out PyTorch and CUDA, which CPU
# machines take from PyTorch's own index.
CUDA := cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cuda-runtime \
	nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-curand nvidia-cusolver nvidia-cusparse nvidia-cusparselt-cu13 \
	nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx triton
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --extra dev \
	-c constraints.txt --custom-compile-command 'make locks' pyproject.toml

locks: $(AUDIT_STAMP)
	$(LOCK) -o requirements/all.txt
	$(LOCK) $(addprefix --no-emit-package ,torch $(CUDA)) -o requirements/cpu.txt

# Known vulnerabilities of the locked packages (asks PyPI; a package it does not know is an error too), and sbom.json in
# CycloneDX's format.
audit: $(AUDIT_STAMP)
	$(BIN)/cyclonedx-py requirements requirements/all.txt --pyproject pyproject.toml --output-reproducible -o sbom.json
	$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements/all.txt

# The documentation site in site/; any broken link or heading is an error. tests/docs/test_site.py does the same.
site: $(DEV_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf site .venv .venv-oldest .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks studies docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEV_STAMP): pyproject.toml constraints.txt | .venv/pyvenv.cfg
	$(INSTALL) '.[dev]'
	touch $(DEV_STAMP) $(PLAIN_STAMP)

$(AUDIT_STAMP): $(DEV_STAMP)
	$(INSTALL) '.[audit]'
	touch $@

$(PLAIN_STAMP): pyproject.toml constraints.txt | .venv/pyvenv.cfg
	$(INSTALL) .
	touch $@

# An environment whose pip is missing (Debian without python3-venv) is taken away, so that the next call starts anew.
.venv/pyvenv.cfg:
	@'$(PYTHON)' -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "endtask needs Python 3.11 or newer, found: '$(PYTHON)'." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	'$(PYTHON)' -m venv .venv || { rm -rf .venv; exit 1; }
