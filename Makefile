# Everything runs in .venv, which holds the versions and checksums of requirements.lock and nothing else.
# make help lists the targets. PYTHON names another interpreter: make test PYTHON=python3.13

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help reproduce check test training bench torture lock

bin := .venv/bin
new_enough := import sys; sys.exit(sys.version_info < (3, 11))
# The first of these that runs and is new enough; python3 itself is often older than another one beside it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c '$(new_enough)' 2>/dev/null && echo $$python && break; done)

help: ## list the targets (the default)
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 18

reproduce: .venv/.ready ## set up .venv, then make every table, figure and notebook again
	$(bin)/rag-notes reproduce

fast := metrics stats parse records rag methods methods_notes methods_baselines

check: .venv/.ready ## set up .venv, then check style, types, import contracts and a fast part of the tests
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports --no-cache
	$(bin)/python -m pytest -n 2 $(fast:%=tests/test_%.py)

test: .venv/.ready ## set up .venv, then check style, types, import contracts and all tests
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports --no-cache
	$(bin)/python -m pytest -n 2 --dist loadgroup

training: .venv-train/.ready ## set up .venv-train (PyTorch without CUDA), then test training the whole way
	LD_LIBRARY_PATH=.venv-train/no-cuda RAG_NOTES_REQUIRE_TRAINING=1 \
		.venv-train/bin/python -m pytest tests/test_training.py tests/test_likelihood.py

bench: .venv/.ready ## set up .venv, then measure the speed and how retrieval scales (SIZES="10000 100000" for less)
	$(bin)/python -m tests.bench $(SIZES)

torture: .venv/.ready ## set up .venv, then run methods against a server that fails at random (docs/operating.md)
	$(bin)/python -W ignore -m tests.torture $(OPTIONS)

lock: ## write requirements.lock and tests/training.lock anew (keeps versions that still fit; delete a file to renew all)
	@$(check_python)
	tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PYTHON) -m venv "$$tools"; "$$tools/bin/python" -m pip install --quiet uv; \
	"$$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra local --extra dense --extra joblib \
		--extra dev --no-header --output-file requirements.lock pyproject.toml; \
	"$$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra train --extra dev \
		--constraints requirements.lock --no-annotate --no-header --output-file tests/training.lock pyproject.toml

define check_python
$(or $(PYTHON),false) -c '$(new_enough)' || { \
	echo "rag-notes needs Python 3.11 or newer; $(or $(PYTHON),python3) is not." >&2; \
	echo "Install one, or name one that you have: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
endef

# Built afresh whenever the lock or pyproject.toml changes; the stamp comes last, so a broken set-up is begun again.
# A few packages exist as source only: setuptools comes first to build them, as isolation would fetch it without a checksum.
.venv/.ready: requirements.lock pyproject.toml
	@$(check_python)
	$(PYTHON) -m venv --clear .venv
	awk '/^[^ ]/ { wanted = /^setuptools==/ } wanted' requirements.lock > .venv/setuptools.lock
	$(bin)/python -m pip install --quiet --require-hashes -r .venv/setuptools.lock
	$(bin)/python -m pip install --quiet --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
	$(bin)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch .venv/.ready

# CUDA's libraries are left out: three gigabytes, and stand-ins that know no device do where there is none.
.venv-train/.ready: tests/training.lock tests/no_cuda.py pyproject.toml
	@$(check_python)
	$(PYTHON) -m venv --clear .venv-train
	awk '/^[^ ]/ { wanted = !/^(nvidia-|cuda-|triton)/ } wanted' tests/training.lock > .venv-train/wanted.lock
	awk '/^[^ ]/ { wanted = /^setuptools==/ } wanted' tests/training.lock > .venv-train/setuptools.lock
	.venv-train/bin/python -m pip install --quiet --require-hashes -r .venv-train/setuptools.lock
	.venv-train/bin/python -m pip install --quiet --no-deps --require-hashes --no-build-isolation --use-pep517 \
		-r .venv-train/wanted.lock
	.venv-train/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
	.venv-train/bin/python -m tests.no_cuda .venv-train/no-cuda
	touch .venv-train/.ready
