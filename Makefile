# make demo, make test: each makes the environment if it is missing, builds what changed, and runs.
#
#   TORCH=2.15.0           the PyTorch to build for; each version has an environment and a build folder of its own
#   VENV=path              an environment to use instead; if it has torch in the version TORCH, that torch is kept
#   PYTHON=python3.13      the Python for an environment that has to be made
#   ARGS="..."             arguments for the program that runs: make test ARGS="-k autoload"
PYTHON ?= python3
TORCH ?= 2.13.0
VENV ?= .venv-$(TORCH)
BIN := $(VENV)/bin

# All builds by pip for one environment share a build folder, so that only changed files are compiled.
export SKBUILD_BUILD_DIR := build/$(notdir $(VENV))

SOURCE_FOLDERS := cmake csrc third_party torch_openreg/csrc $(wildcard torch_openreg/*/csrc)
CXX_FOLDERS := csrc third_party torch_openreg conformance
# Options of pytest for each device that `make modes` tests.
DEVICES := "--device openreg"
SEMANTICS := \
  $(patsubst %,tests/runtime/test_%.py,execution streams_events generator storage memory memory_limits pinned_memory \
    serialization device_module fork lost_memory) \
  $(patsubst %,tests/operators/test_%.py,copy operators autograd mixed_devices views nn_zoo amp nondeterminism_checks)

.PHONY: demo test test-all modes compiled sweep conformance without-simulator stress install lint format clean
.DEFAULT_GOAL := install

# What only this project has. It adds to the variables above, and to the prerequisites of the targets below.
-include project.mk

SOURCES := pyproject.toml CMakeLists.txt $(shell find $(SOURCE_FOLDERS) -type f -not -name '*.pyc')
CXX_FILES = $(shell find $(CXX_FOLDERS) -name '*.cpp' -o -name '*.h' -o -name '*.c')

demo: install
	$(BIN)/python -m torch_openreg demo $(ARGS)

# Each processor has a process, which runs one file of tests at a time. ARGS="-n 0" runs all tests in one process.
test: install
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow" $(ARGS)

# Also the tests that are marked slow.
test-all: install
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

# The tests of semantics in every execution mode.
modes: install
	for device in $(DEVICES); do \
	  for mode in inline async chaos; do \
	    $(BIN)/python -m pytest $$device --execution $$mode $(SEMANTICS) $(ARGS) || exit 1; \
	  done; \
	done

# Compiles programs for the device. Compares them with eager execution in every mode, and with the same programs
# compiled for the CPU.
compiled: install
	for mode in inline async chaos; do \
	  $(BIN)/python -m tests.compile.compile_programs --against-compiled-cpu --mode $$mode $(ARGS) || exit 1; \
	done

sweep: install
	$(BIN)/python -m tests.tools.sweep --dtypes all $(ARGS)

# The conformance kit on the device. ARGS="--quick --html build/conformance.html" runs a part, and writes a page.
conformance: install
	PYTHONPATH=conformance $(BIN)/python -m torch_conformance --device openreg --strict-messages $(ARGS)

# Deletes the folders of the simulation in a copy of the sources, builds what is left, and runs the tests that remain.
without-simulator: install
	$(BIN)/python -m pytest tests/package/without_simulator.py $(ARGS)

# The device library and the allocators under load, without and with each of two sanitizers, in every execution mode.
# ARGS="--seconds 5 --seed 1" sets the time and the seed.
STRESS := tests/device_library/stress
stress: $(VENV)/.torch
	for sanitize in "" thread address; do \
	  build=build/stress-$${sanitize:-plain}; \
	  $(BIN)/cmake -S $(STRESS) -B $$build -DOPENREG_SANITIZE=$$sanitize -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	    -DCMAKE_BUILD_TYPE=Release && $(BIN)/cmake --build $$build || exit 1; \
	  for mode in inline async chaos switching; do \
	    for program in streams allocator; do $$build/stress_$$program --mode $$mode $(ARGS) || exit 1; done; \
	  done; \
	  $$build/stress_orders || exit 1; \
	done

install: $(VENV)/.installed

$(VENV)/.torch:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install torch==$(TORCH) "scikit-build-core>=1.1" pyyaml cmake ninja
	touch $@

# Editable: a changed Python file needs no build.
$(VENV)/.installed: $(VENV)/.torch $(SOURCES)
	$(BIN)/python -m pip install --no-build-isolation -e ".[demo,test]"
	touch $@

$(VENV)/.lint: $(VENV)/.installed
	$(BIN)/python -m pip install --no-build-isolation -e ".[lint]"
	touch $@

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

# Needs no build, so that files can be formatted before they are compiled.
$(VENV)/.format: $(VENV)/.torch
	$(BIN)/python -m pip install $(filter ruff% clang-format%,$(shell sed -n 's/^lint = \[\(.*\)\]/\1/p' pyproject.toml | tr -d '",'))
	touch $@

format: $(VENV)/.format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CXX_FILES) # quiet: the command names hundreds of files

clean:
	rm -rf build $(VENV)
