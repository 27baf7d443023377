package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The mutants are tried by make mutants; here it is that each can be made.
func TestEveryMutantEditsOnePlace(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mutants() {
		source, err := os.ReadFile(filepath.Join("..", "..", m.folder(), m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(source, []byte(m.before)); n != 1 {
			t.Errorf("%q: %s has %d places like %q, want 1", m.name, m.file, n, m.before)
		}
		if (m.world == "") == (m.because == "") {
			t.Errorf("%q: either a world shows it, or there is a reason why none does", m.name)
		}
		if seen[m.name] || m.before == m.after {
			t.Errorf("%q is there twice, or changes nothing", m.name)
		}
		seen[m.name] = true
	}
	if len(seen) < 30 {
		t.Errorf("%d mutants", len(seen))
	}
}

func TestThePromiseIsFoundInTheModelsWords(t *testing.T) {
	said := "\nworld \"orders\": P2: DeleteVolume is sent\n   1. a user\n"
	if got := promise(said); got != "P2: DeleteVolume is sent" {
		t.Errorf("found %q", got)
	}
	if got := promise("world   states\n"); got != "" {
		t.Errorf("found %q where nothing is broken", got)
	}
}
