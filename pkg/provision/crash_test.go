package provision

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// lose returns a reaction by which the first creation of a PV takes place and its answer is lost.
func lose(w *world) k8stesting.ReactionFunc {
	lost := false
	return func(a k8stesting.Action) (bool, runtime.Object, error) {
		create, _ := a.(k8stesting.CreateAction)
		if lost {
			return false, nil, nil
		}
		lost = true
		if err := w.client.Tracker().Create(v1.SchemeGroupVersion.WithResource("persistentvolumes"), create.GetObject(),
			""); err != nil {
			return true, nil, err
		}
		return true, nil, errLost
	}
}

// TestCrashAtAnyMoment lets the process die before or after its k-th write or call. The claim is deleted at that
// moment, after the restart, or not at all, and the driver's first answers are good or uncertain. Another process goes
// on.
func TestCrashAtAnyMoment(t *testing.T) {
	const moments = 4 // open entry, create volume, create PV, close entry
	for _, deleted := range []string{"never", "then", "later"} {
		for _, uncertain := range []bool{false, true} {
			for _, dies := range []death{before, after} {
				for k := 1; k <= moments; k++ {
					name := fmt.Sprintf("claim deleted %s, uncertain %v, dies %d, moment %d", deleted, uncertain, dies, k)
					t.Run(name, func(t *testing.T) {
						crash(t, deleted, uncertain, dies, k)
					})
				}
			}
		}
	}
}

func crash(t *testing.T, deleted string, uncertain bool, dies death, k int) {
	t.Helper()
	w := newWorld(t)
	if uncertain {
		w.failing(true, first(1, errclass.Uncertain))
	}
	w.each = func(n int, _ string) death {
		if n != k {
			return goesOn
		}
		if deleted == "then" {
			w.deleteClaim()
		}
		return dies
	}
	p := w.start(Config{})
	w.makeClaim()
	w.wait("it dies, or comes to its end in fewer steps", func() bool { return p.gone() || w.provisioned() })
	p.stop()
	w.set(func() { w.each = nil })
	w.start(Config{})
	if deleted == "later" {
		w.deleteClaim()
	}
	if deleted == "never" {
		w.wait("it is provisioned", w.provisioned)
	}
	// The next process may not have begun yet when no entry is in flight, and a volume without a PV may be about to get
	// it.
	w.wait("nothing is in flight, and no volume LEAKS", func() bool { return w.settled() && w.knownVolumes() })
	if pv := w.pv(); pv != nil && len(w.onDisk()) == 0 || w.count("delete volume") > 0 {
		t.Errorf("WRONG DELETE: the PV has no volume: %q", w.recorded())
	}
}
