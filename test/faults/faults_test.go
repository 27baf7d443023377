//go:build unix

package faults

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/scenario"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// play plays a scenario in which nothing may be found.
func play(t *testing.T, sc scenario.Scenario) Result {
	t.Helper()
	r, err := bench.Run(interrupted, sc)
	for _, f := range r.Findings {
		t.Error(f)
	}
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s took %v:\n%s", sc.Name, r.Took, strings.Join(r.Notes, "\n"))
	if t.Failed() {
		t.Logf("log of the sidecar:\n%s", r.Log)
	}
	return r
}

// TestKilledSidecarFinishesItsVolume plays one moment of TestSidecarKilledAtEachMoment.
func TestKilledSidecarFinishesItsVolume(t *testing.T) {
	t.Parallel()
	undisturbed := play(t, Provision())
	if t.Failed() {
		return
	}
	crashes := Crashes(undisturbed)
	r := play(t, crashes[len(crashes)/2])
	if !maps.Equal(r.End, undisturbed.End) || r.Crashes != 1 {
		t.Errorf("it ends %v after %d crashes, undisturbed %v", r.End, r.Crashes, undisturbed.End)
	}
}

// TestSidecarKilledAtEachMoment expects the same end at each moment as without the kill.
func TestSidecarKilledAtEachMoment(t *testing.T) {
	suite.Deep(t, suite.Load)
	t.Parallel()
	for _, sc := range append(Deletions(false), Provision()) {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			undisturbed := play(t, sc)
			if t.Failed() {
				return
			}
			t.Logf("%v, %v, %v: %v", undisturbed.Writes, undisturbed.Calls, undisturbed.End, undisturbed.Took)
			crashes := Crashes(undisturbed)
			if len(crashes) < 6 { // before and after two writes and a call
				t.Errorf("%d moments", len(crashes))
			}
			for _, crash := range crashes {
				t.Run(crash.Name, func(t *testing.T) {
					t.Parallel()
					r := play(t, crash)
					if !maps.Equal(r.End, undisturbed.End) {
						t.Errorf("it ends %v, undisturbed %v", r.End, undisturbed.End)
					}
					if r.Crashes != 1 {
						t.Errorf("%d crashes, want 1", r.Crashes)
					}
				})
			}
		})
	}
}

// TestUserActsWhileSidecarIsDown kills the sidecar at each moment of provisioning, and deletes the claim while it is
// down. No volume is left, and no claim is stuck. "make faults" deletes StorageClasses, too.
func TestUserActsWhileSidecarIsDown(t *testing.T) {
	suite.Deep(t, suite.Load)
	t.Parallel()
	undisturbed := play(t, Provision())
	if t.Failed() {
		return
	}
	for _, sc := range Meanwhile(undisturbed, false) {
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, sc); r.Crashes != 1 {
				t.Errorf("%d crashes, want 1", r.Crashes)
			}
		})
	}
}

// TestSavedScenarios plays the scenarios of testdata.
func TestSavedScenarios(t *testing.T) {
	suite.Deep(t, suite.Load)
	t.Parallel()
	files := must.Get(filepath.Glob("testdata/*.yaml"))(t)
	for _, file := range files {
		sc := must.Get(scenario.Read(file))(t)
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			play(t, sc)
		})
	}
}

// TestRandomScenarios plays some random scenarios with fixed seeds; "make faults" plays others.
func TestRandomScenarios(t *testing.T) {
	suite.Deep(t, suite.Load)
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			play(t, Random(seed))
		})
	}
}

func TestRandomScenarioIsValidAndRepeatable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		sc := Random(seed)
		if err := sc.Validate(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(sc, Random(seed)); diff != "" {
			t.Errorf("seed %d: %s", seed, diff)
		}
	}
}

// bench is shared by all tests. Its sidecar has the race detector if the test has it. An interrupt ends interrupted,
// and with it every running scenario.
var (
	bench       *Bench
	interrupted context.Context
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// A scenario waits for other programs most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := suite.Interruptible()
	defer stop()
	interrupted = ctx
	var err error
	if bench, err = Open(ctx, os.Stderr, process.RaceFlags()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := bench.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return m.Run()
}
