# Needs Python 3.11 or newer and make; everything else goes into .venv, from a lock file with hashes.
.DEFAULT_GOAL := help
.PHONY: help run tour test test-matrix test-pythons slow conformance frameworks check fmt reference bench lock clean engines
.DELETE_ON_ERROR:
# Tests start hundreds of processes: where it is set, each of them compiles all of Toolgate again.
unexport PYTHONDONTWRITEBYTECODE

ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
endif

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(READY) ## Set up and serve demo content until Ctrl-C; SERVE="--port 0" and other options of toolgate serve
	@$(BIN)/toolgate serve --demo $(SERVE)

tour: $(READY) ## Set up and show the commands of the terminal in a tour of two minutes
	@$(BIN)/python examples/tour/tour.py

# Which tests are of the matrix: tests/matrix.py. Those with random examples are in both, there with more of them.
# Each worker takes a part of the files, and then from the others': so they seldom set up twice what a file shares. There are
# more of them than cores, because tests wait for processes, servers and clocks.
WORKERS := 6
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=25 --durations-min=1
MEASURED = $(if $(MEASURE),rm -rf build/coverage && COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml)
test: engines ## Set up and run the tests, each promise on one backend; TESTS= names some of them
	$(MEASURED) $(PYTEST) -m "not matrix and not slow" $(TESTS)

test-matrix: engines ## Run the rest: every other backend, jail, user and transport, more random examples, and what takes long
	$(PYTEST) -m "(matrix or hypothesis) and not slow" --hypothesis-profile=matrix $(TESTS)

.PHONY: test-list
test-list: $(READY) ## Write into build/tests.md which tests are left to the matrix, and what holds each requirement in make test
	@mkdir -p build
	@$(BIN)/python -m pytest --collect-only -qq --matrix-report=build/tests.md >/dev/null && echo "written: build/tests.md"

.PHONY: coverage
coverage: ## Run the tests of make test and measure their branch coverage, with a floor for each package
	@$(MAKE) --no-print-directory test MEASURE=1
	@$(MAKE) --no-print-directory floors

.PHONY: floors
floors: $(READY) ## Show the coverage that make coverage measured last, and fail where it is below a floor
	@$(BIN)/python -m tests.branch_coverage $(FLOORS)

.PHONY: again
again: $(READY) ## Run the few that failed in make test or test-matrix once more, one at a time
	@$(BIN)/python -m tests.unsteady

slow: engines ## Run the slow tests
	$(BIN)/python -m pytest -m slow $(TESTS)

conformance: engines ## Run the official MCP conformance suite (needs npm)
	$(BIN)/python -m tests.conformance.run
	$(BIN)/python -m tests.conformance.run --side server --processes 2

.PHONY: soak
SECONDS := 300
soak: $(READY) ## Mixed load on a server for five minutes, or SECONDS=1800; nothing may fail, grow or be lost
	$(BIN)/python -m tests.soak.run --seconds $(SECONDS)

.PHONY: test-n8n
test-n8n: $(READY) ## Install a real n8n from npm, outside of the checkout (3 GB), and run the workflows of examples/n8n in it
	$(BIN)/python -m tests.n8n.installation
	TOOLGATE_TEST_REQUIRE=n8n $(BIN)/python -m pytest -m slow tests/n8n

frameworks: .venv/frameworks/.ready .venv/langchain-mcp/.ready ## Test the adapters with the agent frameworks, and run the pages on these
	$(PIP) --python .venv/frameworks install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/mypy --python-executable .venv/frameworks/bin/python src/toolgate/adapters
	.venv/frameworks/bin/python -m pytest --confcutdir=tests/adapters -o python_files='*_tools.py *_sessions.py *_routes.py' tests/adapters
	$(BIN)/python -m pytest tests/docs/framework_pages.py

.PHONY: package
package: $(READY) ## Build the wheel and the sdist, and try them in a clean environment
	$(BIN)/python -m tests.package.run

PYTHONS := python3.12 python3.13
test-pythons: ## Run the tests on those of PYTHONS="python3.12 python3.13" that are found, each in an environment of its own
	@found= failed=; for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null) || \
			{ echo "$$python is not found, so no tests are run on it" >&2; continue; }; \
		found="$$found $$version"; \
		$(MAKE) --no-print-directory test VENV=.venv/$$version PYTHON=$$python || failed="$$failed $$version"; \
	done; \
	if [ -n "$$failed" ] || [ -z "$$found" ]; then echo "run on:$${found:- none}; failed on:$${failed:- none}" >&2; exit 1; fi

