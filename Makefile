# make install | lint | test | soak | demo | bench: each does all its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled

.PHONY: install prepare-demo prepare-test lint test soak demo bench lock clean

install: $(STAMP) $(COMPILED)

$(STAMP): requirements.lock pyproject.toml tools/install.sh
	@tools/prepare.sh install "$(PYTHON)"
	@tools/install.sh "$(PYTHON)" "$(VENV)"
	@touch $@

# Where Python may not write its bytecode (PYTHONDONTWRITEBYTECODE), every start of a service would compile all it imports.
$(COMPILED): $(STAMP) $(shell find enmasse services spark -name '*.py')
	@$(BIN)/python -m compileall -q enmasse services spark
	@touch $@

prepare-demo prepare-test: prepare-%:
	@tools/prepare.sh $* "$(PYTHON)"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: prepare-test install lint
	@$(BIN)/python -m tests.interop.clients
	$(BIN)/pytest

soak: install
	$(BIN)/python -m tests.soak

demo: prepare-demo install
	$(BIN)/python -m demo

bench: install
	$(BIN)/python -m benchmarks

lock: install
	$(BIN)/uv pip compile -q pyproject.toml --extra spark --extra dev --generate-hashes --no-header -o requirements.lock

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache
