# make demo, make test, make bench: each makes the environment if it is missing, builds what changed, and runs.
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

SOURCES := pyproject.toml CMakeLists.txt $(shell find cmake csrc faces third_party torch_openreg/csrc -type f -not -name '*.pyc')
SEMANTICS := \
  $(patsubst %,tests/runtime/test_%.py,execution streams_events generator storage memory memory_limits pinned_memory \
    serialization device_module fork lost_memory) \
  $(patsubst %,tests/operators/test_%.py,copy operators autograd mixed_devices views nn_zoo amp alerts)
CXX_FILES = $(shell find csrc faces third_party torch_openreg/csrc torch_openreg/_inductor conformance -name '*.cpp' -o -name '*.h' -o -name '*.c')
# LEFT OUT OF A NEW BACKEND START: workflows of continuous integration
WORKFLOWS = $(wildcard .github/workflows/*.yml) examples/ci/github-actions.yml
# LEFT OUT OF A NEW BACKEND END

.PHONY: demo test modes compiled bench sweep fuzz conformance mutants clients stress minimal stubs docs look wheels try-wheels \
  sdist release-check new-backend first-day install lint format clean
.DEFAULT_GOAL := install

demo: install
	$(BIN)/python -m torch_openreg demo $(ARGS)

# Each processor has a process, which runs one file of tests at a time. ARGS="-n 0" runs all tests in one process.
test: $(VENV)/.integrations $(VENV)/.docs
	$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

# The tests of semantics, on both faces of the device and in every execution mode. Under the name cuda also the conformance
# kit, and the gallery of bugs, whose programs choose the mode themselves.
modes: install
	for device in openreg cuda; do \
	  for mode in inline async chaos; do \
	    $(BIN)/python -m pytest --device $$device --execution $$mode $(SEMANTICS) $(ARGS) || exit 1; \
	  done; \
	done
# LEFT OUT OF A NEW BACKEND START: the face cuda
	$(BIN)/python -m pytest --device cuda tests/tools/test_conformance.py tests/book/test_gallery.py
# LEFT OUT OF A NEW BACKEND END

# Compiles programs for the device. Compares them with eager execution in every mode, and with the same programs
# compiled for the CPU.
compiled: install
	for mode in inline async chaos; do \
	  $(BIN)/python -m tests.compile.compile_programs --against-compiled-cpu --mode $$mode $(ARGS) || exit 1; \
	done

# LEFT OUT OF A NEW BACKEND START: benchmarks
bench: install
	$(BIN)/python -m benchmarks $(ARGS)

# LEFT OUT OF A NEW BACKEND END
sweep: install
	$(BIN)/python -m tests.tools.sweep --dtypes all $(ARGS)

# LEFT OUT OF A NEW BACKEND START: the fuzzer, and the runner of other people's tests
fuzz: install
	$(BIN)/python -m tests.tools.fuzz $(ARGS)

# The conformance kit on the device. ARGS="--quick --html build/conformance.html" runs a part, and writes a page.
conformance: install
	PYTHONPATH=conformance $(BIN)/python -m torch_conformance --device openreg $(ARGS)

# The conformance kit on mutants, which have one defect each. ARGS="--repeat 10" runs the device without defects instead.
mutants: install
	PYTHONPATH=tests/support $(BIN)/python -m tests.tools.mutants $(ARGS)

# Other people's test suites on the device; ARGS="--sources FOLDER" says where their repositories are checked out.
clients: install
	$(BIN)/python -m tests.tools.clients $(ARGS)

# LEFT OUT OF A NEW BACKEND END
# The device library and the allocators under load, without and with each of two sanitizers, in every execution mode.
# ARGS="--seconds 5 --seed 1" sets the time and the seed.
stress: $(VENV)/.torch
	for sanitize in "" thread address; do \
	  build=build/stress-$${sanitize:-plain}; \
	  $(BIN)/cmake -S tests/device_library/stress -B $$build -DOPENREG_SANITIZE=$$sanitize -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	    -DCMAKE_BUILD_TYPE=Release && $(BIN)/cmake --build $$build || exit 1; \
	  for mode in inline async chaos switching; do \
	    for program in streams allocator; do $$build/stress_$$program --mode $$mode $(ARGS) || exit 1; done; \
	  done; \
	done

# LEFT OUT OF A NEW BACKEND START: the book
# minimal and stubs: each runs a program and writes its results as a page of the book. The pages are about the minimal
# set of operators and about stubs.
minimal: install
	$(BIN)/python -m tests.book.minimal

stubs: install
	$(BIN)/python tests/book/stub_operators.py

# The book, in build/docs/index.html.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -d build/docs/.doctrees docs build/docs

# Shows every page of the book in a headless Chromium, at two widths and in two colour schemes. Screenshots: build/look.
look: docs
	$(BIN)/python -m pip install --no-build-isolation -e ".[look]"
	$(BIN)/python docs/look.py

# Builds wheels in dist: one for each Python of this machine. A wheel serves every supported PyTorch.
# ARGS="--python 3.11 --torch 2.14" builds only for these versions.
wheels:
	$(PYTHON) release/wheels.py $(ARGS)

# Installs each wheel as a user does, in a new environment without a compiler.
try-wheels:
	$(PYTHON) release/try_wheels.py $(ARGS)

# The source distribution, from which pip builds if there is no wheel, in dist.
sdist: $(VENV)/.torch
	$(BIN)/python -c "from scikit_build_core.build import build_sdist; print(build_sdist('dist'))"

# Everything that is checked before a release. It takes hours. ARGS="--only agree links wheels" runs a part.
release-check:
	$(PYTHON) release/check.py $(ARGS)

# LEFT OUT OF A NEW BACKEND END
install: $(VENV)/.installed

$(VENV)/.torch:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install torch==$(TORCH) "scikit-build-core>=1.1" pyyaml cmake ninja
	touch $@

# Editable: a changed Python file needs no build.
$(VENV)/.installed: $(VENV)/.torch $(SOURCES)
	$(BIN)/python -m pip install --no-build-isolation -e ".[demo,test]"
	touch $@

# LEFT OUT OF A NEW BACKEND START: itself, the book, and other people's programs
# Makes, builds and tests backends of another name in separate environments. first-day measures
# how long the steps of a vendor's first day take.
new-backend: install
	$(BIN)/python -m tests.package.build_new_backend $(ARGS)

first-day: install
	$(BIN)/python -m tests.package.build_new_backend --first-day $(ARGS)

# Because torch is named, pip refuses to replace it. timm has a folder of its own, with the torchvision that it needs: in
# pip's index torchvision is built for CUDA, and transformers does not work with a torchvision whose operators are
# missing. Version 0.28 is that of PyTorch 2.13.
TORCHVISION = 0.$(shell expr $(word 2,$(subst ., ,$(TORCH))) + 15).*
$(VENV)/.integrations: $(VENV)/.installed
	$(BIN)/python -m pip install --no-build-isolation -e ".[integrations]" torch==$(TORCH)
	$(BIN)/python -m pip install --no-deps --upgrade --target $(VENV)/timm timm==1.0.28 torchvision==$(TORCHVISION)
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --no-build-isolation -e ".[docs]"
	touch $@

# LEFT OUT OF A NEW BACKEND END
$(VENV)/.lint: $(VENV)/.installed
	$(BIN)/python -m pip install --no-build-isolation -e ".[lint]"
	touch $@

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
# LEFT OUT OF A NEW BACKEND START: workflows of continuous integration
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows
# LEFT OUT OF A NEW BACKEND END

# Needs no build, so that files can be formatted before they are compiled.
$(VENV)/.format: $(VENV)/.torch
	$(BIN)/python -m pip install $(filter ruff% clang-format%,$(shell sed -n 's/^lint = \[\(.*\)\]/\1/p' pyproject.toml | tr -d '",'))
	touch $@

format: $(VENV)/.format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

clean:
	rm -rf build $(VENV)
