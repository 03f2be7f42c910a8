# twgd: build, check and test. "make help" lists the targets; docs/guide/development.md says more.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
FUZZTIME ?= 5s
ROUNDS ?= 20
STEPS ?= 40
E2E_TIMEOUT ?= 15m
KILL_TIMEOUT ?= 15m
CHURN_TIMEOUT ?= 90m
STATICCHECK_VERSION := v0.8.2

# Like test/servers: what is downloaded or built for the tests is kept between runs.
CACHE := $(or $(TWGD_CACHE),$(XDG_CACHE_HOME),$(HOME)/.cache)/twgd-test
STATICCHECK := $(CACHE)/staticcheck-$(STATICCHECK_VERSION)/staticcheck

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Parts of the tree that have targets of their own; a target says so where its part is not there.
PROGRAM := $(wildcard cmd/twgd/main.go)
KILL := $(wildcard test/kill/*.go)
CHURN := $(wildcard test/churn/*.go)
BENCH := $(wildcard test/bench/*.go)

CI_PARTS := fmt-check vet lint build test race fuzz e2e $(if $(KILL),"kill ROUNDS=20") $(if $(CHURN),"churn STEPS=40")

export CGO_ENABLED := 0
# The version is stamped above; a checkout that git refuses to read must still build.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
export GO

##   build      bin/twgd, static and stripped, with version and commit
.PHONY: build
build: go
	$(GO) build ./...
	$(if $(PROGRAM),$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/twgd ./cmd/twgd,@echo "build: the tree has no cmd/twgd, so there is no bin/twgd")
	@[ ! -e bin/twgd ] || [ "$$(wc -c < bin/twgd)" -lt 70000000 ] || { echo "build: bin/twgd has reached 70 MB; look at what the last library drags in" >&2; exit 1; }

##   test       the fast tests: no server, no network
.PHONY: test
test: go
	$(GO) test ./...

##   race       the fast tests under the race detector (needs a C compiler)
.PHONY: race
race: go
	@command -v $${CC:-gcc} >/dev/null || { echo "race: the race detector needs a C compiler, $${CC:-gcc} is missing: apt-get install gcc libc6-dev" >&2; exit 1; }
	CGO_ENABLED=1 $(GO) test -race ./...

##   vet        go vet, end-to-end tests included
.PHONY: vet
vet: go
	$(GO) vet ./...
	$(GO) vet -tags e2e ./...

##   lint       staticcheck at its pinned version, end-to-end tests included
.PHONY: lint
lint: $(STATICCHECK)
	$(STATICCHECK) ./...
	$(STATICCHECK) -tags e2e ./...

# It is built under another name first, so that an interrupted build leaves nothing that looks whole.
$(STATICCHECK): | go
	@echo "lint: installing staticcheck $(STATICCHECK_VERSION) (once)"
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && mkdir -p $(@D) && \
		GOFLAGS= GOBIN=$$tmp $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION) && \
		cp $$tmp/staticcheck $@.new && mv $@.new $@

##   fmt-check  fails on files that gofmt would change, and names them
.PHONY: fmt-check
fmt-check: go
	@bad=$$($$($(GO) env GOROOT)/bin/gofmt -l .); \
	[ -z "$$bad" ] || { echo "fmt-check: gofmt -w would change:" >&2; echo "$$bad" >&2; exit 1; }

##   fuzz       every Fuzz target for FUZZTIME (5s)
.PHONY: fuzz
fuzz: go
	test/tools/fuzz.sh $(FUZZTIME)

##   tools      installs what lint and e2e need; moments where it is there
.PHONY: tools
tools: go $(STATICCHECK)
	$(GO) run ./test/tools

##   e2e        the tests against real servers, at most E2E_TIMEOUT (15m) a package
.PHONY: e2e
e2e: tools
	$(GO) test -tags e2e -count=1 -p 1 -timeout $(E2E_TIMEOUT) $$($(GO) list -tags e2e ./sinks/postgres ./test/... | grep -Ev '/test/(kill|churn)$$')

##   kill       ROUNDS (20) rounds of killing the program while it works, at most KILL_TIMEOUT (15m)
.PHONY: kill
kill: $(if $(KILL),tools build)
	$(if $(KILL),$(GO) test -tags e2e -count=1 -timeout $(KILL_TIMEOUT) ./test/kill -rounds $(ROUNDS),@echo "kill: the tree has no test/kill" >&2; exit 1)

##   churn      STEPS (40) random steps of a cluster on hosts of its own, at most CHURN_TIMEOUT (90m); needs root
.PHONY: churn
churn: $(if $(CHURN),go)
	$(if $(CHURN),$(GO) test -tags e2e -count=1 -timeout $(CHURN_TIMEOUT) -run TestChurn ./test/churn -steps $(STEPS) $(ARGS),@echo "churn: the tree has no test/churn" >&2; exit 1)

##   bench      the benchmarks against real servers; ARGS goes to the program
.PHONY: bench
bench: $(if $(BENCH),tools build)
	$(if $(BENCH),$(GO) run ./test/bench $(ARGS),@echo "bench: the tree has no test/bench" >&2; exit 1)

##   demo       builds and runs bin/twgd demo; ARGS goes to it
.PHONY: demo
demo: $(if $(PROGRAM),build)
	$(if $(PROGRAM),bin/twgd demo $(ARGS),@echo "demo: the tree has no cmd/twgd" >&2; exit 1)

##   ci         all of the checks above, in the order of their cost, with the time each took
.PHONY: ci
ci: go
	@test/tools/timed.sh $(MAKE) $(CI_PARTS)

##   clean      removes what build made; the cache stays
.PHONY: clean
clean:
	rm -rf bin dist

##   help       this list
.PHONY: help
help:
	@echo "targets:"; sed -n 's/^##//p' $(firstword $(MAKEFILE_LIST))

.PHONY: go
go:
	@command -v $(GO) >/dev/null || { echo "Go is missing; 1.26 or newer is needed: https://go.dev/dl/" >&2; exit 1; }
	@have=$$($(GO) env GOVERSION 2>/dev/null || (cd / && GOTOOLCHAIN=local $(GO) version | awk '{print $$3}')); \
	[ "$$(printf '%s\n' go1.26 "$$have" | sort -V | head -n 1)" = go1.26 ] || \
		{ echo "Go 1.26 or newer is needed, this is $${have:-unknown}: https://go.dev/dl/" >&2; exit 1; }
