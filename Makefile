# make bench      measure row_retained on the first GPU, or run it on the emulator
# make test       lint, types and every test that needs no GPU
# make check      the quick part of it: lint, types, unit tests
# make test-cu12  compilation and unit tests with CUDA 12, in an environment of its own
# make test-package  builds wheel and sdist and uses them, in environments of their own
# make test-gpu   the tests that need a GPU; writes data/gpu-report.json
# make sanitize   compute-sanitizer over every kernel; needs a GPU, writes data/sanitizer.json
# Each makes .venv and installs what it needs first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell git ls-files 'cuda/*.cu' 'cuda/*.cuh' 'cuda/*.h' 'cuda/*.hpp' 'tests/*.cu' 'tools/*.cpp' 'tools/*.cu' 2>/dev/null)
OUT ?= bench-$(shell date +%Y%m%d-%H%M%S).h5

# Without a C++ compiler the emulator brings its own.
COMPILER := $(shell test -n "$$CXX" && echo "$$CXX" || command -v g++ || command -v clang++)
comma := ,
# cu13 or cu12: which CUDA the bindings, NVRTC and headers are of.
CUDA ?= cu13
EXTRAS := $(CUDA),emulator$(if $(COMPILER),,$(comma)zig)

.PHONY: bench test check lint unit slow emulated test-cu12 test-package test-gpu sanitize clean

bench: $(VENV)/.installed
	$(BIN)/mk bench --variant row_retained --out $(OUT)

test: check slow emulated test-cu12 test-package
	$(BIN)/python tools/gpu_report.py --check data/gpu-report.json

check: lint unit

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(if $(SOURCES),$(BIN)/clang-format --dry-run --Werror $(SOURCES))

unit: $(VENV)/.installed-dev
	$(BIN)/pytest tests/unit -m "not slow" -n 2

slow: $(VENV)/.installed-dev
	$(BIN)/pytest tests/unit -m slow -n 2

emulated: $(VENV)/.installed-dev
	$(BIN)/pytest tests/emulated tests/wrong -m "not gpu" -n 2

test-cu12:
	$(MAKE) unit VENV=.venv-cu12 CUDA=cu12

test-package: $(VENV)/.installed-dev
	PYTHON=$(BIN)/python CUDA=$(CUDA) tools/check_package.sh

test-gpu: $(VENV)/.installed-dev
	$(BIN)/python tools/gpu_report.py data/gpu-report.json

sanitize: $(VENV)/.installed-dev
	$(BIN)/python tools/sanitize.py data/sanitizer.json

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed; say which with make PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$(CUDA),dev$(if $(COMPILER),,$(comma)zig)]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .venv-cu12 build dist
