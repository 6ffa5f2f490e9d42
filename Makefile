.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
# Written when everything is installed; newer than what decides about that, or it is done again.
STAMP := .venv/.installed
ROOMS := index snapshots sidecar spark_backfill
PROTOS := $(wildcard snapshots/proto/*.proto)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Every target that the list shows.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv with the locked dependencies and this project, its kernel compiled where a compiler is

NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "Python 3.11 or newer is needed; say which: make PYTHON=python3.12" >&2; exit 2; }

$(STAMP): requirements-dev.lock pyproject.toml hatch_build.py $(wildcard sidecar/kernel/*.pyx sidecar/kernel/*.pxd)
	@$(NEW_ENOUGH)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the locked dependencies into .venv"
	@$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements-dev.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m sidecar.kernel
	@touch $@

demo: venv ## Records through a real Kafka: held, released on time, rejected, retried; survives a kill -9
	@$(BIN)/delay-router demo

dev: venv ## A Kafka and a router that stay until Ctrl-C, to try your own producers on (PORT=9092)
	@$(BIN)/delay-router dev --port $(or $(PORT),9092)

# Each file of tests is run by one of these; which by which is in tests/targets.py.
PYTEST = $(BIN)/python -m pytest --quiet --durations=10 --durations-min=5
# Whole files of tests run side by side, each process with a broker of its own: most of them wait most of the time.
JOBS ?= 2
SIDE_BY_SIDE = --numprocesses $(JOBS) --dist loadfile

test: venv ## The core, the simulation and each promise on a real broker (7 minutes; JOBS=1: one after the other)
	@$(BIN)/python -m tests.support.kafka_or_exit
	@$(PYTEST) $(SIDE_BY_SIDE) $$($(BIN)/python -m tests.targets $@)

# In this order for two jobs: the longest come first, so that neither waits long for the other at the end.
test-rest: test-docs test-broker test-spark test-kernel test-wheel test-upgrade test-page test-helm test-monitoring test-image model ## All other tests (an hour; with -j2 --output-sync=target 40 minutes)

test-all: test test-rest ## All tests

test-broker: venv ## All other tests of the router on real brokers, a minute of soak among them
	@$(BIN)/python -m tests.support.kafka_or_exit
	@$(PYTEST) $(SIDE_BY_SIDE) $$($(BIN)/python -m tests.targets $@)

test-upgrade: venv ## The last release under load, then this version, back (refused with the reason) and up again (a minute)
	@$(BIN)/python -m tests.support.kafka_or_exit
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

# The newest is that of sidecar/dev/local_kafka/pom.xml, on which everything else runs.
VERSIONS ?= 3.9.1 4.0.0
VERSION_TESTS = tests/integration/test_{init_check,send,release,rejections,crashes,buckets,policies,inquiries,secured,lanes}.py

test-versions: venv ## What README promises, on older Kafkas (VERSIONS)
	@for version in $(VERSIONS); do echo "Kafka $$version"; KAFKA_VERSION=$$version $(PYTEST) $(VERSION_TESTS) || exit; done

coverage: venv ## Branch coverage of each package by the tests without a broker (lines that none runs: build/coverage.txt)
	@mkdir -p build
	@$(BIN)/python -m coverage run -m pytest --quiet --durations=0 --durations-min=5 tests/unit tests/simulation
	@$(BIN)/python -m coverage report --skip-covered --show-missing >build/coverage.txt
	@for room in $(ROOMS); do printf '%-15s%4s %%\n' $$room $$($(BIN)/python -m coverage report --format=total --include="$$room/*"); done
	@printf '%-15s%4s %%\n' all $$($(BIN)/python -m coverage report --format=total)

simulate: venv ## Play fresh seeds of the simulation (SEEDS=2000; FIRST=0 to begin at a seed)
	@$(BIN)/python -m tests.simulation.campaign $(or $(SEEDS),2000) $(if $(FIRST),--first $(FIRST))

mutants: venv ## Play each wrong router until a seed catches it, and print the table (WRITE=--write: into CONTRIBUTING)
	@$(BIN)/python -m tests.simulation.mutants $(WRITE)

test-wheel: venv ## Build the wheel, install it, and run the unit tests on what it installed
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

test-kernel: venv ## The kernel beside Python on the same records, fuzzed, and under the sanitizers of the compiler
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@) tests/unit/sidecar/kernel tests/unit/spark_backfill/test_kernel.py \
	  tests/unit/spark_backfill/buckets

test-spark: venv ## Run only the tests of the Spark jobs
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

# Programs that pip does not install; CI=true makes a missing one an error instead of a skipped test.
chart-tools: ## Build helm, helm-unittest and actionlint with Go, into ~/.cache/kafka-delay-router/tools
	@tests/helm/install-tools

chart-schema: venv ## Write what of the chart follows from the code: its schema, its example for Strimzi, its table
	@$(BIN)/python -m tests.helm.schema
	@$(BIN)/python -m tests.helm.strimzi
	@$(BIN)/python -m tests.helm.values_table

test-docs: venv ## The documents beside the program: commands, keys, targets of make, links, paths of the API, recipes (a minute)
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@) tests/unit/test_documents.py

test-helm: venv ## Run only the tests of the chart, its alerts and its dashboard
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

test-monitoring: venv ## A real Prometheus scrapes a real router and answers every query of the dashboard
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

test-page: venv ## The page of a real router in a headless Chromium (a minute)
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

HELM = PATH="$(or $(TOOLS),$${XDG_CACHE_HOME:-$$HOME/.cache}/kafka-delay-router/tools)/bin:$$PATH" helm

# BASE: another base image. BUILD_OPTIONS: what else `docker build` is to get.
IMAGE ?= kafka-delay-router:dev

chart: ## Package the chart into dist/, with helm from the PATH or from chart-tools
	@mkdir -p dist
	@$(HELM) package helm/delay-router --destination dist

push-chart: chart ## Push the packaged chart to a registry of yours (REGISTRY=oci://HOST/PATH)
	@[[ "$(REGISTRY)" == oci://?* ]] || { echo "REGISTRY must say where to: make push-chart REGISTRY=oci://HOST/PATH" >&2; exit 2; }
	@$(HELM) push "$$(ls -t dist/delay-router-*.tgz | head -1)" "$(REGISTRY)"

push-image: ## Push what image or release-image has built (IMAGE=HOST/NAME:VERSION)
	@[[ "$(IMAGE)" == */*:* && "$(IMAGE)" != *:dev ]] || { echo "IMAGE must name a registry and the release: IMAGE=HOST/NAME:VERSION" >&2; exit 2; }
	@docker push $(IMAGE)

