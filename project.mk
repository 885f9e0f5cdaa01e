# The part of the Makefile that a new backend does not get: the name cuda, benchmarks, the book, wheels,
# and other people's programs.
DEVICES += "--device cuda --openreg-as=cuda"
WORKFLOWS = $(wildcard .github/workflows/*.yml) examples/ci/github-actions.yml

.PHONY: bench check-pairs fuzz mutants clients minimal device-module docs look wheels try-wheels sdist release-check \
  next new-backend first-day modes-of-programs compiled-as-cuda lint-workflows lint-pages

test test-all: $(VENV)/.docs
test-all: $(VENV)/.integrations

modes: modes-of-programs
compiled: compiled-as-cuda
lint: lint-workflows lint-pages

# The conformance kit and the gallery of bugs under the name cuda. Their programs choose the execution mode themselves.
modes-of-programs: install
	$(BIN)/python -m pytest --device cuda --openreg-as=cuda tests/tools/test_conformance.py tests/book/test_gallery.py

compiled-as-cuda: install
	for mode in inline chaos; do \
	  TORCH_OPENREG_AS=cuda OPENREG_RNG=cpu $(BIN)/python -m tests.compile.compile_programs --against-compiled-cpu \
	    --mode $$mode $(ARGS) || exit 1; \
	done

lint-workflows: $(VENV)/.lint
	$(BIN)/python -m pip install -q -r requirements/workflows.txt
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows

# The lengths of lines, and of cells of tables.
lint-pages: $(VENV)/.lint
	$(BIN)/python -m pytest -q tests/book/test_markdown.py

bench: install
	$(BIN)/python -m benchmarks $(ARGS)

# The command `check` on each bug of this repository and on its repair. ARGS="--times 5 --busy 3" runs each five times.
check-pairs: install
	$(BIN)/python -m tests.tools.pairs $(ARGS)

fuzz: install
	$(BIN)/python -m tests.tools.fuzz $(ARGS)

# The conformance kit on mutants, which have one defect each. ARGS="--repeat 10" runs the device without defects instead.
mutants: install
	PYTHONPATH=tests/support $(BIN)/python -m tests.tools.mutants $(ARGS)

# Other people's test suites on the device; ARGS="--sources FOLDER" says where their repositories are checked out.
clients: install
	$(BIN)/python -m tests.tools.clients $(ARGS)

# Runs a program and writes its results as a page of the book, about the minimal set of operators.
minimal: install
	PYTHONPATH=tests/support $(BIN)/python -m tests.book.minimal

# The same about the names of the device's Python module.
device-module: install
	$(BIN)/python -m tests.book.device_module

# The book, in build/docs/index.html.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -d build/docs/.doctrees docs build/docs

# Shows every page of the book in a headless Chromium, at two widths and in two colour schemes. Screenshots: build/look.
look: docs
	$(BIN)/python -m pip install -r requirements/look.txt
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

# What changes for a backend in the next PyTorch, and which sources do not compile with it: writes tables into
# docs/next-pytorch.md. PYTORCH is a checkout of PyTorch, or an unpacked wheel, and is optional. The wheels of the
# supported releases are downloaded. On two processors the compiler takes ten minutes.
next: $(VENV)/.torch
	$(BIN)/python release/next_pytorch.py $(if $(PYTORCH),--pytorch $(PYTORCH))

# Makes, builds and tests backends of another name in separate environments. first-day measures how long the steps of a
# vendor's first day take.
new-backend: install
	PYTHONPATH=tests/support $(BIN)/python -m tests.package.build_new_backend $(ARGS)

first-day: install
	PYTHONPATH=tests/support $(BIN)/python -m tests.package.build_new_backend --first-day $(ARGS)

# Because torch is named, pip refuses to replace it. timm has a folder of its own, with the torchvision that it needs: in
# pip's index torchvision is built for CUDA, and transformers does not work with a torchvision whose operators are
# missing. Version 0.28 is that of PyTorch 2.13. The newest version up to that of this PyTorch is taken, because there was
# no 0.30 yet when PyTorch 2.15 came, and 0.29.2 works with it.
TORCHVISION = <0.$(shell expr $(word 2,$(subst ., ,$(TORCH))) + 16)
# Triton has a folder of its own too: beside torch, torch and other libraries would find it in all tests.
TRITON = 3.7.1
$(VENV)/.integrations: $(VENV)/.installed
	$(BIN)/python -m pip install -r requirements/integrations.txt torch==$(TORCH)
	$(BIN)/python -m pip install --no-deps --upgrade --target $(VENV)/timm timm==1.0.28 "torchvision$(TORCHVISION)"
	$(BIN)/python -m pip install --no-deps --upgrade --target $(VENV)/triton triton==$(TRITON)
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install -r requirements/docs.txt
	touch $@
