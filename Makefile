# make repro [PROFILE=flickr8k]   install, run the whole pipeline, independent stages side by side, print the results
# make results [PROFILE=flickr8k_results]  the whole comparison: all methods, λ, ρ and seeds of a profile, in parallel
# make data [DATASET=coco]        fetch a corpus of the papers; without DATASET: which there are, how big, whose licence
# make gradients                  bias, noise and cost of every gradient estimator, exactly; needs no data
# make gradients TRAINED=data     the same before the trained speaker of the run in data/, compared with a gradient of 100,000 captions
# make repro DATA=scenes METHODS=wtf GRID=wtf  the same for a composition of data, methods and a grid: profiles/README.md
# make repro PROFILE=scenes START=2  the same from another start: other data, networks and pretraining; then make record PROFILE=scenes START=2
# make profile PROFILE=coco       write params.yaml alone
# make test [WORKERS=2]           install, run the tests in parallel, except slow tests; prints how many were left out; then make record PROFILE=tests
# make test-all [WORKERS=2]       all tests, slow ones included: kills, browsers, whole reruns, a sample of make mutants
# make test-cluster               the grid on a real Slurm, MLflow's server, an S3 store; skipped where they are not installed
# make estimate [MACHINES=4 CORES=16 MEMORY=64 OVERHEAD=10]  how long the grid takes on so many machines
# make estimate [GPU_MEMORY=8 TERAFLOPS=5 BANDWIDTH=200]  memory and time of a step of a pretrained captioner, by calculation
# make costs                      seconds and peak memory of every stage, from MLflow's records
# make bench                      the benchmarks, each figure beside its peer's; BENCHMARKS=decoding: that one
# make bench-judging              captions of 100,000 drawn photos judged: time and memory
# make bench-cluster              on a Slurm of this machine: what a job takes besides its work, and how workers add up
# make check                      format, lint, types, layers, workflow files, documents against results/
# make compare                    which of the claims of results/claims.toml hold in the run that data/ holds
# make record PROFILE=scenes      results/scenes.json of the run that data/ holds; also PROFILE=gradients, benchmarks, or any @MACHINE
# make documents                  the documents' tables and figures, of results/
# make docs                       the documents as a site, in site/
# make verify                     whether every output, DVC's copies and the cells are what was written; reads all bytes
# make fault-injection [KILLS=200] [DAMAGES=1000] [ROWS=damage]  what RELIABILITY.md promises, tried: kills, damaged files, full disks; make record PROFILE=reliability
# make mutants [NUMBER=480] [SEED=0] [PACKAGE=models] [WORKERS=1]  small faults in the mathematics: which ones no test detects; then make record PROFILE=mutants
# make ui                         MLflow's pages on http://127.0.0.1:5000
# make serve [PHOTOS=folder]      captions, search and a game for photos of one's own, on http://127.0.0.1:8000
# make setup [TORCH=cu128]        install only; PyTorch is that for the CPU where no GPU is found, TORCH names another
# make fmt | clean                format the code; drop checkpoints, grid cells and tool caches

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(CURDIR)/.venv/bin:$(PATH)

PYTHON ?= python3
TORCH ?= auto
PROFILE ?= $(if $(DATA)$(METHODS)$(GRID),,$(if $(filter results,$(MAKECMDGOALS)),scenes_results))
INSTALLED := .venv/.installed

.PHONY: setup fmt check test test-cluster estimate costs bench bench-cluster bench-judging gradients repro results compare record documents docs data profile ui clean verify fault-injection mutants test-all serve

# The tests of a file stay in one process; tests/conftest.py puts the files that take longest first.
PYTEST := python -m pytest -n $(or $(WORKERS),logical) --maxprocesses 8 --dist loadfile --no-loadscope-reorder

BENCHMARKS := joint_step text_lstm decoding cider language retrieval feature_reading caption_lengths feature_store start growth

# They differ in the default profile, and results first estimates the time.
repro results: $(INSTALLED) profile
	@$(if $(filter results,$@),python -m pipeline.workflow.estimate)
	@python -m pipeline.workflow.repro
	@echo
	@python -m pipeline.workflow.show_results

estimate: $(INSTALLED)
	@python -m pipeline.workflow.estimate $(if $(MACHINES),--machines $(MACHINES)) $(if $(CORES),--cores $(CORES)) \
		$(if $(MEMORY),--memory $(MEMORY)) $(if $(OVERHEAD),--overhead $(OVERHEAD)) $(if $(GPU_MEMORY),--gpu-memory $(GPU_MEMORY)) \
		$(if $(TERAFLOPS),--teraflops $(TERAFLOPS)) $(if $(BANDWIDTH),--bandwidth $(BANDWIDTH))

costs: $(INSTALLED)
	@mkdir -p data/costs; python -m pipeline.tracking costs | tee data/costs/costs.md

bench: $(INSTALLED)
	@mkdir -p data/benchmarks; export OMP_NUM_THREADS=1; \
	for name in $(BENCHMARKS); do \
		echo; echo "benchmarks/$$name.py"; python benchmarks/$$name.py | tee data/benchmarks/$$name.md; done

