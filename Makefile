# What can be done here, a line each: make help.
GO        ?= go
VERSION   ?= $(shell tools/version.sh)
LDFLAGS   := -s -w -X k8s.io/component-base/version.gitVersion=$(VERSION)
# Debugging information, which LDFLAGS leave out anyway, is a sixth of the compiler's time.
NO_DWARF  := -gcflags=all=-dwarf=false
# Without the stamps of the checkout, which the go command adds or not by the settings of the machine.
BUILD     := -buildvcs=false $(NO_DWARF) '-ldflags=$(LDFLAGS)'
# What is given to others has no paths of this machine. Here they stay: without them, each package is compiled again.
RELEASE_BUILD := -trimpath $(BUILD)
# One compilation of each package, with or without a C compiler. The race detector needs one.
export CGO_ENABLED ?= 0
# Each package is compiled once for programs, demo and tests, which therefore all have the flag. The compiler collects
# garbage less often: a fifth less processor time, and the same packages. Only it has the variable.
ifeq ($(MAKELEVEL),0)
export GOFLAGS := $(shell $(GO) env GOFLAGS) $(NO_DWARF) '-toolexec=env GOGC=400'
endif
BIN       := .build/bin
LINT      := $(BIN)/golangci-lint
# Checks the workflows in .github.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
# Parses the scripts of the page, which the Go programs embed unread.
ESBUILD    := github.com/evanw/esbuild/cmd/esbuild@v0.28.0
# The packages whose tests need no control plane and start no other program.
UNIT      := ./cmd/... ./pkg/... ./internal/... ./mock-driver/... ./test/demo/... ./test/tour/... \
             ./test/framework/process/... ./test/framework/objects/... ./test/framework/program ./test/framework/suite \
             ./test/framework/nodes/stamps ./test/framework/nodes/sshd ./test/framework/previous/... \
             ./test/framework/goroutines ./test/framework/terminal ./test/framework/kubetest ./test/mutation/... \
             ./test/docs/... ./test/suites ./test/house ./test/bench ./test/bench/report ./test/bench/subject ./test/bench/session \
             ./test/bench/growth ./test/bench/pods ./test/bench/volumes \
             ./test/faults/oracle ./test/faults/proxy ./test/faults/scenario ./test/conformance/...
# Decisions are pure functions without goroutines, called here with millions of combinations of facts. The race detector
# would find nothing, and take more than twice as long; the packages that call them are tested with it.
DECISIONS := ./internal/engine/...
# How long a program with the race detector sleeps before it ends. The default is a second, for goroutines that still run.
export GORACE ?= atexit_sleep_ms=50
# Bounds a test binary, far above the time that it takes.
TIMEOUT   ?= 60m

.DEFAULT_GOAL := help
.PHONY: help version-is-valid oldest build-flags build plugin krew images release demo tour test test-full test-race \
        flakes test-unit test-model model model-deep mutants test-sanity test-e2e test-e2e-oldest e2e-versions \
        test-nodes test-web test-controlplane test-deploy test-apiserver controlplane conformance faults bench \
        bench-plot fuzz lint house apis docs dashboard screenshots fmt clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: version-is-valid ## Compile the programs into .build/bin, static
	CGO_ENABLED=0 $(GO) build $(BUILD) -o $(BIN)/ ./cmd/... ./mock-driver

plugin: version-is-valid ## Compile the kubectl plugin alone into .build/bin
	CGO_ENABLED=0 $(GO) build $(BUILD) -o $(BIN)/ ./cmd/kubectl-reclaim

version-is-valid:
	@tools/version.sh '$(VERSION)'

# One a line, for tests: they start what is built here.
build-flags:
	@printf '%s\n' $(BUILD)

PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
KREW      := .build/krew
krew: ## Make the plugin's archives, man pages, completions and krew manifest in .build/krew, for VERSION (vX.Y.Z); PLATFORMS are its systems
	@GO='$(GO)' LDFLAGS='$(LDFLAGS)' deploy/krew/build.sh '$(VERSION)' $(KREW) $(PLATFORMS)

IMAGE_PLATFORMS ?= linux/amd64,linux/arm64
IMAGES          ?= .build/images
images: version-is-valid ## Build the OCI images in .build/images, for VERSION; ONLY=program,... some; PUSH=registry/path pushes them
	@$(GO) run -C tools/images . --go '$(GO)' --root '$(CURDIR)' --output '$(abspath $(IMAGES))' --version '$(VERSION)' \
		--platforms '$(IMAGE_PLATFORMS)' --only '$(ONLY)' --push '$(PUSH)' $(if $(OVERWRITE),--overwrite) \
		$(if $(REVISION),--revision '$(REVISION)') -- $(RELEASE_BUILD)

