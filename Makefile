# The thin front. Everything it does is a plain command that may as well be typed.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
PRESET ?= release
BUILD := build/$(PRESET)
# `make PACKAGES=skip …` leaves the system's packages alone.
PACKAGES ?= install

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
export PIP_NO_INPUT := 1
# Lets ccache find what another clone has compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

# What the Python package is made of: a change in one of these installs it anew.
PACKAGE_SOURCES := $(shell find src python cmake -type f \
  \( -name '*.cc' -o -name '*.h' -o -name '*.py' -o -name '*.pyi' -o -name '*.in' -o -name '*.cmake' \
     -o -name CMakeLists.txt -o -name py.typed \) \
  ! -name '*_test.cc' ! -name '*_bench.cc' ! -name '*_fuzzer.cc' 2>/dev/null) \
  CMakeLists.txt layers.txt pyproject.toml
CXX_FILES = $(shell find src python bench tests -name '*.cc' -o -name '*.h')

.PHONY: help packages setup build demo test ctest pytest sanitize bench peers wheel lint format clean distclean

help:  ## show this
	@echo 'make TARGET, where TARGET is one of'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

packages:
	@if [[ "$(PACKAGES)" != skip ]]; then tools/install_packages.sh; fi

$(VENV)/bin/python: | packages
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.requirements: $(wildcard requirements/*.txt) | $(VENV)/bin/python
	$(PIP) install -q -r requirements/all.txt
	@touch $@

# Without isolation: the build tools are in the environment already. The same warnings as the C++ build
# are asked for, so that ccache has every object.
$(VENV)/.package: $(PACKAGE_SOURCES) $(VENV)/.requirements
	SKBUILD_CMAKE_DEFINE=TENSORTAP_WERROR=ON $(PIP) install -q --no-build-isolation --no-deps .
	@touch $@

setup: packages $(VENV)/.requirements  ## install the Debian packages and the Python environment

build: setup  ## build the C++ programs, tests and benchmarks
	@[[ -f $(BUILD)/build.ninja ]] || cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

demo: setup $(VENV)/.package  ## train on digits, once healthy and once sick, and see the rules at work
	$(VENV)/bin/python examples/digits.py

# Both runners run, whatever the first says, and close with their own lines.
test: lint build $(VENV)/.package  ## check, build and run all tests, C++ and Python
	@status=0; \
	$(MAKE) --no-print-directory ctest || status=1; \
	$(MAKE) --no-print-directory pytest || status=1; \
	exit $$status

ctest:
	@ctest --preset $(PRESET) --parallel $$(nproc)

pytest:
	@$(VENV)/bin/python -m pytest tests

sanitize: setup  ## run the C++ tests under the address, undefined-behaviour and thread sanitizers
	for preset in asan tsan; do \
	  cmake --preset $$preset; cmake --build --preset $$preset; ctest --preset $$preset --parallel $$(nproc); \
	done

bench: build $(VENV)/.package  ## measure the budgets of docs/performance.md into bench/results.json
	$(VENV)/bin/python bench/run.py --build-dir $(BUILD)

# Each of the others gets an environment of its own; --write puts the table into docs/performance.md.
build/peers/%/.done: bench/peers/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install -q -r $<
	@touch $@

peers: $(VENV)/.package build/peers/smdebug/.done build/peers/trackers/.done  ## measure smdebug, TensorBoard and wandb beside Tensortap, in about six minutes
	$(VENV)/bin/python bench/peers/run.py --write docs/performance.md

wheel: setup  ## make a self-contained wheel in dist/, and try it in a fresh environment
	$(VENV)/bin/python tools/make_wheel.py

lint: setup  ## layers, size ratchet, formatting, types
	$(VENV)/bin/python tools/check_layers.py
	$(VENV)/bin/python tools/check_ratchet.py
	$(VENV)/bin/python tools/draw_house.py --check
	@$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: setup  ## format C++ and Python in place
	@$(VENV)/bin/clang-format -i $(CXX_FILES)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:  ## remove what was built, but not .venv
	rm -rf build dist out bench/results.json $(VENV)/.package

distclean: clean  ## remove .venv too
	rm -rf $(VENV)
