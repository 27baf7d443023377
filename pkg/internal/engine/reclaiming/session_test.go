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