bench-cluster: $(INSTALLED)
	@mkdir -p data/cluster; python benchmarks/cluster.py | tee data/cluster/cluster.md

bench-judging: $(INSTALLED)
	@mkdir -p data/judging; python benchmarks/judging.py | tee data/judging/judging.md

# A report that is there is made again, to show it.
gradients: $(INSTALLED)
	@python -m stages.gradients $(if $(TRAINED),--trained $(TRAINED))
	@test -n "$(TRAINED)" || ! test -f data/report/report.html || dvc repro --force --single-item report

compare: $(INSTALLED)
	@python -m pipeline.workflow.compare_claims

record: $(INSTALLED)
	@python -m pipeline.workflow.record_results $(PROFILE)$(if $(START),@start$(START))

documents: $(INSTALLED)
	@python -m pipeline.report.documents

docs: $(INSTALLED)
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo "The documents: site/index.html"

verify: $(INSTALLED)
	@python -m pipeline.workflow.verify

fault-injection: $(INSTALLED)
	@OMP_NUM_THREADS=1 python benchmarks/reliability.py $(ROWS) --kills $(or $(KILLS),200) --damages $(or $(DAMAGES),1000)

data: $(INSTALLED)
	@python -m stages.fetch $(if $(DATASET),--dataset $(DATASET))

mutants: $(INSTALLED)
	@python benchmarks/mutants.py --number $(or $(NUMBER),480) --seed $(or $(SEED),0) --workers $(or $(WORKERS),1) $(if $(PACKAGE),--only $(PACKAGE))

test: $(INSTALLED)
	SAYWHICH_TESTS_RECORD=data/tests/tests.md $(PYTEST) -m "not slow"

test-all: $(INSTALLED)
	$(PYTEST)

test-cluster: $(INSTALLED)
	python -m pytest tests/cluster

check: $(INSTALLED)
	ruff format --check .
	ruff check .
	mypy
	lint-imports --no-logo
	python -m pipeline.report.documents --check
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	snakefmt --check Snakefile features.smk
	snakemake --lint
	snakemake --lint -s features.smk
	dvc dag > /dev/null
	python -m pytest tests/test_profiles.py -k git_keeps

fmt: $(INSTALLED)
	ruff format .
	ruff check --fix .
	snakefmt Snakefile features.smk

ui: $(INSTALLED)
	@mlflow db upgrade sqlite:///mlflow.db
	@python -m pipeline.tracking view
	MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow ui --backend-store-uri sqlite:///mlflow.db --host 127.0.0.1 --port 5000

# The drawn scenes are there to try it with, where they are and nothing else is named.
PHOTOS ?= $(wildcard data/raw/scenes/images)
serve: $(INSTALLED)
	@saywhich serve $(if $(PHOTOS),--photos "$(PHOTOS)")

clean:
	rm -rf data/checkpoints data/cells .snakemake .pytest_cache .ruff_cache .import_linter_cache .hypothesis dvc_plots

setup: $(INSTALLED)

# A params.yaml that is no profile is somebody's work and is kept beside the new one.
profile: $(INSTALLED)
ifneq ($(PROFILE)$(DATA)$(METHODS)$(GRID)$(START),)
	@python -m pipeline.config.overlays $(if $(PROFILE),"$(PROFILE)") \
		$(if $(DATA),--data "$(DATA)") $(if $(METHODS),--methods "$(METHODS)") $(if $(GRID),--grid "$(GRID)") \
		$(if $(START),--start "$(START)")
endif

# uv checks the SHA-256 of all but PyTorch's two wheels, and DVC unpickles what lies in .dvc/tmp: nobody else may write there.
# uv chooses PyTorch by the driver it finds: PyPI's wheels for Linux bring gigabytes of CUDA. pip's own find-links go to uv
# too: a machine that keeps wheels of its own uses them.
$(INSTALLED): pyproject.toml $(wildcard setup.py) constraints-hashed.txt requirements-uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) --version 2>&1): Python 3.11 or newer is needed; name one with PYTHON=..."; exit 1; }
	@test -x .venv/bin/pip || $(PYTHON) -m venv .venv
	@links="$${PIP_FIND_LINKS:-$$(.venv/bin/pip config get global.find-links 2> /dev/null || true)}"; \
	if test -n "$$links"; then UV_FIND_LINKS="$$(echo $$links | tr ' ' ',')"; export UV_FIND_LINKS; else backend="--torch-backend $(TORCH)"; fi; \
	.venv/bin/pip install --quiet --require-hashes -r requirements-uv.txt && \
		.venv/bin/uv pip install --python .venv/bin/python --compile-bytecode $${backend:-} \
			-c constraints-hashed.txt -b constraints-hashed.txt -e '.[dev]'
	@mkdir -p .dvc/tmp && chmod 700 .dvc/tmp
	@.venv/bin/python -m pipeline.workflow.dvc_settings
	@touch $@
