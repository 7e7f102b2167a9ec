# Every target makes the environment it needs: `make demo` is enough after a clone.
#   PYTHON    the interpreter the environment is made from (3.11 or newer)
#   WORKERS   processes that tests and experiments run in
#   TARGET    what `make reproduce` computes; ARGS: further arguments, such as --splits 5
#   SECONDS   how long `make fuzz` tries each of its two harnesses
#   PIP_ARGS  further arguments for pip, say an index that has the build of torch you want
PYTHON   ?= python3
WORKERS  ?= 2
TARGET   ?= all
SECONDS  ?= 120
PIP_ARGS ?=

VENV := .venv
BIN  := $(VENV)/bin
PY   := $(BIN)/python
DEPS := $(PY) pyproject.toml constraints.txt
PIP   = $(PY) -m pip install --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

# One thread a process: the workers share the cores, and results do not depend on how many there are.
TEST := OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(WORKERS) --dist loadfile

BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome

EXPERIMENT = --jobs $(WORKERS) $(if $(DATA),--data "$(DATA)")

.PHONY: help demo test test-all test-browser fuzz check format docs bench reproduce compare clean distclean
.DEFAULT_GOAL := help

help:                   ## show this list
	@echo "cavity: multi-class Gaussian process classification by expectation propagation"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  The first run makes $(VENV) and installs torch into it; that takes a few minutes."
	@echo "  Variables: PYTHON=$(PYTHON) WORKERS=$(WORKERS) PIP_ARGS=$(PIP_ARGS) DATA=$(DATA)"

demo: $(VENV)/.demo     ## train on digits and a toy set, print the table, draw the picture
	@echo "==> Running the demo"
	@$(PY) -m cavity demo

test: $(VENV)/.test     ## the fast tests
	@echo "==> Running the tests ($(WORKERS) processes; slow ones left out: make test-all)"
	@$(TEST)

test-all: $(VENV)/.test ## every test, the slow ones too
	@echo "==> Running every test ($(WORKERS) processes)"
	@$(TEST) -m "slow or not slow"

test-browser: $(VENV)/.test ## install Debian's chromium where there is no browser, and open the report in it
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	  command -v apt-get >/dev/null || \
	    { echo "No browser ($(BROWSERS)) and no apt-get: install chromium with your system's packages"; exit 1; }; \
	  echo "==> Installing chromium (apt)"; as=$$(test "$$(id -u)" = 0 || echo sudo); \
	  get="$$as apt-get install -y --no-install-recommends chromium"; \
	  $$get || { echo "==> Fetching the lists of packages first"; $$as apt-get update && $$get; }
	@echo "==> Opening the report in a browser"
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -rs tests/report/test_browser.py

fuzz: $(VENV)/.fuzz      ## damaged model files and tables, made by libFuzzer, for SECONDS each
	@for what in load tables; do echo "==> Damaging for cavity: $$what ($(SECONDS) s)"; \
	  OMP_NUM_THREADS=1 $(PY) tests/fuzz/fuzz_$$what.py -max_total_time=$(SECONDS) -print_final_stats=1 || exit 1; done

check: $(VENV)/.dev     ## format, lint, types, import direction, tests
	@echo "==> Format";           $(BIN)/ruff format --check .
	@echo "==> Lint";             $(BIN)/ruff check .
	@echo "==> Types";            $(BIN)/mypy
	@echo "==> Import direction"; $(BIN)/lint-imports --no-logo
	@echo "==> Tests ($(WORKERS) processes)"
	@$(TEST)

format: $(VENV)/.dev    ## rewrite the files as `check` wants them
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

docs: $(VENV)/.docs     ## the documentation as a site, in build/site; warnings are errors
	@echo "==> Building the documentation"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q
	@echo "==> build/site/index.html"

bench: $(VENV)/.bench   ## time of a step against GPyTorch, five splits of the papers' Table 2 (DATA=folder)
	@echo "==> Time of one step"
	@$(PY) benchmarks/step_time.py
	@echo "==> Five splits of Table 2, fitted on this machine (rows in bench-results)"
	@$(PY) -m experiments table2 --methods ep sep --inducing 10% --splits 5 --results bench-results $(EXPERIMENT)

reproduce: $(VENV)/.bench ## reproduce a table or figure of the papers, update docs/ (TARGET=table2 WORKERS=2 DATA=folder)
	@$(PY) -m experiments $(TARGET) $(EXPERIMENT) $(ARGS)
	@$(PY) -m experiments page

compare: $(VENV)/.bench ## compare with other libraries, update docs/ (WORKERS=2 DATA=folder)
	@$(PY) -m experiments compare $(EXPERIMENT) $(ARGS)
	@$(PY) -m experiments page

clean:                  ## remove caches, build products and the demo's output (keeps .venv)
	@rm -rf build dist demo-output bench-results .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@echo "==> Clean ($(VENV) kept: make distclean removes it)"

distclean: clean        ## clean, and remove .venv
	@rm -rf $(VENV)
	@echo "==> Removed $(VENV)"

# ---------------------------------------------------------------- the environment
# A stamp stands for "installed as pyproject.toml and constraints.txt say"; touching either installs again.
$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cavity needs Python 3.11 or newer; $(PYTHON) is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "==> Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(DEPS)
	@echo "==> Installing cavity with its command line and plots (torch is large: a few minutes the first time)"
	@$(PIP) -e '.[cli,plot]'
	@touch $@

$(VENV)/.test: $(DEPS)
	@echo "==> Installing cavity and what the tests need (torch is large: a few minutes the first time)"
	@$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.dev: $(DEPS)
	@echo "==> Installing cavity, the tests' needs, formatter, linter and type checker"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(DEPS)
	@echo "==> Installing what builds the documentation"
	@$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.fuzz: $(DEPS)
	@echo "==> Installing cavity and atheris (where it has no wheel, clang's libFuzzer must be there: \$$LIBFUZZER_LIB)"
	@$(PIP) -e '.[fuzz]'
	@touch $@

$(VENV)/.bench: $(DEPS)
	@echo "==> Installing cavity and what the benchmarks compare it with"
	@$(PIP) -e '.[bench]'
	@touch $@
