# What a person types: `make run`, `make test`. Each sets up what it needs, says what it is doing, and is quick the second
# time. Everything is made inside this folder: .venv, target, klamm-data.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

export PATH := $(PATH):$(HOME)/.cargo/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Half of the time tests wait: for a node, a JVM, a disk. So there are more of them at once than cores.
PYTEST_WORKERS ?= $(shell echo $$(( 2 * $(CORES) )))
export RUST_TEST_THREADS ?= $(shell echo $$(( 2 * $(CORES) )))
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 60
DIST ?= dist
SMOKE_CASES ?= 2000
# Simulated runs that `make test` plays, of quorums with static voters, of those with voters that change, and of brokers (CI
# plays 2000, 1000 and 2000), and those of each kind that `make simulate` plays.
SIMULATION_SEEDS ?= 200
SIMULATION_DYNAMIC_SEEDS ?= 100
SIMULATION_BROKER_SEEDS ?= 200
SEEDS ?= 2000
FIRST_SEED ?= 1
# Processes that `make kills` kills; `make slow` has a share of them.
KILLS ?= 1000
KILLS_ARGS ?=
# `make test` tries the same cases each time, so that it fails for a change and not by luck; `make slow` draws new ones.
PROPTEST_RNG_SEED ?= 595
SLOW_PROPTEST_CASES ?= 2000

NATIVE_SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find rust -path rust/fuzz -prune -o \
	\( -name '*.rs' -o -name Cargo.toml \) -print)

SAY := @printf '\033[1mklamm:\033[0m %s\n'

.PHONY: help
help:
	@sed -n 's/^## //p' Makefile

## make run      set everything up and run a node on localhost:9092, data in ./klamm-data, until Ctrl-C
.PHONY: run
run: $(VENV)/native
	@exec $(BIN)/klamm start

## make test     set everything up, then `make verify` and every test
.PHONY: test
test: .set-up verify test-rust test-python

## make verify   format, lints, types, import contracts, generated code: reads only, changes no file
.PHONY: verify .verify-python .verify-rust
verify: .set-up
	$(SAY) "checking format, lints, types and import contracts"
	@$(TOGETHER) .verify-python .verify-rust

.verify-python:
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m mypy.stubtest klamm._engine --concise --allowlist tools/stubtest-allowlist.txt
	@$(BIN)/python tools/generate_metadata_records.py --check
	@$(BIN)/python tools/generate_api_table.py --check
	@$(BIN)/lint-imports --no-logo

.verify-rust:
	@cargo fmt --check
	@cargo clippy --locked --quiet --workspace --all-targets -- -D warnings

## make verify-macos   type-check the Rust half for macOS from any system (rustup fetches the target's std)
.PHONY: verify-macos
verify-macos: .toolchain
	@rustup target add aarch64-apple-darwin
	@CC_aarch64_apple_darwin="$(CURDIR)/tools/cc-for-check" AR_aarch64_apple_darwin=ar PYO3_CROSS_PYTHON_VERSION=3.11 \
		cargo check --locked --target aarch64-apple-darwin --workspace

## make test-rust, make test-python   one half of the tests alone; PYTEST_ARGS="tests/unit/raft": some Python tests
.PHONY: test-rust test-python slow
test-rust: .toolchain
	$(SAY) "running the Rust tests (the first time compiles them: some minutes)"
	@PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED) SMOKE_CASES=$(SMOKE_CASES) cargo test --locked --quiet --workspace

# pytest's 5: arguments of yours chose no test of this half.
NONE_IS_FINE = $(if $(strip $(PYTEST_ARGS)),|| [ $$? = 5 ])

.PHONY: .test-python-alone .test-python-with-spark
test-python: .set-up
	$(SAY) "running the Python tests; those with Spark in a second process, whose output comes at the end"
	@status=0; $(TOGETHER) .test-python-alone .test-python-with-spark || status=$$?; cat target/spark-tests.log; exit $$status

.test-python-alone:
	@KLAMM_SIMULATION_SEEDS=$(SIMULATION_SEEDS) KLAMM_SIMULATION_DYNAMIC_SEEDS=$(SIMULATION_DYNAMIC_SEEDS) \
		KLAMM_SIMULATION_BROKER_SEEDS=$(SIMULATION_BROKER_SEEDS) $(BIN)/python -m pytest -m "not slow and not spark" \
		-n $(PYTEST_WORKERS) --dist worksteal $(PYTEST_ARGS) $(NONE_IS_FINE)

.test-python-with-spark:
	@mkdir -p target
	@$(BIN)/python -m pytest -m "spark and not slow" $(PYTEST_ARGS) >target/spark-tests.log 2>&1 $(NONE_IS_FINE)

## make slow     the long proofs that `make test` leaves out
slow: $(VENV)/dev $(VENV)/native
	$(SAY) "cutting the power of logs and of whole nodes, more than 10 240 times"
	@KLAMM_CRASH_SEEDS=160 KLAMM_CRASH_CUTS=32 cargo test --locked --quiet -p klamm-log -p klamm-quorum --lib power_cut
	$(SAY) "running the Rust property tests on $(SLOW_PROPTEST_CASES) new cases each"
	@PROPTEST_CASES=$(SLOW_PROPTEST_CASES) cargo test --locked --quiet --workspace
	$(SAY) "running the slow Python tests"
	@$(BIN)/python -m pytest -m slow --timeout 7200 $(PYTEST_ARGS)