image: ## Build the container image (IMAGE, BASE, EXTRAS=1: with tracing and msk, KERNEL=off: without it); its list of components: image-sbom
	@docker build --network host $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(KERNEL),--build-arg KERNEL=$(KERNEL)) \
	  $(if $(EXTRAS),--build-arg LOCK=requirements-extras.lock) --build-arg COMMIT="$$(git rev-parse --short=12 HEAD 2>/dev/null)" \
  $(BUILD_OPTIONS) --tag $(IMAGE) .

SPARK_IMAGE ?= kafka-delay-router-spark:dev

image-spark: venv ## Build the image of the Spark jobs (SPARK_IMAGE; SPARK: an image with Spark 4.0, BASE: one with Python 3.11; KERNEL=off)
	@mkdir -p build/jars
	@cp $$($(BIN)/python -m spark_backfill jars | tr , ' ') build/jars/
	@docker build --network host $(if $(BASE),--build-arg BASE=$(BASE)) $(if $(SPARK),--build-arg SPARK=$(SPARK)) \
	  $(if $(KERNEL),--build-arg KERNEL=$(KERNEL)) \
	  $(BUILD_OPTIONS) --file Dockerfile.spark --tag $(SPARK_IMAGE) .

release-image: ## The same for a release: BASE must be pinned by digest, IMAGE must be named
	@[[ "$(BASE)" =~ ^[^@[:space:]]+@sha256:[0-9a-f]{64}$$ ]] || { echo "BASE must name an image by digest: make release-image \
	  BASE=NAME@sha256:... IMAGE=NAME:VERSION; a tag names another image tomorrow" >&2; exit 2; }
	@[[ "$(IMAGE)" != *:dev ]] || { echo "IMAGE must name the release: IMAGE=NAME:VERSION" >&2; exit 2; }
	@$(MAKE) --no-print-directory image

image-sbom: ## Write the CycloneDX list of components of the image to dist/sbom.cdx.json
	@mkdir -p dist
	@docker run --rm --network none --entrypoint cat $(IMAGE) /usr/share/doc/kafka-delay-router/sbom.cdx.json >dist/sbom.cdx.json
	@echo dist/sbom.cdx.json

test-image: venv ## Build the image and run it as the demo runs the router, where a Docker engine answers
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

# The files in the order of the list: the longest first, so that no worker is left alone with it at the end.
faults: venv ## Faults on real brokers, one and three: network, strangers, clocks, disks, 0.1.0 (45 minutes, two at a time; LANES=1: all in lanes)
	@$(if $(LANES),TEST_LANES=$(LANES)) $(BIN)/python -m pytest --quiet $(SIDE_BY_SIDE) --no-loadscope-reorder -m '' tests/faults/test_lone_broker.py tests/faults

