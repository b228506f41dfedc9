# Everything here needs python3 (3.11 or newer, with venv and pip), git and make. What it installs, it installs into .venv/ in this folder.
#
#   make demo       install, then run the main job on a bundled conversation: no server, no key
#   make test       install, then run the tests this machine can run; it says last which backends ran and which did not, and why, and what it left out.
#                   MEMORY_THOROUGH=1 make test runs all that CI runs;
#                   PYTEST_FLAGS="-p tools.times" notes where the time goes, which python -m tools.times tells
#   make quick      a minute: lint what changed, types, unit tests without servers
#   make nightly    an hour: fresh seeds, long model tests, kills, variants of stores, branch coverage, the contract from the wheel, newer Pythons
#   make fitness    adapters of agent frameworks against the frameworks' own tests: FRAMEWORKS="langgraph_store" runs one
#   make conformance  the MCP server against the protocol's own suite, both versions (needs npm)
#   make check      what needs no server: lint, types, import directions, generated documents, tests
#   make bench      measure, with the raw engine beside
#   make simulate   the engine against faults: SEEDS=2000 runs so many, SEED=17 replays one exactly and shrinks it;
#                   SESSIONS=1 plays sessions only, RULES=1 rules, quotas and holds only (RULES=1 SEED=17 replays one)
#   make model      random everyday use against a model: TOPOLOGY=default OPERATIONS=2000 SEED=17, on every topology unless one is named
#   make up         start the servers of a topology: TOPOLOGY=redis-postgres-qdrant or another under compose/; make down stops them
#   make image      the image of `memory worker`: BASE=python:3.13-slim IMAGE=memory-tiers:latest; make up WORKER=1 runs it beside the servers
#   make prove      hours: 20,000 seeds, growth under 20,000 updates, long model tests, every harness of the contract in full; a model test that was interrupted goes on where it was
#   make noticed    renew tests/noticed.json: the seed or the operations that show each mutant. CI says when a note shows nothing any more
#   make lint       style, types, import directions, generated documents
#   make format     rewrite what lint would complain of
#   make docs       write what is generated again: docs/behaviours.md, the types of the blocking twin, the table of backends
#   make lock       pin the newest versions the project allows (needs uv)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
# Tests wait for disks and servers: a worker more than the machine has processors, and two where servers are required.
WORKERS ?= $(if $(MEMORY_REQUIRE),4,$(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 2))'))
UV ?= uv
LOCKED := pyproject.toml tools/install.py
CODE := memory memory_tiers tests tools bench examples

# The tests start Python some hundred times: what it compiled once is kept, in a shell that forbids it, too.
export PYTHONDONTWRITEBYTECODE :=

# What a worker takes as a whole, and in which order, says tests/conftest.py: files, harnesses of the contract, tests on the same servers.
SPREAD := --dist loadgroup --no-loadscope-reorder

# A backend named in MEMORY_REQUIRE=sqlite,in_memory fails the tests where it did not run.
RUN_TESTS := -m pytest --numprocesses $(WORKERS) $(SPREAD) --quiet $(PYTEST_FLAGS)
PYTEST := $(BIN)/python $(RUN_TESTS)

# Tests that need no server and no other process, and cover the engine, the facade and the domain.
QUICK_TESTS := tests/unit/domain tests/unit/policies tests/unit/ports tests/unit/facade tests/unit/agents tests/unit/orchestrator

# What measures the branches of the engine: its own tests, without servers. In a process that listens to Python's audits, as the contract does, tracing can keep a thread from starting.
ENGINE_TESTS := tests/unit tests/acceptance --ignore tests/unit/adapters -m "not server"

.DEFAULT_GOAL := help
.PHONY: help demo test quick nightly fitness fitness-ci conformance branches check lint lint-types lint-style lint-imports lint-documents format docs simulate model noticed prove bench up down image lock install install-dev clean

help:
	@sed -n 's/^#   //p' Makefile

$(RUN): requirements/run.lock $(LOCKED)
	@$(PYTHON) tools/install.py run

$(DEV): requirements/dev.lock $(LOCKED)
	@$(PYTHON) tools/install.py dev

install: $(RUN)
install-dev: $(DEV)

demo: $(RUN)
	@$(BIN)/memory demo

test: $(DEV)
	@$(PYTEST)

quick: $(DEV)
	@changed=$$(git diff --name-only --diff-filter=d HEAD -- '*.py'; git ls-files --others --exclude-standard -- '*.py'); \
	if [ -n "$$changed" ]; then $(BIN)/ruff check $$changed && $(BIN)/ruff format --check $$changed; fi
	@$(BIN)/mypy
	@MEMORY_REQUIRE= $(PYTEST) $(QUICK_TESTS) -m "not server and not thorough"

nightly: $(DEV)
	MEMORY_NIGHTLY=1 $(PYTEST) tests --ignore tests/contract/test_built_ins.py -m "nightly or drawn"
	MEMORY_NIGHTLY=1 $(PYTEST) tests/contract/test_built_ins.py --contract-depth quick -m nightly
	MEMORY_REQUIRE= $(BIN)/python $(RUN_TESTS) --numprocesses 1 tests/unit -m processor
	$(MAKE) branches
	$(BIN)/python -m tools.wheel contract -m "not server"
	$(MAKE) fitness
	$(BIN)/python -m tools.pythons

# Each framework in an environment of its own, under .fitness/.
fitness: $(DEV)
	$(BIN)/python -m tools.fitness $(FRAMEWORKS)