## make simulate   SEEDS=2000 simulated runs of quorums with static voters, as many with voters that change, and as many of
##                 brokers, from FIRST_SEED=1 on, each with faults of its own; a failing one prints its replay, Ctrl-C how far it came
.PHONY: simulate
simulate: $(VENV)/dev $(VENV)/native
	@$(BIN)/python -m klamm.testing.simulator --seeds $(SEEDS) --first $(FIRST_SEED)
	@$(BIN)/python -m klamm.testing.simulator --dynamic --seeds $(SEEDS) --first $(FIRST_SEED)
	@$(BIN)/python -m klamm.testing.simulator --brokers --seeds $(SEEDS) --first $(FIRST_SEED)

## make kills    KILLS=1000: kills nodes and applications of three-node clusters while transactions copy topics, and checks
##               every record and offset; a failing life prints its command, Ctrl-C how many were killed
.PHONY: kills
kills: $(VENV)/dev $(VENV)/native
	@$(BIN)/python -m tests.crash.kills --kills $(KILLS) $(KILLS_ARGS)

## make fix      format and repair what can be repaired by itself
.PHONY: fix
fix: $(VENV)/dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@cargo fmt

## make bench    measure against Apache Kafka and the ceiling endpoint; print the table. Single rows by number or
##               name: make bench BENCH_ARGS="--rounds 2 commits librdkafka"; BENCH_ARGS=--help tells of the rest
.PHONY: bench
bench: $(VENV)/dev $(VENV)/native
	@cargo build --locked --quiet --release -p klamm-load
	@$(BIN)/python -m benches $(BENCH_ARGS)

## make docs     build the documentation into target/site, with every link checked
.PHONY: docs
docs: $(VENV)/dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(SAY) "target/site/index.html"

## make docs-check   open every page in Chromium, as wide as a phone and as a desk: links, pictures, overflow
.PHONY: docs-check
docs-check: docs
	@$(BIN)/python -m tests.docs.browser target/site

## make suites   the clients' own test suites: SUITES=folder of runners, SUITE_SOURCES=folder of clones
.PHONY: suites
suites: $(VENV)/dev $(VENV)/native
	@$(BIN)/python -m tests.suites $(SUITES) $(SUITES_ARGS)

## make fuzz     every fuzz target for FUZZ_SECONDS=60; without nightly and cargo-fuzz, a bounded run of our own
.PHONY: fuzz
fuzz: .toolchain
	@if cargo +nightly fuzz --version >/dev/null 2>&1; then \
		for target in $$(cargo +nightly fuzz list --fuzz-dir rust/fuzz); do \
			printf '\033[1mklamm:\033[0m fuzzing %s for %s s\n' "$$target" "$(FUZZ_SECONDS)"; \
			cargo +nightly fuzz run --fuzz-dir rust/fuzz "$$target" -- -timeout=10 -max_total_time=$(FUZZ_SECONDS); \
		done; \
	else \
		printf '\033[1mklamm:\033[0m no cargo-fuzz for the nightly toolchain: mutating the seeds without it\n'; \
		cargo run --profile fuzz --locked --quiet -p klamm-fuzz --bin smoke; \
	fi

## make dist     the source distribution and the wheel that is built from it, in DIST=dist; auditwheel checks the wheel's tag
.PHONY: dist
dist: $(VENV)/dev .toolchain
	$(SAY) "building a source distribution, and a wheel from it (some minutes)"
	@CARGO_TARGET_DIR="$(CURDIR)/target" $(BIN)/maturin build --release --sdist --compatibility pypi --auditwheel check --out $(DIST)
	@if [ "$$(uname)" = Linux ]; then $(BIN)/auditwheel show $(DIST)/klamm-*.whl; fi

## make lock     write the lock files of the Python dependencies again (needs uv)
.PHONY: lock
lock:
	@uv pip compile -q --universal --generate-hashes --python-version 3.11 --group dev pyproject.toml \
		--custom-compile-command 'make lock' -o requirements-dev.lock
	@uv pip compile -q --universal --generate-hashes --python-version 3.11 --group build pyproject.toml \
		--custom-compile-command 'make lock' -c requirements-dev.lock --no-annotate -o requirements.lock

## make clean    remove what was built (keeps ./klamm-data)
.PHONY: clean
clean:
	@rm -rf $(VENV) target rust/fuzz/target dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find python tests -name '__pycache__' -prune -exec rm -rf {} +
	@rm -f python/klamm/_engine*.so

# ---- how it is set up ----

# Two at a time: the one computes while the other downloads or has work for one core only.
TOGETHER := $(MAKE) -j2

# What tests need: the development tools are fetched while the engine is compiled.
.PHONY: .set-up
.set-up: $(VENV)/runtime
	@$(TOGETHER) $(VENV)/dev $(VENV)/native

.PHONY: .toolchain
.toolchain:
	@command -v cargo >/dev/null || { echo "klamm: no cargo in PATH: install Rust 1.95 or newer (https://rustup.rs)"; exit 1; }
	@command -v cc >/dev/null || { echo "klamm: no C compiler in PATH: install gcc or clang (Debian: apt install build-essential)"; exit 1; }

$(VENV)/made:
	@[ -n "$(PYTHON)" ] || { echo "klamm: no Python 3.11 or newer in PATH: install one, or say make PYTHON=/path/to/python3"; exit 1; }
	$(SAY) "making a Python environment in $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "klamm: '$(PYTHON) -m venv' failed (Debian: apt install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/runtime: requirements.lock $(VENV)/made
	$(SAY) "installing the Python dependencies that run needs"
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r requirements.lock
	@touch $@

$(VENV)/dev: requirements-dev.lock $(VENV)/made | $(VENV)/runtime
	$(SAY) "installing the Python dependencies that the tests need"
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

# The engine goes into python/klamm, and $(VENV) points there: a change of a Python file needs no step at all.
$(VENV)/native: $(NATIVE_SOURCES) $(VENV)/runtime | .toolchain
	$(SAY) "compiling the engine (release; the first time takes some minutes)"
	@VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin develop --release --locked --skip-install
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@