soak: venv ## Random faults under a steady load for MINUTES=5, then the audit (PARTITIONS=4, LANES=0: shared producers)
	@$(BIN)/python -m tests.faults.soak $(or $(MINUTES),5) $(if $(PARTITIONS),--partitions $(PARTITIONS)) $(if $(LANES),--lanes $(LANES))

lint: venv ## Check style with ruff and types with mypy --strict
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: make format" >&2; exit 1; }
	@$(BIN)/mypy

format: venv ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

bench: venv ## Throughput and lateness, as ratios to a bare transactional loop: medians of three (ROUNDS=1: once, 32 minutes)
	@$(BIN)/python -m tests.bench $(if $(ROUNDS),--rounds $(ROUNDS))

# cosmic-ray and all that it needs stay apart from the developers' environment.
MUTATION = build/mutation/venv

mutation: venv ## Share of small mistakes in index and sidecar/engine that tests notice (MUTANTS=300, SEED=… repeats a run)
	@test -x $(MUTATION)/bin/python || $(PYTHON) -m venv $(MUTATION)
	@$(MUTATION)/bin/python -m pip install --quiet --require-hashes --requirement requirements-mutation.lock
	@$(BIN)/python -m tests.mutation $(or $(MUTANTS),300) $(if $(SEED),--seed $(SEED))

SITE = build/site

site: venv ## The documents as a site with search, in build/site/html
	@test -x $(SITE)/venv/bin/python || $(PYTHON) -m venv $(SITE)/venv
	@$(SITE)/venv/bin/python -m pip install --quiet --require-hashes --requirement requirements-site.lock
	@$(BIN)/python -m tests.docs.site $(SITE)/pages
	@NO_MKDOCS_2_WARNING=1 $(SITE)/venv/bin/mkdocs build --quiet

model: venv ## Check the models, two with TLC: the right router holds, each wrong one is caught (three minutes)
	@$(PYTEST) $$($(BIN)/python -m tests.targets $@)

walk: venv ## Files and functions that a record, a cancel and a restart visit (LIST=deliver-at: print them)
	@$(BIN)/python -m tests.bench.walk $(if $(LIST),--list $(LIST))

bench-kernel: venv ## What records cost the worker: by the kernel, and kept as columns, each beside Python; no broker
	@$(BIN)/python -m tests.bench.kernel
	@$(BIN)/python -m tests.bench.waiting

bench-large: venv ## The same with 10 M records pending: memory, lateness, restart (RECORDS=1000000 to try out)
	@$(BIN)/python -m tests.bench large $(if $(RECORDS),--records $(RECORDS))

bench-huge: venv ## 100 M pending records in one process: memory, lateness of others, restart (RECORDS=1000000 to try out)
	@$(BIN)/python -m tests.bench huge $(if $(RECORDS),--records $(RECORDS)) $(OPTIONS)

bench-growth: venv ## Many partitions, one of them in trouble, and months of delay: lateness, memory, threads, restart, take-over, rewrites
	@$(BIN)/python -m tests.bench growth replicated take-over isolation horizons pending $(OPTIONS)

bench-ops: venv ## Policies, admin API, the page, rate limits and a rolling restart, each beside a load (RECORDS=1000000, OPTIONS=--quick)
	@$(BIN)/python -m tests.bench policy admin page limited rolling $(if $(RECORDS),--records $(RECORDS)) $(OPTIONS)

bench-page: venv ## The page: first view of 300 topics, CPU of the router and lateness beside it at 10 M pending (RECORDS=1000000, OPTIONS=--quick)
	@$(BIN)/python -m tests.bench page $(if $(RECORDS),--records $(RECORDS)) $(OPTIONS)

bench-named: venv ## Cancels, receipts, finding and series, at 10 M pending (RECORDS=1000000 to try out, OPTIONS=--quick)
	@$(BIN)/python -m tests.bench cancels finding receipts series storms without-id $(if $(RECORDS),--records $(RECORDS)) $(OPTIONS)

bench-retries: venv ## A ladder of 8 attempts at 5 k failures/s, and retries beside plain delays (RECORDS=100000, OPTIONS=--quick)
	@$(BIN)/python -m tests.bench retries $(if $(RECORDS),--records $(RECORDS)) $(OPTIONS)

bench-spark: venv ## Spark's index and audit at 1, 2 and 5 M records, adoption of 10 M (RECORDS=1000000: only that)
	@$(BIN)/python -m tests.bench.spark $(if $(RECORDS),--records $(RECORDS))

