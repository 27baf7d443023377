package provision

import (
	"errors"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
)

// TestFinishOnlyNeedsNoRightsToProvision: a role that does not provision may list neither claims nor classes, but
// finishes the entries in flight.
func TestFinishOnlyNeedsNoRightsToProvision(t *testing.T) {
	w := newWorld(t)
	var forbidden atomic.Bool
	w.client.PrependReactor("list", "storageclasses", func(k8stesting.Action) (bool, runtime.Object, error) {
		return forbidden.Load(), nil, errors.New("forbidden")
	})
	w.madeUnseen().stop()
	w.failing(false, nil)
	forbidden.Store(true)
	p := w.start(Config{FinishOnly: true})
	w.wait("it has its PV", w.provisioned)
	for _, right := range p.provisioner.Permissions() {
		if right.Resource != "persistentvolumes" {
			t.Errorf("it asks for the right to %s %s", right.Verb, right.Resource)
		}
	}
}
