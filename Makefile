# Everything runs in .venv, which holds the versions and checksums of requirements.lock and nothing else.
# make help lists the targets. PYTHON names another interpreter: make test PYTHON=python3.13

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help reproduce check test bench torture lock

bin := .venv/bin
new_enough := import sys; sys.exit(sys.version_info < (3, 11))
# The first of these that runs and is new enough; python3 itself is often older than another one beside it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c '$(new_enough)' 2>/dev/null && echo $$python && break; done)

help: ## list the targets (the default)
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 18

reproduce: .venv/.ready ## set up .venv, then make every table, figure and notebook again
	$(bin)/rag-notes reproduce

fast := metrics stats parse records identity templates methods methods_about methods_adaptive methods_amber \
	methods_baselines methods_sentences

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

bench: .venv/.ready ## set up .venv, then measure the speed and how retrieval scales (SIZES="10000 100000" for less)
	$(bin)/python -m tests.bench $(SIZES)

torture: .venv/.ready ## set up .venv, then run methods against a server that fails at random (docs/reliability.md)
	$(bin)/python -W ignore -m tests.torture $(OPTIONS)

lock: ## write requirements.lock anew from pyproject.toml (keeps versions that still fit; delete the file to renew all)
	@$(check_python)
	tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PYTHON) -m venv "$$tools"; "$$tools/bin/python" -m pip install --quiet uv; \
	"$$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra local --extra dense --extra joblib \
		--extra trec --extra parquet --extra crate --extra dev \
		--no-header --output-file requirements.lock pyproject.toml

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