# The three that CI runs.
fitness-ci: $(DEV)
	$(BIN)/python -m tools.fitness --ci

conformance: $(DEV)
	$(BIN)/python -m tests.mcp.conformance

branches: $(DEV)
	@rm -f .coverage .coverage.*
	@MEMORY_REQUIRE= $(BIN)/python -m coverage run $(RUN_TESTS) $(ENGINE_TESTS)
	@MEMORY_REQUIRE= MEMORY_THOROUGH=1 $(BIN)/python -m coverage run $(RUN_TESTS) tests/unit/domain
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report
	@for part in domain policies orchestrator; do \
	  printf 'memory/%s: ' "$$part"; \
	  $(BIN)/coverage report --format=total --precision=1 --fail-under=95 --include="memory/$$part/*" || missed=1; \
	done; test -z "$$missed"

check: lint
	@$(PYTEST) -m "not server"

# In parts, so that CI does several at once.
lint: lint-types lint-style lint-imports lint-documents

lint-types: $(DEV)
	$(BIN)/mypy

lint-style: $(DEV)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

lint-imports: $(DEV)
	$(BIN)/lint-imports

lint-documents: $(DEV)
	$(BIN)/python -m tools.behaviours --check
	$(BIN)/python -m tools.blocking_stub --check
	$(BIN)/python -m tools.support_matrix --check

format: $(DEV)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

docs: $(DEV)
	$(BIN)/python -m tools.behaviours
	$(BIN)/python -m tools.blocking_stub
	$(BIN)/python -m tools.support_matrix

simulate: $(DEV)
	$(BIN)/python -m tests.simulation $(if $(SESSIONS),--sessions) $(if $(RULES),--rules) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED))
	$(if $(SEED)$(SESSIONS)$(RULES),,$(BIN)/python -m tests.simulation --sessions $(if $(SEEDS),--seeds $(SEEDS)))
	$(if $(SEED)$(SESSIONS)$(RULES),,$(BIN)/python -m tests.simulation --rules $(if $(SEEDS),--seeds $(SEEDS)))

# A run of the model test is kept in a folder, and taken up again from there.
MODEL_RUNS := .model-runs
model: $(DEV)
	$(BIN)/python -m tests.model $(if $(filter command line,$(origin TOPOLOGY)),--topology $(TOPOLOGY)) $(if $(SEED),--seed $(SEED)) $(if $(OPERATIONS),--operations $(OPERATIONS))

# Each judge's tests of its mutants.
noticed: $(DEV)
	MEMORY_NOTE=1 MEMORY_THOROUGH=1 $(PYTEST) tests/simulation tests/model $(HISTORIES) -k "is_noticed or a_mutation or mutation_shows or show_a_mutation or a_fault_of_the_facade"

# The engine's own drawn histories, of which CI plays some.
HISTORIES := tests/acceptance/test_browse_drawn.py $(addprefix tests/unit/,adapters/file/test_bytes_apart_drawn.py $(addprefix orchestrator/,test_plan.py test_numbers.py test_enriching.py test_forms.py test_long_texts.py \
  test_tenants.py conversations/test_manifests.py conversations/test_passages_drawn.py conversations/test_acknowledged.py))

prove: $(DEV)
	$(BIN)/python -m tests.simulation --seeds 20000
	$(BIN)/python -m tests.simulation --sessions --seeds 5000
	$(BIN)/python -m tests.simulation --rules --seeds 5000
	$(BIN)/python -m tests.simulation.extracting --seeds 2000
	MEMORY_HISTORY=1500 MEMORY_PROVE=1 $(PYTEST) tests/contract/test_built_ins.py --contract-depth full
	MEMORY_PROVE=1 $(BIN)/python -m pytest --quiet tests/faults/test_killed_sessions.py tests/faults/test_killed_extraction.py
	MEMORY_PROVE=1 $(PYTEST) $(HISTORIES)
	$(BIN)/python -m tests.growth
	$(BIN)/python -m tests.model --topology default --operations 100000 --folder $(MODEL_RUNS)/long
	$(BIN)/python -m tests.model --operations 10000 --folder $(MODEL_RUNS)
	rm -rf $(MODEL_RUNS)

bench: $(DEV)
	$(BIN)/python -m bench $(BENCH_FLAGS)

# Docker's own compose where there is one, else the older docker-compose, which cannot wait: tools/compose.py does.
TOPOLOGY ?= redis-postgres-qdrant
up:
	@$(PYTHON) tools/compose.py up $(TOPOLOGY) $(if $(WORKER),worker) $(if $(SERVE),serve)

down:
	@$(PYTHON) tools/compose.py down $(TOPOLOGY)

# What the image is made from: any with Python 3.11 or newer and glibc.
BASE ?= python:3.13-slim
IMAGE ?= memory-tiers:latest
image: $(DEV)
	@$(BIN)/python -m tools.image $(BASE) $(IMAGE)

# No address of a package registry is written into the locks: pip asks the one this machine is set up with.
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate
lock:
	$(COMPILE) --upgrade pyproject.toml --group build -o requirements/run.lock
	$(COMPILE) --upgrade pyproject.toml --group build --extra dev -c requirements/run.lock -o requirements/dev.lock
	echo uv | $(COMPILE) --upgrade - -o requirements/uv.lock

clean:
	rm -rf $(VENV) .fitness $(MODEL_RUNS) build dist htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
