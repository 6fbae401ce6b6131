# make install | lint | test | test-slow | test-kubernetes | test-node | soak | demo | bench: each does all its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
WORKERS ?= 6

.PHONY: install prepare-demo prepare-test lint check-style check-format check-types check-imports check-words
.PHONY: check-page check-advisories
.PHONY: test test-slow clients
.PHONY: all-tests coverage soak soak-spark demo bench release lock images wheelhouse docs chart-docs event-docs clean
.PHONY: pictures prepare-kubernetes prepare-node test-kubernetes test-kubernetes-slow test-node test-images

install: $(STAMP) $(COMPILED)

$(STAMP): requirements.lock pyproject.toml setup.py tools/install.sh
	@tools/prepare.sh install "$(PYTHON)"
	@tools/install.sh "$(PYTHON)" "$(VENV)"
	@touch $@

# Where Python may not write its bytecode (PYTHONDONTWRITEBYTECODE), every start of a service would compile all it imports.
$(COMPILED): $(STAMP) $(shell find enmasse services spark -name '*.py')
	@$(BIN)/python -m compileall -q enmasse services spark
	@touch $@

prepare-demo prepare-test prepare-kubernetes prepare-node: prepare-%:
	@tools/prepare.sh $* "$(PYTHON)"

# Side by side; each prints what it has to report in one piece. Without MAKEFLAGS: make warns of --jobs in a make that
# has it already.
lint: install
	@MAKEFLAGS= nice $(MAKE) --no-print-directory --jobs=4 --output-sync check-style check-format check-types check-imports check-words \
	  check-page check-advisories

check-style:
	$(BIN)/ruff check .
check-format:
	$(BIN)/ruff format --check .
check-types:
	$(BIN)/mypy
check-imports:
	$(BIN)/lint-imports
check-words:
	@$(BIN)/python tools/words.py
# The console's page, by Biome and TypeScript; npm fetches them once into the user's cache. Left out without npm.
check-page:
	@$(BIN)/python tools/check_page.py
# Of the packages in requirements.lock. Without access to the advisory database this is stated, and is no failure.
check-advisories:
	@$(BIN)/python tools/audit.py

test: prepare-test install
	@$(MAKE) --no-print-directory --jobs=3 lint clients all-tests # lint and clients beside the first tests

# The tests that need a client wait for it.
clients: install
	@$(BIN)/python -m tests.interop.clients

# More processes than cores: tests wait most of the time. pytest, and the programs in tests, keep what they compile.
# With FLAKY (a file) in the environment, what failed runs once more, alone: tests/again.py.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m $(if $(FLAKY),tests.again,tests.contained) $(BIN)/pytest
BESIDE := --numprocesses $(WORKERS) --durations 20
all-tests: install
	$(PYTEST) $(BESIDE) -m "not slow" --examples 0.1

# The tests with the mark `slow`, and property tests with all their examples.
test-slow: prepare-test install clients
	$(PYTEST) $(BESIDE) -m "slow or hypothesis"

# Lines and branches that the tests of the fast rooms run, in the processes that they start too.
ROOMS ?= amqp configserv control model mqtt mqtt_gateway ragent reconcile storage_controller stores subserv
coverage: install
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ROOMS:%=tests/%) --numprocesses 2
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# The programs are built once for a user; each process of pytest has a cluster of its own.
test-kubernetes: prepare-kubernetes install
	$(BIN)/python -m tests.kubernetes.binaries
	$(PYTEST) tests/kubernetes --numprocesses 3 --durations 10 -m "not slow"

# Thousands of objects in the cluster.
test-kubernetes-slow: prepare-kubernetes install
	$(BIN)/python -m tests.kubernetes.binaries
	$(PYTEST) tests/kubernetes --durations 10 -m slow

# A kubelet with containerd and our images, in namespaces of their own: as root.
test-node: prepare-node install
	$(BIN)/python -m tests.kubernetes.binaries etcd kube helm coredns pause
	$(BIN)/python -m tests.kubernetes.packages
	$(BIN)/python -m tests.images
	$(BIN)/python -m tests.kubernetes.images
	$(BIN)/python -m tests.kubernetes.isolated $(BIN)/pytest tests/kubernetes/on_node --durations 10

# Each image alone, in podman; as root.
test-images: prepare-node install
	$(BIN)/pytest tests/images --durations 10

# Pictures of the console and the terminal in docs, made by their tests.
pictures: prepare-test install
	$(BIN)/python -m tests.console.pictures
	ENMASSE_PICTURES=1 $(BIN)/pytest tests/console/test_top.py

soak: install
	$(BIN)/python -m tests.soak

# Ten kills of each kind (SOAK_KILLS) of the Spark source and sink under load: half an hour, or SOAK_SECONDS.
soak-spark: prepare-test install
	$(BIN)/python -m tests.soak.spark

demo: prepare-demo install
	$(BIN)/python -m demo

bench: install
	$(BIN)/python -m benchmarks

# Two commits, of VERSION and of the next development version: docs/releasing.md.
release: install
	@$(BIN)/python tools/release.py "$(VERSION)"

lock: install
	$(BIN)/uv pip compile -q --python-version 3.11 pyproject.toml --extra dev --generate-hashes --no-header -o requirements.lock
	$(BIN)/uv pip compile -q --python-version 3.11 pyproject.toml --extra otel --extra redis -c requirements.lock --generate-hashes --no-header -o images/requirements.lock
	$(BIN)/uv pip compile -q --python-version 3.11 --group docs --generate-hashes --no-header -o tools/docs_site.lock
	for extra in kubernetes spark; do \
	  $(BIN)/uv pip compile -q --python-version 3.11 pyproject.toml --extra otel --extra redis --extra $$extra -c requirements.lock --generate-hashes --no-header \
	    $$(sed -n 's/^\([^ =]*\)==.*/--no-emit-package \1/p' images/requirements.lock) -o images/requirements-$$extra.lock; \
	done

# With podman, buildah or docker, for any Python: images/build.sh has the variables.
images:
	@images/build.sh

# Wheels of EnMasse and of all that images/requirements.lock pins, for PYTHON: docs/guides/install.md.
wheelhouse:
	@tools/prepare.sh install "$(PYTHON)"
	@tools/wheelhouse.sh "$(PYTHON)" dist/wheelhouse

# The documentation as a site, in out/site. A broken link, or a page without a place in mkdocs.yml, fails. What builds it
# is in an environment of its own.
docs: install
	@$(BIN)/uv venv --quiet --allow-existing out/mkdocs
	@VIRTUAL_ENV=out/mkdocs $(BIN)/uv pip install --quiet --require-hashes --requirement tools/docs_site.lock
	@NO_MKDOCS_2_WARNING=1 out/mkdocs/bin/mkdocs build

# The chart's README, from its values. HELM_DOCS_FLAGS=--dry-run prints it.
chart-docs: prepare-kubernetes install
	@$$($(BIN)/python -m tests.kubernetes.binaries --path helm-docs) --chart-search-root charts/enmasse --log-level error $(HELM_DOCS_FLAGS)

# The page of log events, from their catalogue.
event-docs: install
	@$(BIN)/python -m enmasse.logs.events > docs/events.md
	@$(BIN)/python -m enmasse.errors > docs/errors.md

clean:
	rm -rf .coverage .coverage.* $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache
