# Every target prepares its own environment first; `bootstrap.py` does nothing when nothing changed.
PYTHON ?= python3
WORKERS ?= 2
ARGS ?=
BIN := .venv/bin
PACKAGES := tilewright compiler service worker bench tests
# Each process takes whole files, in the order that tests/pace.py gives them, and has one core: BLAS starts no threads.
PYTEST = PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# A GPU machine may have no network to prepare .venv from: there it is the machine's own Python.
GPU_PYTHON ?= $(firstword $(wildcard $(BIN)/python) $(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help environment running demo up test test-rest test-all quick cuda-double ptx-check arm-check torture mutants prove-rules fuzz screens page-figures check bench replay replay-kernels gpu-check lock

help: ## list the targets
	@echo "Usage: make TARGET   (PYTHON=python3.12 picks the interpreter, ARGS='...' is passed on)"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

# Bytecode is written here once: a job's process may write none, and the tests start some hundred processes.
environment: ## prepare .venv from nothing, or do nothing
	@$(PYTHON) bootstrap.py
	@$(BIN)/python -m compileall -q $(PACKAGES)

# What the service and the demo need: a quarter of what the tests bring.
running: # prepare that part of .venv, or do nothing
	@$(PYTHON) bootstrap.py --demo
	@$(BIN)/python -m compileall -q tilewright compiler service worker migrations bench

demo: running ## a first result within a minute, then more: models compiled, run, raced with ONNX Runtime; at most 4 minutes
	$(BIN)/python -m bench demo $(ARGS)

up: running ## the service on this machine: API and workers; ARGS=--open opens its page
	$(BIN)/tilewright up $(ARGS)

test: environment ## each behaviour once, with warnings as errors: minutes
	$(PYTEST) -m "not exhaustive" $(ARGS)

test-rest: environment ## the tests that `make test` leaves out
	$(PYTEST) -m exhaustive $(ARGS)

test-all: environment ## all tests, or those that ARGS names: ARGS='tests/compiler/ops -k conv'
	$(PYTEST) $(ARGS)

quick: environment ## the tests that need no compiler and no server: the first to run after a change
	$(PYTEST) --quick -r fE $(ARGS)

cuda-double: environment ## CUDA kernels and launches on the CPU, and compiled by NVRTC, without a GPU
	$(PYTEST) tests/cuda_double tests/ptx tests/compiler/devices/cuda $(ARGS)

ptx-check: environment ## what NVRTC emits, on an interpreter: every family and network, for each architecture and precision
	PTX_WHOLE=1 $(PYTEST) tests/ptx $(ARGS)

arm-check: environment ## ARM CPUs under qemu-user: kernels, networks, artifacts; instructions of inner loops beside the cores' peaks
	@.ci/arm-tools --llvm
	$(PYTEST) tests/compiler/devices/cpu/emulation tests/compiler/test_pipeline_arm.py $(ARGS)
	$(BIN)/python -m bench arm

torture: environment ## kill tests of the service: ARGS='--kills 200 --seed 7 --database postgresql'
	$(BIN)/python -m tests.torture $(ARGS)

mutants: environment ## changes that tests should notice: ARGS='--room compiler/fuse --seed 7'; see docs/contributing.md
	$(BIN)/python -m tests.mutants $(ARGS)

prove-rules: environment ## rewrite rules shown by a solver for all sizes, and mistakes in rules found by it: minutes; ARGS='--only slice'
	$(BIN)/python -m tests.proofs $(ARGS)

fuzz: environment ## random models for a time, each compiled, run, judged: ARGS='--seconds 600 --seed 7'
	$(BIN)/python -m tests.fuzz $(ARGS)

screens: environment ## pictures of the page's views in build/screens, and those of docs; needs Chromium
	$(BIN)/python -m pytest -q tests/browser $(ARGS)
	cp build/screens/graph.png docs/pictures/graph.png
	cp build/screens/raced.png docs/pictures/job.png

page-figures: environment ## what the page weighs, and what its frames and lists cost, with NASNet-A large; needs Chromium
	$(BIN)/python -m tests.browser.figures $(ARGS)

check: environment ## format, lint, types, import contracts, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.sizes

bench: environment ## side-by-side measurements against peers
	$(BIN)/python -m bench $(ARGS)

replay: environment ## what a change of the compiler changes in its output: REF=<commit> ARGS='--set full'; see docs/contributing.md
	@$(if $(REF),,$(error replay needs REF=<commit>))
	$(BIN)/python -m bench replay $(REF) $(ARGS)

replay-kernels: environment ## the same for thousands of drawn kernels, in a minute: REF=<commit> ARGS='--only cuda'
	@$(if $(REF),,$(error replay-kernels needs REF=<commit>))
	$(BIN)/python -m bench replay $(REF) --kernels $(ARGS)

gpu-check: ## what needs a GPU, on a machine that has one: ARGS='first', then tests, tune, plans, bench, all; see docs/gpu-check.md
	@$(GPU_PYTHON) -m bench gpu $(ARGS)

lock: ## write requirements*.txt anew from pyproject.toml
	$(PYTHON) bootstrap.py --lock