check: $(READY) ## Lint, format, types, layers, references and links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/docs/test_reference.py tests/docs/test_markdown.py tests/architecture

fmt: $(READY) ## Format and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: $(READY) ## Write the Python reference, the stages, the list of tools and the picture of the architecture again, from the source
	$(BIN)/python -m tests.docs.synchronous_client
	$(BIN)/python -m tests.docs.synchronous_app
	$(BIN)/python -m tests.docs.python_reference
	$(BIN)/python -m tests.docs.stages
	$(BIN)/python -m tests.docs.tool_index
	$(BIN)/python -m tests.docs.architecture

bench: $(READY) ## Measure against peers
	$(BIN)/python benchmarks/run.py

COMPILE = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-strip-extras \
	--custom-compile-command 'make lock' --quiet $(UPGRADE)
IMAGE_EXTRAS := postgres redis opa mcp serve telemetry http notify sandbox scan tokens dates
lock: $(BIN)/python ## Write the lock files in requirements/ again; UPGRADE=--upgrade takes the newest of everything
	$(PIP) install --quiet 'uv>=0.13.7'
	$(COMPILE) pyproject.toml --extra all --group dev --output-file requirements/lock.txt
	@# pip before 23.3 compares extras as they are written, and its metadata has an underscore here
	sed -i 's/^lxml\[html-clean\]/lxml[html_clean]/' requirements/lock.txt
	$(COMPILE) pyproject.toml --extra mcp --extra serve requirements/frameworks.in --output-file requirements/frameworks.txt
	$(COMPILE) pyproject.toml $(IMAGE_EXTRAS:%=--extra %) --output-file requirements/image.txt
	$(COMPILE) requirements/langchain-mcp.in --output-file requirements/langchain-mcp.txt

.PHONY: screenshots
screenshots: engines ## Take pictures of the console's pages again, for docs/images
	$(BIN)/python -m tests.console.screenshots

.PHONY: recording
recording: $(READY) ## Record the first five minutes again, for docs/recording
	$(BIN)/python docs/recording/record.py

clean: ## Remove what make and the tools wrote
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# On all cores: pip has but one at work. Some packages hold templates that are no Python.
compile = @$(1)/bin/python -m compileall -q -j 0 $(1)/lib >/dev/null || true

$(READY): requirements/lock.txt requirements/oracle.txt pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV): this takes a minute or two, once."
	$(PIP) install --quiet --no-compile --require-hashes -r requirements/lock.txt
	$(PIP) install --quiet --no-compile --ignore-requires-python --no-deps --require-hashes -r requirements/oracle.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	$(call compile,$(VENV))
	@touch $@

# Environments of their own for agent frameworks: they are large, and one needs another version of a library than Toolgate.
.venv/%/.ready: requirements/%.txt | $(READY)
	$(BIN)/python -m venv --clear .venv/$*
	$(PIP) --python .venv/$* install --quiet --no-compile --require-hashes -r requirements/$*.txt
	$(call compile,.venv/$*)
	@touch $@

# What the tests need besides Python (tests/needs.py). Where it can't be installed, those that need it wait and are counted.
engines: $(READY)
	@packages=$$($(BIN)/python -m tests.needs packages); \
	if [ -n "$$packages" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "apt-get install $$packages"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq >/dev/null; \
		for package in $$packages; do \
			apt-get install -y -qq --no-install-recommends $$package >/dev/null || \
				echo "Not installed: $$package; the tests that need it wait" >&2; \
		done; \
	fi

# Debian and Ubuntu keep the half of venv that brings pip in a package of its own.
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Toolgate needs Python 3.11 or newer: install it, or say PYTHON=/path/to/python" >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip; ensurepip.version()' 2>/dev/null; then \
		package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq && { apt-get install -y -qq $$package || apt-get install -y -qq python3-venv; }; \
		else \
			echo "$(PYTHON) cannot make virtual environments: install $$package (apt-get install $$package), then run make again" >&2; \
			exit 1; \
		fi; \
	fi
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
