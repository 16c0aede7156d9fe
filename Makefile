# Syrinx. `make demo` and `make test` are the two commands to know; each prepares .venv by itself.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
SDK    := $(PY) -m sdk_tools
# Given to pytest, e.g. make unit PYTEST_ARGS="-k parity -x"
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 600
FUZZ_SMOKE_SECONDS ?= 20

CXX_FILES = $(shell find native benchmarks -name '*.cpp' -o -name '*.h' -o -name '*.c')

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test venv venv-dev lint format unit engine native-tests fuzz-smoke fuzz integration bench clean

help:
	@echo "make demo          a real model, run and checked; needs only Python, a C++17 compiler and make"
	@echo "make test          everything that must pass; as root on Debian or Ubuntu it installs what it needs"
	@echo "make lint          ruff, mypy, clang-format          make format    let them rewrite the files"
	@echo "make unit          Python unit tests, no compiler    make integration    the ones with an engine"
	@echo "make native-tests  C++ tests: plain, ASan+UBSan, TSan"
	@echo "make fuzz          every fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make bench         engine overhead against bare libllama"
	@echo "make clean         remove .venv and out/ (the cache outside the checkout stays)"

demo: venv
	@$(SDK) demo

# pytest's own summary is the last thing printed.
test: venv-dev lint unit engine native-tests fuzz-smoke integration

venv:
	@$(PYTHON) -m sdk_tools.bootstrap --venv $(VENV) --system demo

venv-dev:
	@$(PYTHON) -m sdk_tools.bootstrap --venv $(VENV) --system tests --extras dev,export

lint: venv-dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	@echo "clang-format --dry-run -Werror native benchmarks"
	@$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)

format: venv-dev
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format
	@$(VENV)/bin/clang-format -i $(CXX_FILES)

unit: venv-dev
	$(PY) -m pytest -n auto tests/unit $(PYTEST_ARGS)

engine: venv-dev
	$(SDK) build --abi host

native-tests: venv-dev
	$(SDK) build --tests
	$(SDK) build --tests --sanitize address
	$(SDK) build --tests --sanitize thread

fuzz-smoke: venv-dev
	$(SDK) build --fuzz $(FUZZ_SMOKE_SECONDS)

fuzz: venv-dev
	$(SDK) build --fuzz $(FUZZ_SECONDS)

integration: venv-dev
	$(PY) -m pytest tests/integration $(PYTEST_ARGS)

bench: venv-dev
	$(PY) benchmarks/embeds_vs_bare_llama.py

clean:
	rm -rf $(VENV) out
