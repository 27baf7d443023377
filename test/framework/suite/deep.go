package suite

import (
	"os"
	"testing"
)

// deepVariable, if it is set, has deep tests run: make test-full sets it.
const deepVariable = "DEEP"

// Reason says why make test does not run a test.
type Reason string

// The rules of make test, each as the reason of a test that breaks it.
const (
	// WaitsForClock is for the end of a lease, a floor of the product, a deadline, or a sleep.
	WaitsForClock Reason = "it waits for a clock"
	// OwnControlPlane is for other settings of a control plane, for the death of one of its components, and for
	// programs that act on the whole cluster.
	OwnControlPlane Reason = "it starts a control plane of its own"
	// OtherVersion is for another Kubernetes than the newest, and for the release before this one.
	OtherVersion Reason = "it compiles another version of Kubernetes or of the project"
	// Load is for hundreds of objects, and for scenarios by the dozen. make test has a smaller test of the same kind.
	Load Reason = "it tests many objects or scenarios"
	// Variant is for a further case of what another test of the package tests in make test.
	Variant Reason = "it varies what make test tests"
	// Compiles is for tools and other projects' programs, which take minutes to compile.
	Compiles Reason = "it compiles programs of other projects"
	// Cluster is for counts of the whole cluster, which the neighbors of a test change.
	Cluster Reason = "it counts objects or requests of the whole cluster"
)

// Require skips the test unless deep tests are run.
func (why Reason) Require(t testing.TB) {
	t.Helper()
	Deep(t, why)
}

// Deep skips the test unless deep tests are run. make test is quick and deterministic: its tests wait for no clock,
// start no control plane of their own, and count their own objects alone. Other tests call Deep first.
func Deep(t testing.TB, why Reason) {
	t.Helper()
	if os.Getenv(deepVariable) == "" {
		t.Skip("runs in make test-full: " + string(why))
	}
}
