# Every target creates the environment that it needs: after a clone, `make demo` is enough.
#   PYTHON       interpreter for the environment (3.11 or newer)
#   WORKERS      number of processes for tests and experiments
#   TARGET       what `make reproduce` computes; ARGS: more arguments, such as --splits 5
#   RUNS, ONLY   kills of `make chaos` (other faults in proportion), and one kind of fault
#   SECONDS      time limit of each of the two harnesses of `make fuzz`
#   CONSTRAINTS  file with the versions to install
#   PIP_ARGS     more arguments for pip, for example an index that has the torch build you want
#   PYTEST_ARGS  more arguments for pytest, for example -k kernels
#   COVERAGE_MIN lowest coverage, in per cent, that `make coverage` accepts
PYTHON       ?= python3
WORKERS      ?= 2
TARGET       ?= all
RUNS         ?= 200
ONLY         ?=
SECONDS      ?= 120
CONSTRAINTS  ?= constraints.txt
PIP_ARGS     ?=
PYTEST_ARGS  ?=
COVERAGE_MIN ?= 0

VENV := .venv
BIN  := $(VENV)/bin
PY   := $(BIN)/python
DEPS := $(PY) pyproject.toml $(CONSTRAINTS)
PIP   = $(PY) -m pip install --disable-pip-version-check -c $(CONSTRAINTS) $(PIP_ARGS)

# One thread per process: the workers share the cores, and results do not depend on the number of cores. Bytecode is
# written, whatever the shell says: many tests start processes, and each would compile the package anew.
PYTEST  := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -q
WORKING := -n $(WORKERS) --dist worksteal --durations 20

# The tiers: these files; all files; all files with --all, which tests/conftest.py explains.
QUICK := tests/contract tests/reference tests/golden tests/unit/engine/test_quadrature.py tests/unit/engine/test_softmax_integrals.py \
         tests/unit/engine/test_largest.py tests/unit/test_laws.py

BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome

EXPERIMENT = --jobs $(WORKERS) $(if $(DATA),--data "$(DATA)")
TABLES = $(if $(DATA),CAVITY_DATA="$(DATA)") $(PY) -m experiments

.PHONY: help demo notebooks quick test test-all test-browser test-cluster run-test-cluster coverage fuzz chaos audit lock check lint format docs wheel test-wheel bench bench-quick reproduce compare clean distclean
.DEFAULT_GOAL := help

help:                   ## list the targets
	@echo "cavity: multi-class Gaussian process classification by expectation propagation"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  The first run creates $(VENV) and installs torch, which takes a few minutes."
	@echo "  Variables: PYTHON=$(PYTHON) WORKERS=$(WORKERS) PIP_ARGS=$(PIP_ARGS) DATA=$(DATA)"

demo: $(VENV)/.demo     ## train three classifiers on digits, print a table, draw a figure
	@echo "==> Running the demo"
	@$(PY) examples/demo.py

notebooks: $(VENV)/.demo ## execute the scripts of examples/notebooks, write them as notebooks
	@echo "==> Executing notebooks"
	@OMP_NUM_THREADS=1 $(PY) tools/notebooks.py

quick: $(VENV)/.test    ## know that it works: contracts, reference laws, quadrature, golden values (1 minute on two cores)
	@echo "==> Quick tests ($(WORKERS) processes)"
	@$(PYTEST) $(WORKING) $(QUICK) $(PYTEST_ARGS)

test: $(VENV)/.test     ## run the tests that every change must pass (6 minutes on two cores)
	@echo "==> Tests ($(WORKERS) processes)"
	@$(PYTEST) $(WORKING) $(PYTEST_ARGS)

test-all: $(VENV)/.test ## run everything, as CI does every night: all methods, all values, more examples of each property
	@echo "==> All tests ($(WORKERS) processes)"
	@$(PYTEST) $(WORKING) --all $(PYTEST_ARGS)

test-browser: $(VENV)/.test ## open the HTML report and the page of the server in a browser (installs chromium with apt if there is none)
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	  command -v apt-get >/dev/null || \
	    { echo "No browser ($(BROWSERS)) and no apt-get: install chromium with your system's packages"; exit 1; }; \
	  echo "==> Installing chromium (apt)"; as=$$(test "$$(id -u)" = 0 || echo sudo); \
	  get="$$as apt-get install -y --no-install-recommends chromium"; \
	  $$get || { echo "==> Updating the package lists"; $$as apt-get update && $$get; }
	@echo "==> Opening the report and the page of the server in a browser"
	@$(PYTEST) -rs --all tests/report/test_browser.py tests/cli/test_serving_trial.py

test-cluster:           ## test object stores, MLflow, Ray, Spark and several nodes, in an environment of its own
	@$(MAKE) --no-print-directory VENV=.venv-cluster CONSTRAINTS=constraints-cluster.txt run-test-cluster

run-test-cluster: $(VENV)/.cluster
	@echo "==> Tests of the adapters"
	@$(PYTEST) -rs --all tests/cluster $(PYTEST_ARGS)

coverage: $(VENV)/.dev  ## run make test's tests and measure the lines they cover (COVERAGE_MIN=90)
	@echo "==> Tests with coverage ($(WORKERS) processes)"
	@mkdir -p build
	@$(PYTEST) $(WORKING) --cov=cavity --cov-report=term --cov-report=xml:build/coverage.xml \
	  --cov-fail-under=$(COVERAGE_MIN) $(PYTEST_ARGS)

