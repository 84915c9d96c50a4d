# Two commands set up everything they need, also on a fresh machine (see scripts/setup.sh):
#
#   make demo     load the flights of 2013 through Spark, correct them, look at them
#   make test     everything: lint, types, tests
#
# `make help` lists the rest.

BIN := .venv/bin
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
SHARED := -n 2 --dist loadgroup --max-worker-restart 1 # a test that ends its process does so once more, and no further
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE # else each process that starts compiles merganser again, for a second
.NOTPARALLEL: # all of them share one environment, and the machine
.PHONY: demo test whole setup environment lint types unit format docs site site-serve soak serial streams everything interop live changelog build sbom release-check clean help

demo: setup ## load the flights of 2013 through Spark, correct them, look at them
	@$(BIN)/merganser demo

test: setup lint types ## everything: lint, types, tests
	$(BIN)/python -m pytest $(SHARED)

whole: setup ## all tests, and of tests with many cases all of them; half an hour
	$(BIN)/python -m pytest $(SHARED) --whole

setup: ## the environment in .venv, and Java; quick when it is there
	@scripts/setup.sh

environment:
	@scripts/setup.sh --no-java

lint: environment ## rules and layout of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# NumPy's stubs fit the Python they were installed for, and no older one.
types: environment ## strict types
	$(BIN)/mypy --python-version "$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')"

unit: environment ## tests that need neither Java nor another client
	$(BIN)/python -m pytest -m "not spark and not peers and not slow"

format: environment ## lay the code out as lint wants it
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

docs: environment ## write the pages of docs/reference anew
	$(BIN)/python -m tests.docs.generate

site: environment ## the documentation as a site, in build/site; broken links end it
	$(MKDOCS) build --quiet

site-serve: environment ## the same on http://127.0.0.1:8000, built again when a page changes
	$(MKDOCS) serve --dev-addr 127.0.0.1:8000

soak: environment ## kill writers, compactors and readers 500 times: nothing lost, doubled or wrong
	$(BIN)/python -m tests.soak --kills 500

serial: environment ## overlapping writers, killed and with lost replies: every read is the state after whole commits
	$(BIN)/python -m tests.serial --seconds 60

streams: setup ## kill a chain of Spark streams 40 times: no batch lost or applied twice; an hour
	$(BIN)/python -m tests.streams --kills 40

everything: environment ## 300 histories that draw layouts, steps and readings of all kinds, against rows in a dictionary
	$(BIN)/python -m tests.everything --seeds 0:300

interop: environment ## share tables with Paimon's Java; needs a JDK, downloads 100 MB once, 10 minutes
	$(BIN)/python -m tests.witness

live: setup ## tables follow a real PostgreSQL and MariaDB through Debezium; installs them, fetches 100 MB once, 15 minutes
	$(BIN)/python -m tests.live

changelog: environment ## move changelog.d into CHANGELOG.md: VERSION=0.2.0 DATE=2026-12-01; DRAFT=1 prints only
	$(BIN)/towncrier build --version $(VERSION) --date $(DATE) $(if $(DRAFT),--draft,--yes)

# Tools of a release have an environment of their own: they need other versions of some packages than tests do.
.release/made: pyproject.toml
	python3 -m venv --clear .release
	.release/bin/python -m pip install --quiet --disable-pip-version-check build hatchling twine cyclonedx-bom
	touch $@

build: .release/made ## the sdist and the wheel, in dist
	rm -rf dist
	.release/bin/python -m build --no-isolation

sbom: build ## dist/sbom.cdx.json: the packages that the wheel of dist brings, with its extra `all`, as pip resolves them now
	.release/bin/python scripts/sbom.py dist/*.whl dist/sbom.cdx.json

release-check: sbom ## build what a release publishes, and check it
	.release/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz

bench-%: setup ## bench-quick: ten workloads beside the last recorded run, 3 minutes; others: see benchmarks/README.md
	$(BIN)/python -m benchmarks.$*

clean: ## remove what was built, the environment included
	rm -rf .venv .release .demo .bench .hdfs .live .witness .streams .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist spark-warehouse metastore_db artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z%-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done
