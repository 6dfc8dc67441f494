# delaygate: `make test` sets up what it needs and runs everything; see README.md.

GO        ?= go
FUZZTIME  ?= 500000x
CHECKS    ?= 5000
COMPAT    := ./compat_test/...
PACKAGES   = $(shell $(GO) list ./... | grep -v /compat_test)
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: build setup test unit compat soak fuzz fuzz-smoke lint vuln ci clean

build: ## the binary, bin/delaygate
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/delaygate ./cmd/proxy

setup: ## real brokers and clients into .cache; says in one line what is missing
	$(GO) run ./compat_test/setup

test: setup unit fuzz-smoke compat ## everything

unit:
	$(GO) test -race -timeout 10m $(PACKAGES)

compat: setup ## real clients against real clusters through the real binary
	$(GO) test -race -count=1 -timeout 25m -v -run . $(COMPAT)

soak: setup ## limits at full size, a hundred kills, mutants, the model for long: two hours, 6 GB of disk, nothing else on the machine
	$(GO) test -tags soak -count=1 -timeout 60m -v -run '^TestSoak' ./timer
	DELAYGATE_KILL_ROUNDS=100 $(GO) test -count=1 -timeout 60m -v -run TestKillsRepeatAtMostOneMessageOfEachLane $(COMPAT)
	$(GO) run ./timer/mutants
	$(GO) test -race -run '^TestModel$$' -timeout 0 -rapid.checks=$(CHECKS) -v ./timer

# Counts, not seconds: a time limit that ends in the middle of an input is reported as a failure (golang/go#75804).
fuzz-smoke:
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5000x

fuzz: ## every fuzz target, FUZZTIME inputs each
	@set -e; for pkg in $(PACKAGES); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "fuzz $$pkg $$target $(FUZZTIME)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -parallel 2 $$pkg; \
	  done; \
	done

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags clockshift ./cmd/proxy
	$(GO) vet -tags soak ./timer
	$(GO) tool staticcheck ./...

vuln: ## known vulnerabilities in what the binary calls; reads the Go vulnerability database over the network
	$(GO) tool govulncheck ./...

ci: lint build test

clean:
	rm -rf bin .cache