fuzz: $(VENV)/.fuzz     ## fuzz model files and tables with libFuzzer, SECONDS each
	@for what in load tables; do echo "==> Fuzzing: $$what ($(SECONDS) s)"; \
	  OMP_NUM_THREADS=1 $(PY) tests/fuzz/fuzz_$$what.py -max_total_time=$(SECONDS) -print_final_stats=1 || exit 1; done

chaos: $(VENV)/.test    ## kill runs, fill disks, flip bits, silence ranks, damage tables; count what happens (RUNS=200)
	@echo "==> Faults on purpose (a few kinds: ONLY=kill-fit)"
	@OMP_NUM_THREADS=1 $(PY) -W ignore -m tests.chaos --runs $(RUNS) $(if $(ONLY),--only $(ONLY))
	@$(PY) tools/promises.py

# The packages that users install: the extras for tests, documentation and benchmarks are not among them.
LOCKED := cli plot mcmc onnx serve
lock: $(VENV)/.audit    ## write requirements.lock: every package that users install, with hashes
	@$(BIN)/uv pip compile -q --universal --generate-hashes $(LOCKED:%=--extra %) --python-version 3.11 -c constraints.txt \
	  --no-annotate --custom-compile-command "make lock" pyproject.toml -o requirements.lock

audit: $(VENV)/.audit   ## search the packages of requirements.lock for known vulnerabilities
	@echo "==> Auditing requirements.lock"
	@$(BIN)/pip-audit -r requirements.lock --require-hashes --disable-pip --strict --progress-spinner off || \
	  { echo "==> The audit failed. A package that is 'not found', or a connection error, means that the service with the list of"; \
	    echo "    vulnerabilities did not answer: the packages are then NOT known to be safe. Run it again with a network."; exit 1; }

check: lint             ## run what CI runs for every change: lint, then make test
	@$(MAKE) --no-print-directory test

lint: $(VENV)/.dev      ## check format, style, types, imports and docstrings
	@echo "==> Format";     $(BIN)/ruff format --check .
	@echo "==> Style";      $(BIN)/ruff check .
	@echo "==> Types";      $(BIN)/mypy
	@echo "==> Imports";    $(BIN)/lint-imports --no-logo
	@echo "==> Docstrings"; $(PY) tools/check_docstrings.py
	@echo "==> Comprehensions"; $(PY) tools/check_comprehensions.py

format: $(VENV)/.dev    ## format the code, and fix what the linter can fix
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

docs: $(VENV)/.docs     ## build the documentation in build/site; warnings are errors
	@echo "==> Building the documentation"
	@$(PY) tools/site.py
	@echo "==> build/site/index.html"

wheel: $(PY)            ## build the wheel in dist
	@echo "==> Building the wheel"
	@rm -rf dist && $(PY) -m pip wheel -q --disable-pip-version-check --no-deps -w dist $(PIP_ARGS) .
	@ls -sh dist

test-wheel: $(PY)       ## install the wheel of dist into an environment of its own, fit a model, run the command
	@echo "==> Installing the wheel"
	@rm -rf build/wheel-venv && $(PYTHON) -m venv build/wheel-venv
	@set -- dist/cavity-*.whl; \
	  build/wheel-venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_ARGS) "$$1[cli]"
	@echo "==> Using it"
	@cd build && wheel-venv/bin/python ../tools/try_wheel.py && wheel-venv/bin/cavity --version

bench: $(VENV)/.bench   ## time predictions, steps and the command line on the CPU, update docs/results
	@echo "==> Predictions, the command line, sampling"
	@$(PY) benchmarks/predict.py
	@echo "==> Time of one step, next to GPyTorch"
	@$(PY) benchmarks/step_time.py --csv benchmarks/results/step_time.csv
	@$(PY) -m experiments page

bench-quick: $(VENV)/.test ## compare fits with boosting on five small tables; fail if a ratio has grown by 1.3
	@echo "==> Seconds and log loss, next to histogram gradient boosting"
	@$(PY) benchmarks/quick.py

reproduce: $(VENV)/.bench ## reproduce a table or figure of the papers, update docs/ (TARGET=table2 WORKERS=2 DATA=folder)
	@$(PY) -m experiments $(TARGET) $(EXPERIMENT) $(ARGS)
	@$(PY) -m experiments page

compare: $(VENV)/.peers ## compare with other libraries, update docs/ (WORKERS=2 DATA=folder)
	@$(TABLES) tables --collection raw,large,numeric --jobs $(WORKERS) --methods default,fast,hgb,lgbm,cat,lr,prior,realmlp --out build/tables.jsonl --csv benchmarks/results/raw_tables.csv
	@$(TABLES) curve --jobs $(WORKERS) --out build/curve.jsonl --csv benchmarks/results/row_curve.csv
	@$(PY) -m experiments page

clean:                  ## remove caches, build products and output of the demo (keeps .venv)
	@rm -rf .cache build dist demo-output bench-results .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@echo "==> Clean (make distclean also removes $(VENV))"

distclean: clean        ## clean, and remove .venv
	@rm -rf $(VENV) .venv-cluster
	@echo "==> Removed $(VENV)"

# ---------------------------------------------------------------- the environment
# The file .venv/.EXTRA means: the extra is installed as pyproject.toml and $(CONSTRAINTS) say. A change of either installs again.
EXTRAS_demo := cli,plot
# Extras that contain others: their installation counts for those, too.
COVERS_dev  := test demo
COVERS_test := demo

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cavity needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "==> Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.%: $(DEPS)
	@echo "==> Installing cavity[$(or $(EXTRAS_$*),$*)] (torch is large: a few minutes the first time)"
	@$(PIP) -e '.[$(or $(EXTRAS_$*),$*)]'
	@touch $@ $(COVERS_$*:%=$(VENV)/.%)
