# The README's commands. `make demo` and `make test` set up everything they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help install dev demo browser docs test test-slow test-all test-flower test-trackers lint types wheel bench clean

PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "hushrec needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[report,baselines]'
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

# Numba's cache does not notice a change in a module that a kernel calls; so all of it goes when one changes.
$(VENV)/.kernels: $(VENV)/.installed $(shell find src/hushrec/kernels src/hushrec/privacy src/hushrec/models src/hushrec/systems -name '*.py') src/hushrec/draws.py
	@find src benchmarks -name '*.nb[ic]' -delete
	@touch $@

install: $(VENV)/.installed $(VENV)/.kernels  ## make the virtual environment and install hushrec in it

dev: install $(VENV)/.dev  ## the same with all extras but Flower, and what tests need (PyTorch: some check gradients with it)

demo: install  ## the main job on ML-100K: accuracy, bytes, recommendations, a report
	$(BIN)/hushrec demo --out demo

$(VENV)/.docs: $(VENV)/.installed
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

docs: install $(VENV)/.docs  ## the documentation site, notebooks executed, without network: docs/_build/html/index.html
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "open docs/_build/html/index.html"

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: dev
	$(BIN)/mypy

APT_CHROMIUM := apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1

browser:  ## find Chromium for the tests of the page, or install Debian's where that may be done
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { $(APT_CHROMIUM) || { apt-get update -qq && $(APT_CHROMIUM); }; }; } || \
	  echo "NO BROWSER: tests of the page in Chromium will be skipped; install it: apt-get install chromium"

test: lint types browser  ## lint, types, tests; those of the page in Chromium
	$(BIN)/pytest -n 2

test-slow: dev $(VENV)/.docs  ## all tests, the slow ones too
	$(BIN)/pytest -n 2 -m ''

.venv-flower/.installed: pyproject.toml constraints-flower.txt
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/pip install --quiet --disable-pip-version-check -c constraints-flower.txt -e '.[flower,report]' pytest pytest-xdist hypothesis pytrec-eval-terrier
	@touch $@

test-flower: .venv-flower/.installed  ## the Flower engine, in an environment of its own
	.venv-flower/bin/pytest -m '' tests/deploy/test_flower_engine.py tests/deploy/test_certificates.py

test-all: install  ## the tests with every Python that is supported and here; says which it could not have
	$(BIN)/python tools/test_all.py $(TESTS)

.venv-trackers/.installed: pyproject.toml constraints-trackers.txt
	$(PYTHON) -m venv .venv-trackers
	.venv-trackers/bin/pip install --quiet --disable-pip-version-check -c constraints-trackers.txt -e '.[mlflow,tensorboard,wandb,trackio,onnx]' pytest hypothesis
	@touch $@

test-trackers: .venv-trackers/.installed  ## MLflow, TensorBoard, W&B and Trackio, in an environment of their own
	HUSHREC_TRACKERS=all .venv-trackers/bin/pytest -m '' tests/handover/test_trackers.py

wheel: dev  ## the wheel and the source archive, in dist/, tried in an environment of their own
	$(BIN)/python -m build
	$(BIN)/pytest -m '' tests/test_wheel.py

bench: dev  ## speed and memory, as ratios measured in one run
	$(BIN)/python -m benchmarks

clean:  ## remove the virtual environment and the demo's output
	rm -rf $(VENV) .venv-3.* .venv-flower .venv-trackers build dist demo docs/_build docs/reference
