# Everything that a developer or CI runs. Needs: Python 3.11 or newer, make, and a network for pip
# (and, once, for the sandbox's Go modules). No root, nothing outside this folder but the per-user
# cache of the sandbox's programs (`ebs-provisioner sandbox binaries`).
#
# What really formats and mounts needs Linux, root and a few programs (.ci/run installs them). It is
# skipped elsewhere: `make test` says so first, and lists the skipped tests with the reason at the
# end.

PYTHON ?= python3
BIN := .venv/bin
SET_UP := .venv/.set-up
DEMO_SET_UP := .venv/.set-up-demo
RIGHTS := tests/cluster/test_rights.py
USED_RIGHTS := .pytest_cache/used-rights
WORKERS ?= 4
# Another Kubernetes than the sandbox's own: make demo KUBERNETES=1.35 KUBELET=1.34
ifdef KUBERNETES
export SANDBOX_KUBERNETES := $(KUBERNETES)
endif
ifdef KUBELET
export SANDBOX_KUBELET := $(KUBELET)
endif
# Containers often say that Python may write no bytecode: then each process of each run would compile
# all modules and rewrite all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup check lint types quick unit test suite move-walk compat conformance demo bench image image-lock krew clean

help:
	@echo 'make setup   .venv with everything in it'
	@echo 'make demo    a claim, its volume, a pod: against a real control plane'
	@echo 'make quick   lint, types and the tests that your changes may break; OF="PATH..." of these files'
	@echo 'make unit    all tests that need no control plane'
	@echo 'make test    lint, types and all tests, as CI does'
	@echo 'make suite   all tests alone'
	@echo 'make move-walk  a crash and a lost reply at each request of a VolumeMove'
	@echo 'make compat  the demo and chosen tests on another Kubernetes: KUBERNETES=1.34 [KUBELET=1.33]'
	@echo 'make check   lint and types; make lint, make types: one of the two'
	@echo 'make conformance  Kubernetes end-to-end tests of storage, in the sandbox; QUICK=1, PART=1/3'
	@echo 'make bench   how fast, how many calls, how much memory'
	@echo 'make image   the container image, in dist/; ARCH=arm64 for another architecture'
	@echo 'make image-lock  lock the newest packages for it; needs apt'
	@echo 'make krew    kubectl ebs for krew, in dist/; URL=https://... of the folder it will be in'
	@echo 'make clean   remove .venv and what tools have left'

setup: $(SET_UP)

# Constraints name every package, or pip's resolver tries years of releases one after the other.
# A virtual environment gets pip last: one without it was interrupted, and is completed. Python
# compiles what it loads, and most of these packages is never loaded.
INSTALL = { test -x $(BIN)/pip || $(PYTHON) -m venv .venv; } && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
		--constraint constraints.txt --editable

# The demo and the image need half of it. All is enough for them too, so it sets both stamps.
$(SET_UP): pyproject.toml constraints.txt
	@echo 'installing all Python packages into .venv'
	@$(INSTALL) '.[sandbox,node,dev]'
	@touch $(DEMO_SET_UP) $@

$(DEMO_SET_UP): pyproject.toml constraints.txt
	@echo 'installing the Python packages of the demo and the image into .venv'
	@$(INSTALL) '.[sandbox,node]'
	@touch $@

check: lint types

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# `make test` runs it beside the tests, so that it computes while they wait. There it has no workers
# of its own: mypy 2.4 gives up when one of them needs more than 3 s to start.
types: setup
	nice $(BIN)/mypy

quick: check
	$(BIN)/python -m tests.quick $(OF)

unit: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not cluster'

# The programs come first, with their progress: built within a fixture, they would take minutes in
# silence, and pytest's watchdog would end the run. When they are there this takes under a second.
# The image likewise, whose packages are fetched once; where it cannot be built, its tests say so.
test: lint
	$(BIN)/ebs-provisioner sandbox binaries --tests
	-PYTHONPATH=.ci $(BIN)/python -m image
	@MYPY_NUM_WORKERS=0 $(MAKE) --no-print-directory --jobs 2 types suite

# Four processes, as most of the cluster's stories is waiting: three have a control plane each, and
# one runs the other tests beside them. A fifth saves a minute, and has stories run into the ends of
# their patience. What they have used of the rights that the manifests grant is told to the last run,
# which judges it. tests/scheduling.py says which process runs which file.
# Programs in Go, most of all the API servers, collect their garbage less often there: a story of the
# crash walk takes a seventh less CPU. The limit is per process, and soft.
suite: export GOGC := 400
suite: export GOMEMLIMIT := 768MiB
# In a fresh clone one process compiles the tests first, or each of the four does so at the same time
# (16 s of CPU). What it finds wrong the next one shows.
suite: setup
	rm -rf $(USED_RIGHTS)
	@test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --used-rights=$(USED_RIGHTS) --ignore $(RIGHTS)
	$(BIN)/python -m pytest --used-rights=$(USED_RIGHTS) $(RIGHTS)

# Kubernetes' own tests. Its programs take 15 to 30 minutes to build, once; Linux, root. QUICK=1 runs
# those that are neither Slow nor Serial, PART=2/3 a part of all, PART=commit/3 the part that the commit
# chooses (as in CI, after the tests), DOCS=1 writes the tables into the page.
conformance: setup
	$(BIN)/ebs-provisioner sandbox binaries --conformance
	$(BIN)/python -m tests.e2e $(if $(QUICK),--quick) $(if $(PART),--part $(PART)) $(if $(DOCS),--docs)

# `make test` gives each request one of the three fates.
move-walk: setup
	$(BIN)/ebs-provisioner sandbox binaries --tests
	EVERY_FATE=1 $(BIN)/python -m pytest --capture=no -o faulthandler_timeout=3600 tests/cluster/test_move_walk.py \
	  tests/cluster/test_move_edges.py::test_stock_may_lead_from_any_request_on

# docs/kubernetes-versions.md has its results.
compat: setup
	$(BIN)/ebs-provisioner sandbox binaries --tests
	WORKERS=$(if $(filter file,$(origin WORKERS)),2,$(WORKERS)) $(BIN)/python -m tests.compat

demo: $(DEMO_SET_UP)
	$(BIN)/ebs-provisioner sandbox demo

bench: setup
	$(BIN)/ebs-provisioner sandbox binaries
	$(BIN)/python -m tests.bench

# No engine of containers, no registry, no root: docs/image.md.
image: $(DEMO_SET_UP)
	PYTHONPATH=.ci $(BIN)/python -m image $(addprefix --arch=,$(ARCH))

# For a release; URL is where its files will be. The wheels of all platforms come once, in minutes.
krew: $(DEMO_SET_UP)
	PYTHONPATH=.ci $(BIN)/python -m image.krew --url "$(URL)"

image-lock: $(DEMO_SET_UP)
	PYTHONPATH=.ci $(BIN)/python -m image --lock

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
