package reclaiming

import (
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// pvs is a cache that a test fills by hand.
type pvs map[string]*volume.PV

func (c pvs) Get(name string) (*volume.PV, bool) { pv, found := c[name]; return pv, found }
func (c pvs) Each(visit func(*volume.PV)) {
	for _, pv := range c {
		visit(pv)
	}
}

// TestASessionWithoutTheLeaseReportsNothing: whatever the answer is, another replica may have changed what this one
// knows.
func TestASessionWithoutTheLeaseReportsNothing(t *testing.T) {
	for outcome := Unanswered; outcome <= Canceled; outcome++ {
		for _, leading := range []bool{true, false} {
			pv := released().PV
			cache := pvs{pv.Name: &pv}
			e := New(owner(), NewBreaker(0, 0), cache)
			e.Lead(true)
			e.PVAdded(&pv, now())
			at := Moment{Now: now(), Leading: true}
			facts, found := e.Facts(Item{Name: pv.Name}, at)
			if !found {
				t.Fatal("the PV is not known")
			}
			s, step := e.Begin(facts, at)
			if step.Result != Asks {
				t.Fatalf("asks nothing: %+v", step)
			}
			at.Leading = leading
			step = e.Answer(s, Reply{Outcome: outcome, Missing: "the Secret"}, at)
			if reported := step.Report.Kind != None || step.Besides.Kind != None; reported && !leading {
				t.Errorf("outcome %d: reports %+v", outcome, step)
			} else if leading && !reported && (outcome == Unanswered || outcome == OK || outcome == Refused) {
				t.Errorf("outcome %d: reports nothing", outcome)
			}
			if !leading && step.Result == Asks {
				t.Errorf("outcome %d: asks %v without the lease", outcome, s.Ask.Action)
			}
		}
	}
}

func TestWhatEndsByItselfIsTriedSoonWithoutAnEvent(t *testing.T) {
	for _, outcome := range []Outcome{InProgress, Changed} {
		step := failed(Decision{Action: DeleteVolume, Reason: ReasonReclaim}, ReasonVolumeFailedDelete, outcome)
		if step.Result != Soon || step.Report.Kind != None {
			t.Errorf("outcome %d: %+v", outcome, step)
		}
	}
	if step := failed(Decision{Action: DeleteVolume}, ReasonVolumeFailedDelete, Unanswered); step.Report.Kind != Failed {
		t.Errorf("a call without an answer is not reported: %+v", step)
	}
}

// TestALogThatClosesKeepsWhatItShowed: a program that stops closes the log, and ends the deletions in progress.
func TestALogThatClosesKeepsWhatItShowed(t *testing.T) {
	pv := released().PV
	e := New(owner(), NewBreaker(0, 0), pvs{pv.Name: &pv})
	e.Lead(true)
	e.PVAdded(&pv, now())
	for name, c := range map[string]struct{ before, read, want LogState }{
		"closed":            {LogSettled, LogUnknown, LogSettled},
		"a new entry":       {LogSettled, LogOpen, LogOpen},
		"the entry is gone": {LogOpen, LogSettled, LogSettled},
		"not read yet":      {LogUnknown, LogUnknown, LogUnknown},
	} {
		facts, found := e.Facts(Item{Name: pv.Name}, Moment{Now: now(), Leading: true, Log: c.before})
		if !found {
			t.Fatal("the PV is not known")
		}
		s := &Session{Facts: facts}
		if e.observe(s, Moment{Now: now(), Leading: true, Log: c.read}); s.Facts.Log != c.want {
			t.Errorf("%s: log state %d, want %d", name, s.Facts.Log, c.want)
		}
	}
}

// TestTheEngineIsPure lists all that it imports.
func TestTheEngineIsPure(t *testing.T) {
	const own = "github.com/csi-reclaimer/csi-reclaimer/pkg/"
	allowed := []string{
		"cmp", "fmt", "slices", "strings", "time", "k8s.io/apimachinery/pkg/types",
		"k8s.io/apimachinery/pkg/util/resourceversion",
		own + "internal/reasons", own + "volume",
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				if path, err := strconv.Unquote(spec.Path.Value); err != nil || !slices.Contains(allowed, path) {
					t.Errorf("%s imports %s", name, spec.Path.Value)
				}
			}
		}
	}
}
