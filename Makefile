# make demo [BACKEND=tensorflow|jax|torch]   train, test and export a pronouncing Transformer
# make test                                  the whole suite on the three backends
# make test-next                             the whole suite with the Keras that is to come
# make bench                                 us against the peers, in one run
# make venv                                  only the environment for the demo

BACKEND ?= tensorflow
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports and keeps it, unless it is told not to; compiling all of TensorFlow
# and PyTorch takes longer than to unpack them.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
# The Keras that is to come lies in a folder of its own, and .venv keeps the present one.
NEXT := $(CURDIR)/build/next
export TF_CPP_MIN_LOG_LEVEL ?= 2
export TOKENIZERS_PARALLELISM ?= false

# The JAX demo writes a SavedModel too, which takes TensorFlow to write and to load.
EXTRAS_tensorflow := tensorflow,demo
EXTRAS_jax := jax,tensorflow,demo
EXTRAS_torch := torch,onnx,demo
ifeq ($(EXTRAS_$(BACKEND)),)
$(error BACKEND must be tensorflow, jax or torch, not '$(BACKEND)')
endif

.PHONY: venv demo dev test test-next bench lint clean

venv: $(VENV)/.demo-$(BACKEND)

demo: venv
	KERAS_BACKEND=$(BACKEND) $(BIN)/python examples/pronounce.py

dev: $(VENV)/.dev

# slipcover counts lines at no cost, where coverage.py takes a quarter of the time. PyTorch's compiler
# cannot read functions in which lines are counted.
test: dev lint
	rm -f .coverage*
	for backend in tensorflow jax torch; do \
	  echo "== $$backend"; \
	  count="-m slipcover --source kerasmodels --json --out .coverage.$$backend"; \
	  test $$backend = torch && count=; \
	  KERAS_BACKEND=$$backend $(BIN)/python $$count -m pytest -n 2 --dist worksteal || exit 1; \
	done
	$(BIN)/python -m slipcover --merge .coverage.* --out .coverage --skip-covered --fail-under 95

test-next: dev $(NEXT)/.installed
	export PYTHONPATH=$(NEXT); \
	for backend in tensorflow jax torch; do \
	  export KERAS_BACKEND=$$backend; \
	  $(BIN)/python -c "import keras; print('==', '$$backend', keras.__version__, keras.__file__)"; \
	  $(BIN)/python -m pytest -n 2 --dist worksteal || failed="$$failed $$backend"; \
	done; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

lint: dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports --no-cache

bench: dev
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) runs build *.egg-info .pytest_cache .ruff_cache .coverage*

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kerasmodels needs Python 3.11 or newer: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-$(BACKEND): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[$(EXTRAS_$(BACKEND))]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo-tensorflow $(VENV)/.demo-jax $(VENV)/.demo-torch

$(NEXT)/.installed: constraints.txt | $(VENV)/.dev
	rm -rf $(NEXT)
	$(PIP) --no-deps --target $(NEXT) keras-nightly keras-hub-nightly
	@touch $@
