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

// of reports whether two results are of the same specs and Kubernetes, at any commit.
func (r Result) of(other Result) bool {
	return reflect.DeepEqual(r.Suite, other.Suite) && r.Parts == other.Parts && r.Kubernetes == other.Kubernetes
}

// Known returns the results of suites that earlier runs have saved, each with those of both parts at one commit.
func (s Store) Known(suites []Suite, kubernetes string) (results []Result, err error) {
	for _, suite := range suites {
		var pair []Result
		for _, parts := range Both() {
			r, has, err := s.load(suite, parts)
			if err != nil {
				return nil, err
			}
			if has && r.of(Result{Suite: suite, Parts: parts, Kubernetes: kubernetes}) {
				pair = append(pair, r)
			}
		}
		if len(pair) == len(Both()) && pair[0].Commit == pair[1].Commit {
			results = append(results, pair...)
		}
	}
	return results, nil
}

// load returns the result of an earlier run, if there was one.
func (s Store) load(suite Suite, parts Parts) (r Result, has bool, err error) {
	text, err := os.ReadFile(s.file(suite, parts, "json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read result: %w", err)
	}
	return r, true, nil
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
