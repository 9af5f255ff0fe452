# Front door. `make` alone, or `make help`, lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# The targets share one virtual environment and one set of services: never run two at once.
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= # the one that $(VENV) has, or else the newest on the PATH that is supported
STATE := $(if $(FENCEPOST_STATE),$(FENCEPOST_STATE),.fencepost)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: packages ## packages, jars, and an archive of Java classes (a second run does only what changed)
	@$(BIN)/python -m fencepost_stack.class_archive

.PHONY: packages
packages: # pinned packages, jars: what needs a network, and of this repository little but fencepost_stack
	@include/fencepost_stack/setup.sh "$(VENV)" "$(PYTHON)"

.PHONY: browser
browser: packages # the browser that tests of the pages use, where the machine has none
	@$(BIN)/python tests/chromium.py

.PHONY: demo
demo: packages ## start everything, run three days of real flights and weather through Airflow
	@$(BIN)/fencepost demo

.PHONY: cluster
cluster: packages ## the demo on three secured brokers and two Spark workers, of which one each is killed (some ten minutes)
	@$(BIN)/fencepost cluster

.PHONY: up
up: packages ## start Kafka, PostgreSQL and Airflow, and a schema registry if a pipeline uses one
	@$(BIN)/python -m fencepost_stack up

.PHONY: down
down: ## stop what `up` or `demo` started, and only that
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m fencepost_stack down; fi

.PHONY: test
test: browser ## each claim once (ARGS="-k name": those of all tests that it names)
	@$(BIN)/python tests/side_by_side.py $(ARGS)

.PHONY: test-all
test-all: browser ## the tests that `make test` leaves out: matrices, clusters, backfills in the browser, soak, wheel (PARTS="cluster changes": some)
	@$(BIN)/python tests/side_by_side.py --deep $(PARTS)

.PHONY: compose
compose: packages ## docker-compose.yaml with a Docker engine: build, start, a day of the pipelines, read back, down with its data
	@$(BIN)/python tests/compose.py

.PHONY: unit
unit: setup ## the unit tests: no broker, no Spark job (ARGS="-k name" for some)
	@$(BIN)/pytest tests/unit $(ARGS)

.PHONY: fault
fault: setup ## the rest of the crash matrix, which neither of these runs
	@$(BIN)/pytest -m fault $(ARGS)

.PHONY: avro-values
avro-values: setup ## values of SCHEMAS schemas made up by chance (10,000; RECORDS of each), compared with fastavro's; hours
	@AVRO_SCHEMAS=$(or $(SCHEMAS),10000) AVRO_RECORDS=$(or $(RECORDS),20) $(BIN)/pytest --timeout 0 \
	  tests/integration/test_avro_values.py -k fastavro $(ARGS)

.PHONY: encodings
encodings: setup ## VALUES values of every encoding of JSON's fields (1,000,000), made up by chance, against Python's arithmetic
	@ENCODING_VALUES=$(or $(VALUES),1000000) $(BIN)/pytest --timeout 0 tests/unit/test_json_encodings.py $(ARGS)

.PHONY: drafts
drafts: setup ## `fencepost new` on SEEDS topics made up by chance (40), JSON and Avro; `make test-all` has three
	@DRAFT_SEEDS=$(or $(SEEDS),40) $(BIN)/pytest --timeout 0 tests/integration/test_new.py \
	  tests/integration/schemas/test_registered.py -k "any_json or any_schema" $(ARGS)

.PHONY: soak
soak: setup ## RUNS seeds (from SEED on) of faults composed at random on three brokers; CLUSTER=1: secured, on Spark workers
	@SEED=$(or $(SEED),1) RUNS=$(or $(RUNS),10) CLUSTER=$(CLUSTER) $(BIN)/pytest tests/soak $(ARGS)

.PHONY: cdc
cdc: setup ## INTERVALS (6, from SEED 1) of a database's changes by Debezium's connector, with kills; `make test-all` has one
	@CDC_INTERVALS=$(or $(INTERVALS),6) CDC_SEED=$(or $(SEED),1) $(BIN)/pytest --timeout 0 tests/cdc $(ARGS)

.PHONY: model
model: setup ## search the protocol's model to its larger bounds (some ten minutes; `make test` has the smaller)
	@FENCEPOST_MODEL_DEPTH=deep $(BIN)/pytest tests/model -s $(ARGS)

.PHONY: bench
bench: setup ## speed beside Spark's own sink, or Flink's: ratios, JSON and a chart (ARGS="B1 --rounds 3", or --help)
	@$(BIN)/python -m benchmarks.run $(ARGS)

.PHONY: pictures
pictures: setup browser ## the README's pictures again, from the running demo
	@PYTHONPATH=tests $(BIN)/python docs/make_pictures.py

.PHONY: lint
lint: setup ## ruff, its formatter, mypy, and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: requirements
requirements: ## compile requirements.txt again from pyproject.toml, for every supported Python (UPGRADE=1: newest versions)
	@UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile --quiet --no-annotate --all-extras \
	  --universal --python-version 3.11 \
	  --generate-hashes $(if $(UPGRADE),--upgrade) pyproject.toml include/pyproject.toml --no-emit-package fencepost \
	  --override <(echo "fencepost @ file://$(CURDIR)") --output-file requirements.txt

.PHONY: wheel
wheel: setup ## dist/fencepost-VERSION-py3-none-any.whl, for an Airflow that you have; and the local stack's
	@$(BIN)/uv build --quiet --wheel --out-dir dist .
	@$(BIN)/uv build --quiet --wheel --out-dir dist include

.PHONY: pins
pins: ## resolve the jars again and record their digests, after a change of version in fencepost_stack/pins.py
	@$(BIN)/python -m fencepost_stack.pins
	@PYTHONPATH=tests $(BIN)/python -m cdc.jars
	@PYTHONPATH=tests $(BIN)/python -m rigs.iceberg_jars

.PHONY: clean
clean: down ## stop the services and remove their data (downloaded jars stay)
	@if [ -e "$(STATE)/lock" ]; then find "$(STATE)" -mindepth 1 -maxdepth 1 ! -name jars -exec rm -rf -- {} +; fi

.PHONY: distclean
distclean: clean ## clean, and remove the jars and the virtual environment too
	@if [ -d "$(STATE)/jars" ]; then rm -rf -- "$(STATE)"; fi
	@rm -rf -- "$(VENV)"
