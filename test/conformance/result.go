package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
)

// Result is how the specs of a suite ended with these parts.
type Result struct {
	Suite Suite
	Parts Parts
	// Kubernetes is its version, Commit the version of this tree.
	Kubernetes, Commit string
	Seconds            int
	Specs              []Spec
}

// Count returns how many specs ended in a state.
func (r Result) Count(state State) (n int) {
	for _, spec := range r.Specs {
		if spec.State == state {
			n++
		}
	}
	return n
}

// Store keeps results in a folder, so that an interrupted run goes on where it was.
type Store string

func (s Store) file(suite Suite, parts Parts, extension string) string {
	return filepath.Join(string(s), fmt.Sprintf("%s-%s.%s", suite.slug(), parts, extension))
}

// load returns a result of an earlier run: of the same specs, Kubernetes and commit.
func (s Store) load(want Result) (r Result, has bool, err error) {
	text, err := os.ReadFile(s.file(want.Suite, want.Parts, "json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read result: %w", err)
	}
	same := reflect.DeepEqual(r.Suite, want.Suite) && r.Kubernetes == want.Kubernetes && r.Commit == want.Commit
	return r, same, nil
}

// save writes a result at once or not at all.
func (s Store) save(r Result) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	file := s.file(r.Suite, r.Parts, "json")
	if err := os.WriteFile(file+".next", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".next", file)
}
