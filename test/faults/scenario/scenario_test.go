package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSavedScenariosAreValidAndRoundTrip(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		s, err := Read(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name+".yaml" != filepath.Base(file) {
			t.Errorf("%s holds a scenario with the name %s", file, s.Name)
		}
		data, err := s.Marshal()
		if err != nil {
			t.Error(err)
			continue
		}
		again, err := Parse(data)
		if err != nil {
			t.Errorf("%v\n%s", err, data)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Errorf("%s changes when it is written: %s", file, diff)
		}
	}
}

func TestInvalidStepsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{name: "a b", steps: []}`:                                         "spaces",
		`{name: a, steps: [{do: dance}]}`:                                  "step 1 (dance)",
		`{name: a, steps: [{do: delete-pv, volume: x}]}`:                   `volume "x" was not made`,
		`{name: a, steps: [{do: make, volume: x}, {do: make, volume: x}]}`: "is there",
		`{name: a, steps: [{do: make, volume: x, of: z}]}`:                 "was not made",
		`{name: a, steps: [{do: make, volume: x, kind: odd}]}`: "dynamic, static or " +
			"provisioned",
		`{name: a, steps: [{do: make, volume: x}, {do: delete-class, volume: x}]}`:                   "is not provisioned",
		`{name: a, steps: [{do: make, volume: x}, {do: wait, volume: x, for: in-flight}]}`:           "is not provisioned",
		`{name: a, steps: [{do: wait, for: asked}]}`:                                                 "was not made",
		`{name: a, steps: [{do: make, volume: x, kind: provisioned}, {do: make, volume: z, of: x}]}`: "is provisioned",
		`{name: a, steps: [{do: make, volume: x, kind: provisioned, unclaimed: true}]}`:              "for a claim",
		`{name: a, steps: [{do: crash-at-call, method: Probe, at: done}]}`: "CreateVolume " +
			"or DeleteVolume",
		`{name: a, steps: [{do: driver, calls: [{method: CreateVolume, volumeName: x, action: crash}]}]}`: "names none",
		`{name: a, want: {x: bound}, steps: [{do: make, volume: x}]}`:                                     "no such volume or end",
		`{name: a, steps: [{do: make, volume: x}, {do: set-policy, volume: x}]}`:                          "Delete or Retain",
		`{name: a, steps: [{do: make, volume: x}, {do: wait, volume: x, for: ever}]}`:                     "for \"ever\"",
		`{name: a, steps: [{do: wait, for: gone}]}`:                                                       "was not made",
		`{name: a, steps: [{do: hold}]}`:                                                                  "resource",
		`{name: a, steps: [{do: crash-at-call, at: noon}]}`:                                               "received, done or answered",
		`{name: a, steps: [{do: pass}]}`:                                                                  "time",
		`{name: a, steps: [{do: api, rules: [{effect: burn}]}]}`:                                          "burn",
		`{name: a, steps: [{do: driver, calls: [{method: Steal, action: crash}]}]}`:                       "Steal",
		`{name: a, steps: [{do: wait, for: crashed, nth: -1}]}`:                                           "negative",
		`{name: a, want: {x: deleted}, steps: []}`:                                                        "no such volume",
		`{name: a, want: {x: burnt}, steps: [{do: make, volume: x}]}`:                                     "end",
		`{name: a, colour: red, steps: []}`:                                                               "colour",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %s", text, err, want)
		}
	}
}