RELEASE ?= .build/release
release: ## Gather a release in .build/release/VERSION (vX.Y.Z): images, charts, manifests, plugin, notes, checksums; COSIGN_KEY=file signs, TRIAL=1 to look at it
	@$(GO) run -C tools/release . --go '$(GO)' --root '$(CURDIR)' --output '$(abspath $(RELEASE))' --version '$(VERSION)' \
		--platforms '$(IMAGE_PLATFORMS)' --plugin-platforms '$(PLATFORMS)' \
		$(if $(COSIGN_KEY),--cosign-key '$(if $(findstring ://,$(COSIGN_KEY)),$(COSIGN_KEY),$(abspath $(COSIGN_KEY)))') $(if $(TRIAL),--trial)

demo: ## Show the main job on a real control plane; KEEP=1 leaves up a cluster to ask. Needs Go, git, make
	@echo 'Compiling the demo, which then reports its progress'
	@$(GO) run ./test/demo $(if $(KEEP),--keep)

tour: ## Show everything: external-provisioner, Kubernetes 1.30, nodes, fences, locks, StatefulSets, too
	@echo 'Compiling the tour, which then reports its progress'
	@$(GO) run ./test/tour

# The suites of tests, one after the other: with nothing beside them, no program waits for a processor.
QUICK_SUITES := test-unit test-model test-sanity test-apiserver test-e2e test-deploy
DEEP_SUITES  := $(QUICK_SUITES) model test-controlplane test-e2e-oldest test-nodes test-web
# make -n runs each line that names $(MAKE): another name keeps it from running the suites.
SUITE := $(MAKE)
test: ## Run the quick tests: they wait for no clock, and need Go, git and make
	$(GO) run ./test/suites $(SUITE) $(QUICK_SUITES)

# Real nodes need root and packages, the page a browser, upgrades the history of the checkout: where they are missing,
# they are left out, and make test-nodes, make test-web or make test-e2e fails.
test-full: export NODES ?= optional
test-full: export WEB ?= optional
test-full: export UPGRADES ?= optional
test-full: export DEEP = 1
test-full: export RACE = -race
test-full: export CGO_ENABLED = 1
test-full: ## Run all tests, with the race detector, which needs a C compiler, and make model; two hours
	$(GO) run ./test/suites $(SUITE) $(DEEP_SUITES)

test-race: export CGO_ENABLED = 1
test-race: ## Run the unit tests of programs and libraries with the race detector, which needs a C compiler
	$(GO) test $(TESTFLAGS) -race $$($(GO) list ./cmd/... ./pkg/... ./internal/... ./mock-driver/... ./test/framework/process/... \
		| grep -v /internal/engine/)

# How often make flakes runs the suites, and how many loops keep the processors busy meanwhile.
TIMES  ?= 20
BURN   ?= 4
flakes: export COUNT = -count=1
flakes: ## Run the quick suites TIMES (20) times beside BURN (4) busy loops, and count the runs that fail; hours
	$(GO) run ./test/suites --times $(TIMES) --burn $(BURN) $(SUITE) $(QUICK_SUITES)

# Deep tests are part of a suite where DEEP is set, see suite.Deep; RACE is -race for the race detector. The linters vet.
TESTFLAGS = -vet=off $(RACE) $(COUNT)

test-unit: ## Run the tests that need no control plane
	@failed=0; set -x; \
	$(GO) test -vet=off $(DECISIONS) || failed=1; \
	$(GO) test $(TESTFLAGS) $$($(GO) list $(UNIT) | grep -v /internal/engine/) || failed=1; \
	$(GO) test $(TESTFLAGS) -tags processwatchdog ./test/framework/process || failed=1; \
	$(GO) -C tools/images test $(TESTFLAGS) ./... || failed=1; \
	$(GO) -C tools/release test $(TESTFLAGS) ./... || failed=1; \
	exit $$failed

test-model: ## Test the model checker, and explore the beginning of each of its worlds
	$(GO) test $(TESTFLAGS) ./test/model/...

model: ## Explore all orders of events of volumes, held pods, fenced nodes, claims and their locks; some minutes
	$(GO) run ./test/model/cmd/model $(if $(WORLD),--world '$(WORLD)')

model-deep: ## The same with larger worlds; hours, and tens of gigabytes of memory
	$(GO) run ./test/model/cmd/model --deep

mutants: ## Remove each guard and show that a test fails without it; ONLY=REGEXP for some
	$(GO) run ./test/mutation $(if $(ONLY),--only '$(ONLY)')