DIST ?= dist

# A wheel needs a few tools and nothing of the developers' environment, which is a hundred times as large.
PACKING = build/packing
HATCHLING = $(abspath $(PACKING))/bin/python -m hatchling build

$(PACKING)/.installed: requirements-wheel.lock
	@$(NEW_ENOUGH)
	@echo "installing the tools that build a wheel into $(PACKING)"
	@$(PYTHON) -m venv --clear $(PACKING)
	@$(PACKING)/bin/python -m pip install --quiet --require-hashes --requirement requirements-wheel.lock
	@touch $@

wheel: $(PACKING)/.installed ## Build the wheel into dist/ (DIST): the same bytes for the same files
	@$(HATCHLING) --target wheel --directory $(DIST)

sdist: $(PACKING)/.installed ## Build the source distribution into dist/ (DIST)
	@$(HATCHLING) --target sdist --directory $(DIST)

client-wheel: $(PACKING)/.installed ## Build the wheel of kafka-delay-router-client, for producers, into dist/ (DIST)
	@cd .ci/client && $(HATCHLING) --target wheel --directory $(abspath $(DIST))

# auditwheel names the oldest Linux that a wheel runs on, or says why there is none. The time is that of all files in a
# wheel of hatchling, so that the same files make the same bytes here too.
wheels: venv ## Wheels of a release into dist/ (DIST): with the kernel for this Python and machine, x86-64 or arm64; and a pure one
	@rm -rf build/native
	@$(BIN)/python -m hatchling build --target wheel --directory build/native
	@case "$$(echo build/native/*.whl)" in \
	  *-any.whl) echo "no wheel with the kernel: it is not compiled, see above; make wheel builds what can be built" >&2; exit 2;; \
	  *-linux_*.whl) PATH=$(abspath $(BIN)):$$PATH SOURCE_DATE_EPOCH=1580601600 \
	    $(BIN)/auditwheel repair --wheel-dir $(DIST) build/native/*.whl 2>build/native/log || { cat build/native/log >&2; exit 1; };; \
	  *) mkdir -p $(DIST) && cp build/native/*.whl $(DIST);; \
	esac
	@DELAY_ROUTER_KERNEL=off $(BIN)/python -m hatchling build --target wheel --directory $(DIST)

SPARK_ZIP := dist/spark_backfill.zip

spark-zip: ## Make dist/spark_backfill.zip, for spark-submit --py-files
	@rm -f $(SPARK_ZIP) && mkdir -p $(dir $(SPARK_ZIP))
	@find index snapshots spark_backfill -name '*.py' -o -name pom.xml | sort | $(PYTHON) -c 'import sys, zipfile; \
	  archive = zipfile.ZipFile("$(SPARK_ZIP)", "w", zipfile.ZIP_DEFLATED); \
	  [archive.write(line.strip()) for line in sys.stdin]; archive.close()'
	@echo $(SPARK_ZIP)

# uv is itself locked, so that the same tool writes the files everywhere.
LOCK = $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-header \
       --no-emit-index-url --no-emit-find-links --no-annotate --python-version 3.11 $(UPGRADE)

lock: ## Pin the dependencies again (UPGRADE=--upgrade: to the newest)
	@test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet uv; }
	@$(LOCK) --output-file requirements.lock
	@$(LOCK) --extra msk --extra tracing --output-file requirements-extras.lock
	@$(LOCK) --extra spark --no-emit-package pyspark --no-emit-package py4j --output-file requirements-spark.lock
	@$(LOCK) --group dev --output-file requirements-dev.lock
	@$(subst uv pip compile pyproject.toml,uv pip compile --group wheel,$(LOCK)) --output-file requirements-wheel.lock
	@$(subst uv pip compile pyproject.toml,uv pip compile --group image,$(LOCK)) --output-file requirements-image.lock
	@$(subst uv pip compile pyproject.toml,uv pip compile --group mutation,$(LOCK)) --output-file requirements-mutation.lock
	@$(subst uv pip compile pyproject.toml,uv pip compile --group site,$(LOCK)) --output-file requirements-site.lock
	@! grep -HnE '://|[a-z]\.(com|dev|io|org|net)\b' requirements*.lock

proto: venv ## Generate snapshots/proto/*_pb2.py and .pyi from the .proto files
	@$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. $(PROTOS)

clean: ## Remove .venv, caches and built files (the Kafka jars stay in ~/.cache/kafka-delay-router)
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist sidecar/kernel/*.so
	@find $(ROOMS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
