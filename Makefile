GO ?= go
STATICCHECK ?= $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
BIN ?= bin/gus

.PHONY: build check test race sim torture explore fuzz bench core32 cross clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) .

# format, vet, staticcheck, shellcheck
check:
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	shellcheck install.sh .ci/run

test:
	$(GO) test ./...

# the packages in which goroutines meet
race:
	$(GO) test -race -short -timeout 15m ./agent/... ./quic ./snapshot ./membership

# the simulator, for as long as SIM says; it prints a seed that fails
SIM ?= 2m
sim:
	GUS_SIM_TIME=$(SIM) $(GO) test -count=1 -timeout 0 -v -run TestSeeds ./register/sim

# real agents under load, kills, cuts, wrong clocks and full disks, for as long as GUS_TORTURE_TIME says (1m);
# cli/torture/options.go has what else can be said
torture:
	$(GO) test -count=1 -timeout 0 -v -run TestTorture ./cli/torture

# small worlds, every order of events: the further ones too, each up to STATES
STATES ?= 60000000
WORLD ?=
explore:
	$(GO) test -count=1 -timeout 0 -v -run TestExplore ./register -explore $(STATES) -explore.world '$(WORLD)'

FUZZ ?= 30s
fuzz:
	$(GO) test -run '^$$' -fuzz FuzzDecodeBatch -fuzztime $(FUZZ) -fuzzminimizetime 10x ./quic
	$(GO) test -run '^$$' -fuzz FuzzFrame -fuzztime $(FUZZ) -fuzzminimizetime 10x ./quic
	$(GO) test -run '^$$' -fuzz FuzzReadBackup -fuzztime $(FUZZ) -fuzzminimizetime 10x ./snapshot

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./register ./quic ./snapshot

# the core where an int has 32 bits
core32:
	GOARCH=386 CGO_ENABLED=0 $(GO) test -short ./register

# for other machines, into dist, with checksums; 32-bit ARM for the oldest Raspberry Pi
TARGETS ?= linux/amd64 linux/arm64 linux/arm linux/386 linux/riscv64 darwin/arm64 windows/amd64
cross:
	rm -rf dist && mkdir dist
	@set -e; for target in $(TARGETS); do \
		os=$${target%/*} arch=$${target#*/} suffix=; \
		[ $$os != windows ] || suffix=.exe; \
		echo "dist/gus-$$os-$$arch$$suffix"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch GOARM=6 $(GO) build -trimpath -ldflags '-s -w' -o dist/gus-$$os-$$arch$$suffix .; \
	done
	cd dist && sha256sum gus-* >SHA256SUMS

clean:
	rm -rf bin dist
