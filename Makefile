# make repro [PROFILE=flickr8k]   install, run the whole pipeline with independent stages in parallel, print the results
# make results [PROFILE=flickr8k_results]  run the whole comparison: all methods, λ, ρ and seeds of a profile, in parallel
# make data [DATASET=coco]        fetch a corpus of the papers; without DATASET, list the corpora with sizes and licences
# make gradients                  measure bias, noise and cost of every gradient estimator against the exact gradient; needs no data
# make gradients TRAINED=data     measure them for the pretrained speaker of the run in data/, against a gradient of 100,000 captions
# make repro DATA=scenes METHODS=wtf GRID=wtf  run the pipeline for a composition of data, methods and a grid: profiles/README.md
# make repro PROFILE=scenes START=2  run the pipeline with another seed of drawn data and of all trainings; make record PROFILE=scenes START=2 records the results
# make profile PROFILE=coco       write only params.yaml
# make test [WORKERS=2]           install, run the tests in parallel, except slow tests; print the number of slow tests; make record PROFILE=tests records the number and time of the tests
# make test-all [WORKERS=2]       run all tests but those of test-cluster, slow ones included: tests that kill processes, browser tests, whole reruns, known faults in the mathematics
# make test-cluster               test the grid on a real Slurm, MLflow's server and an S3 store; skip tests of a service that is not installed
# make estimate [MACHINES=4 CORES=16 MEMORY=64 OVERHEAD=10]  estimate the time of the grid on this many machines
# make estimate [GPU_MEMORY=8 TERAFLOPS=5 BANDWIDTH=200]  calculate memory and time of a training step of a pretrained captioner
# make costs                      print seconds and peak memory of every stage, from MLflow's records
# make bench                      run the benchmarks, most of them compared with another implementation; BENCHMARKS=decoding: one of them
# make bench-judging              measure time and memory of judging captions of 10,000 and 100,000 drawn photos
# make bench-cluster              measure the overhead of jobs and the speed-up by workers, on a Slurm of this machine
# make check                      check format, lint, types, layers, workflow files, documents against results/
# make compare                    check the claims of results/claims.toml on the run in data/
# make record PROFILE=scenes      write results/scenes.json from the run in data/; also PROFILE=gradients, benchmarks and others (the command lists them), or one of these with @MACHINE appended
# make documents                  write the documents' tables and figures from results/
# make docs                       build the documents as a site, in site/
# make verify                     check that outputs, DVC's copies and cells are unchanged since they were written; reads all bytes
# make fault-injection [KILLS=200] [DAMAGES=1000] [ROWS=damage]  test the guarantees of RELIABILITY.md by kills, damaged files and full disks; make record PROFILE=reliability records the outcomes
# make mutants [NUMBER=480] [SEED=0] [PACKAGE=models] [WORKERS=1]  plant small faults in the mathematics, list those that no test detects; make record PROFILE=mutants records the outcomes
# make ui                         serve MLflow's pages on http://127.0.0.1:5000
# make serve [PHOTOS=folder]      serve captions, search and a game for your photos, on http://127.0.0.1:8000
# make setup [TORCH=cu128]        only install; without a GPU, install PyTorch for the CPU; TORCH names another build
# make fmt | clean                format the code; remove checkpoints, grid cells and tool caches

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

# repro and results differ in the default profile, and results first estimates the time.
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

# An existing report is rebuilt to show the new measurements.
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

# Without PHOTOS, the page offers the drawn scenes if they exist.
PHOTOS ?= $(wildcard data/raw/scenes/images)
serve: $(INSTALLED)
	@saywhich serve $(if $(PHOTOS),--photos "$(PHOTOS)")

clean:
	rm -rf data/checkpoints data/cells .snakemake .pytest_cache .ruff_cache .import_linter_cache .hypothesis dvc_plots

setup: $(INSTALLED)

# A params.yaml that was changed by hand is kept beside the new one.
profile: $(INSTALLED)
ifneq ($(PROFILE)$(DATA)$(METHODS)$(GRID)$(START),)
	@python -m pipeline.config.overlays $(if $(PROFILE),"$(PROFILE)") \
		$(if $(DATA),--data "$(DATA)") $(if $(METHODS),--methods "$(METHODS)") $(if $(GRID),--grid "$(GRID)") \
		$(if $(START),--start "$(START)")
endif

# uv checks the SHA-256 of all wheels except PyTorch's two. DVC unpickles files of .dvc/tmp, so only this user may write there.
# uv chooses the build of PyTorch by the GPU driver, since PyPI's wheels for Linux bring gigabytes of CUDA. uv also gets
# pip's find-links, for machines that keep their own wheels.
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