controlplane: ## Compile the newest control plane; the first time takes minutes
	$(GO) run ./test/framework/controlplane/cmd/controlplane build

UPGRADES ?= required
# Says which release upgrades are tested from, or why they are not.
define upgrades
@if from=$$($(GO) run ./test/framework/previous/cmd/supported); then echo "upgrades: from $$from"; \
elif [ '$(UPGRADES)' = optional ]; then echo "upgrades: left out: $$from"; \
else echo "$$from" >&2; exit 1; fi
endef
# What the tests of upgrades themselves do without the history.
WITH_UPGRADES = UPGRADES='$(UPGRADES)'

test-controlplane: controlplane ## Test the testbed itself against real control planes
	DEEP=1 $(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) -p 1 ./test/framework/controlplane/...

test-deploy: controlplane ## Test charts, manifests, alerts and the commands in docs
	$(if $(DEEP),$(upgrades))
	$(WITH_UPGRADES) $(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) ./test/build/... ./test/deploy/...

# Deep tests of in-tree plugins need the oldest control plane; a test's own limit is too short to compile it.
oldest:
	$(if $(DEEP),$(GO) run ./test/framework/controlplane/cmd/controlplane build --version v1.30)

test-apiserver: controlplane oldest ## Test the clients of the API server, and the cluster of make demo KEEP=1, against real ones
	@GO='$(GO)' test/apiserver.sh $(TESTFLAGS) -timeout $(TIMEOUT)

test-sanity: ## Run csi-sanity in full against the mock driver
	$(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) -p 1 -count=1 ./test/sanity/... ./test/framework/mockdriver/...

# How many tests of a suite run side by side: they mostly wait for each other's programs.
SIDE ?= 5
# One suite at a time; with DEEP, also the tests that wait for clocks.
E2E = $(GO) test $(TESTFLAGS) -timeout $(TIMEOUT) -p 1 -count=1 -parallel $(SIDE)
test-e2e: controlplane oldest ## Run the programs against a real control plane and a real driver; FULL=1 with thousands of volumes
	$(if $(DEEP),$(upgrades))
	$(WITH_UPGRADES) $(E2E) ./test/e2e/... ./test/bench/peer/... ./test/faults

test-e2e-oldest: test-e2e-v1.30 ## The same on the oldest Kubernetes, but for tests that say why not

# make test has no time for these: run them before a release.
VERSIONS ?= v1.36 v1.35 v1.34 v1.33
e2e-versions: ## The same on each Kubernetes in between, a quarter of an hour each; VERSIONS='v1.33 ...' some
	$(GO) run ./test/suites $(SUITE) $(addprefix test-e2e-,$(VERSIONS))

test-e2e-v1.%:
	$(GO) run ./test/framework/controlplane/cmd/controlplane build --version v1.$*
	$(upgrades)
	$(WITH_UPGRADES) DEEP=1 KUBERNETES=v1.$* $(E2E) ./test/e2e/...

NODES ?= required
test-nodes: controlplane ## Run the programs with real kubelets, containers and mounts. Needs root, containerd, runc, containernetworking-plugins, iproute2
	@if why=$$($(GO) run ./test/framework/nodes/cmd/supported); then \
		set -x; NODES=required DEEP=1 $(E2E) ./test/framework/nodes ./test/nodes; \
	elif [ '$(NODES)' = optional ]; then echo "left out: $$why"; \
	else echo "$$why" >&2; exit 1; fi

WEB ?= required
test-web: controlplane ## Use the page of kubectl reclaim web in a browser, and keep pictures of it in .build/screenshots. Needs Chromium
	@if why=$$($(GO) run -C test/web ./browser/cmd/supported); then \
		set -x; $(GO) test -C test/web $(TESTFLAGS) -timeout $(TIMEOUT) -count=1 ./...; \
	elif [ '$(WEB)' = optional ]; then echo "left out: $$why"; \
	else echo "$$why" >&2; exit 1; fi

# The views of docs/how-to/web.md.
SHOWN := overview waiting volumes leaks pv
screenshots: test-web ## Take the pictures of the page in docs/. Needs Chromium
	$(foreach view,$(SHOWN),cp .build/screenshots/showcase-$(view)-1280.png docs/screenshots/web-$(view).png;)

conformance: ## Run specs of Kubernetes' own end-to-end suite with stock parts, and with ours in their place; ONLY=REGEXP some suites; DRIVER=FILE MANIFESTS=FOLDER a driver's; DRIVER_IMAGES=FOLDER with those of CSI Mock
	$(GO) run ./test/conformance/cmd/conformance $(if $(ONLY),--only '$(ONLY)') $(if $(DRIVER)$(MANIFESTS),--driver '$(DRIVER)' --manifests '$(MANIFESTS)') $(if $(DRIVER_IMAGES),--images '$(DRIVER_IMAGES)')

