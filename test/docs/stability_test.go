package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// stabilities are the lines of which each public package's comment has one.
var stabilities = []string{
	"Stability: for embedders. Until version 1.0 it changes only with a minor release, " +
		"and CHANGELOG.md lists each change.",
	"Stability: for the programs of this repository. It may change with each release.",
}

// stabilityOf returns the line in a package's comment, empty without one.
func stabilityOf(comment string) string {
	for line := range strings.Lines(comment) {
		for _, stability := range stabilities {
			if strings.TrimSpace(line) == stability {
				return stability
			}
		}
	}
	return ""
}

func TestPublicPackagesNameTheirStability(t *testing.T) {
	root := process.RootForTest(t)
	stable := map[string]string{} // by folder
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "internal" || d.Name() == "testdata"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		stable[folder] += stabilityOf(file.Doc.Text())
		return nil
	})
	must(t, err)
	for folder, stability := range stable {
		if stability == "" {
			t.Errorf("%s: no file's package comment has a line %q", folder, stabilities)
		}
	}
	if len(stable) < 20 {
		t.Errorf("%d public packages were read", len(stable))
	}
}

func TestStabilityOf(t *testing.T) {
	for comment, want := range map[string]string{
		"Package p does it.\n":                               "",
		"Package p does it.\n\nStability: who knows.\n":      "",
		"Package p does it.\n\n" + stabilities[1] + "\n":     stabilities[1],
		"Package p: " + stabilities[0] + " So it is said.\n": "",
	} {
		if got := stabilityOf(comment); got != want {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}
