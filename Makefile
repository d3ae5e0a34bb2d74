# Everything a developer does here. `make` alone explains itself; every target prepares what it needs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := .venv/bin
# Two workers, each with whole modules, so that a module's servers start once.
WORKERS ?= 2
TESTS ?= tests
BENCHES ?= decode filters subscriber fanout latency
SOAK_SECONDS ?= 3600

.PHONY: help setup demo test test-cluster lint format bench soak coverage lock

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: ## .venv with the locked requirements, and the Debian packages that the tests need
	@scripts/setup

demo: setup ## a store with a steady writer, a publisher, three applications, and the live status table
	@$(BIN)/tailrace demo

test: lint ## lint, types and layers, then every test (fails on the first of these that fails)
	@$(BIN)/python -m tailrace.testing.kernels
	@timeout --kill-after=30 1080 $(BIN)/pytest -n $(WORKERS) --dist loadscope -m 'not cluster' $(TESTS)

test-cluster: setup ## tests that need several hosts or containers (those marked `cluster`)
	@status=0; $(BIN)/pytest -q -m cluster $(TESTS) || status=$$?; \
	if [ $$status -eq 5 ]; then \
	  echo "test-cluster: no test is marked 'cluster': nothing was run"; \
	else exit $$status; fi

lint: setup ## ruff (rules and format), mypy strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## every benchmark, one JSON object each; BENCHES="decode latency" picks some
	@for name in $(BENCHES); do $(BIN)/tailrace bench $$name --json; done

soak: setup ## an hour of `tailrace torture` (SOAK_SECONDS=N)
	@$(BIN)/tailrace torture --seconds $(SOAK_SECONDS) --json

coverage: setup ## the tests under coverage, with the lines that none of them reaches
	@rm -f .coverage*
	@$(BIN)/coverage run -m pytest -m 'not cluster' $(TESTS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report

lock: ## requirements.lock again, from pyproject.toml (needs uv)
	@uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-find-links pyproject.toml \
	  --extra core --extra dev -o requirements.lock \
	  --custom-compile-command "make lock"