FAULTS_S ?= 300
faults: controlplane ## Kill the sidecar at every moment, play all faults, then random ones for FAULTS_S (300) seconds; SEED repeats a run
	$(GO) run ./test/faults/cmd/faults --seconds $(FAULTS_S) $(if $(SEED),--seed $(SEED))

bench: controlplane ## Measure speed and size beside a reference; ONLY=family,... some, QUICK=1 with fewer volumes, RUNS=n, SEED repeats an order
	$(GO) run ./test/bench/cmd/bench $(if $(QUICK),--quick) $(if $(ONLY),--only '$(ONLY)') $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED))
	$(if $(QUICK)$(ONLY),,$(MAKE) bench-plot)

bench-plot: ## Draw the scaling curve of test/bench/report.json
	cd test/bench/plot && $(GO) run .

FUZZTIME ?= 30s
fuzz: ## Fuzz the readers of untrusted input, FUZZTIME (30s) for each target
	@GO='$(GO)' test/fuzz.sh $(FUZZTIME)

lint: $(LINT) ## Check formatting, vet, staticcheck and more
	$(LINT) run --allow-parallel-runners --build-tags controlplane ./...
	$(LINT) run --allow-parallel-runners ./pkg/inuse # what is left out with the tags
	cd tools/images && ../../$(LINT) run --allow-parallel-runners ./...
	cd tools/release && ../../$(LINT) run --allow-parallel-runners ./...
	cd test/web && ../../$(LINT) run --allow-parallel-runners ./...
	cd test/bench/peer/cmd/peer-v13 && ../../../../../$(LINT) run --allow-parallel-runners ./...
	$(GO) mod tidy -diff
	$(GO) -C tools/images mod tidy -diff
	$(GO) -C tools/release mod tidy -diff
	$(GO) -C test/web mod tidy -diff
	$(GO) -C test/bench/peer/cmd/peer-v13 mod tidy -diff
	@GO='$(GO)' tools/controller-gen/generate.sh --check
	$(GO) run $(ACTIONLINT) -shellcheck= -pyflakes=
	$(GO) run $(ESBUILD) --log-level=warning --outdir=.build/parsed $$(git ls-files 'internal/web/page/*.js')
	$(GO) run ./test/house

house: ## Print the figures of the tree beside their limits; UPDATE=1 writes the limits of better figures
	$(GO) run ./test/house $(if $(UPDATE),--update)

# The linter is compiled once for each change of its pinned version.
$(LINT): tools/go.mod
	@echo "Compiling golangci-lint; this takes some minutes the first time"
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

apis: ## Generate from pkg/apis: deep copies, and the CustomResourceDefinitions
	@GO='$(GO)' tools/controller-gen/generate.sh

# The engines whose decisions are drawn in docs/pictures.
DRAWN := reclaim podsafety fencing singlenode statefulset
docs: apis ## Generate parts of docs/, and the copies in the charts, which cannot read beyond their folders
	$(GO) test ./cmd/csi-reclaimer ./cmd/volume-guard -run FlagReference -update
	$(GO) test ./internal/engine/reclaim -run Tables -update
	$(GO) test $(addprefix ./internal/engine/,$(DRAWN)) -run Picture -update
	$(GO) test ./test/docs -run 'Reference|Examples' -update
	cp deploy/alerts/csi-reclaimer.rules.yaml deploy/dashboard/csi-reclaimer.json deploy/charts/volume-guard/files/
	cp $(addprefix deploy/manifests/pod-safety-,crd.yaml policies.yaml hold.yaml hold-webhook.yaml) deploy/charts/volume-guard/files/
	cp $(addprefix deploy/manifests/single-node-,policies.yaml gate.yaml gate-webhook.yaml) deploy/charts/volume-guard/files/
	cp $(addprefix deploy/manifests/node-fencing-,crd.yaml policy.yaml roles.yaml) deploy/charts/volume-guard/files/
	cp deploy/manifests/statefulset-claims-warn.yaml deploy/manifests/http-roles.yaml deploy/charts/volume-guard/files/
	cp $(addprefix deploy/manifests/rbac-,owner.yaml companion.yaml observer.yaml capacity.yaml leaks.yaml) deploy/charts/csi-reclaimer/files/

dashboard: ## Hold the dashboard against the schema that Grafana publishes. Needs npm
	test/deploy/grafana/check.sh

fmt: ## Format the Go files
	gofmt -w */

clean: ## Remove compiled files
	rm -rf .build test/bench/peer/cmd/peer-v13/.build
