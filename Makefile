.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
# Written when everything is installed; newer than what decides about that, or it is done again.
STAMP := .venv/.installed
ROOMS := index snapshots sidecar spark_backfill
PROTOS := $(wildcard snapshots/*.proto)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help venv demo test simulate mutants lint format bench bench-large lock proto clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv with the locked dependencies and this project

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; say which: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the locked dependencies into .venv"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: venv ## Records through a real Kafka: held, released on time, rejected; survives a kill -9
	@$(BIN)/delay-router demo

test: venv ## Run all tests
	@$(BIN)/python -m pytest --quiet

simulate: venv ## Play fresh seeds of the simulation (SEEDS=2000; FIRST=0 to begin at a seed)
	@$(BIN)/python -m tests.simulation.campaign seeds $(or $(SEEDS),2000) $(if $(FIRST),--first $(FIRST))

mutants: venv ## Play each wrong router until a seed catches it, and print the table
	@$(BIN)/python -m tests.simulation.campaign mutants

lint: venv ## Check style with ruff and types with mypy --strict
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: make format" >&2; exit 1; }
	@$(BIN)/mypy

format: venv ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

bench: venv ## Throughput and lateness, as ratios to a bare transactional loop
	@$(BIN)/python -m tests.bench

bench-large: venv ## The same with 10 M records pending: memory, lateness, restart (RECORDS=1000000 to try out)
	@$(BIN)/python -m tests.bench large $(if $(RECORDS),--records $(RECORDS))

# uv is itself locked, so that the same tool writes the files everywhere.
LOCK = $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-header \
       --no-emit-index-url --no-emit-find-links --no-annotate --python-version 3.11 $(UPGRADE)

lock: ## Pin the dependencies again (UPGRADE=--upgrade: to the newest)
	@test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet uv; }
	@$(LOCK) --output-file requirements.lock
	@$(LOCK) --group dev --output-file requirements-dev.lock
	@! grep -HnE '://|[a-z]\.(com|dev|io|org|net)\b' requirements.lock requirements-dev.lock

proto: venv ## Generate snapshots/*_pb2.py and .pyi from the .proto files
	@$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. $(PROTOS)

clean: ## Remove .venv, caches and built files (the Kafka jars stay in ~/.cache/kafka-delay-router)
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find $(ROOMS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
