package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	for version, complaint := range map[string]string{
		"v1.2.3": "", "v0.1.0": "", "v1.2.3-rc.1": "",
		"":             "no version: make release VERSION=vX.Y.Z",
		"1.2.3":        "does not begin with v",
		"v1.2":         "no semantic version",
		"v01.2.3":      "no semantic version",
		"v1.2.3-01":    "no semantic version",
		"vv1.2.3":      "no semantic version",
		"latest":       "does not begin with v",
		"b12a3b5":      "does not begin with v",
		"v1.2.3/x":     "no semantic version",
		"v1.2.3+build": "build metadata",
	} {
		_, err := parse([]string{"--version=" + version}, io.Discard, io.Discard)
		if (err == nil) != (complaint == "") || err != nil && !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q: %v, want %q", version, err, complaint)
		}
	}
}

func TestSections(t *testing.T) {
	for name, test := range map[string]struct{ changelog, notes, complaint string }{
		"as this project has it": {changelog: changelog, notes: "### Added\n\n- now\n"},
		"as keepachangelog has it": {changelog: "## [1.2.3] - 2026-01-31\r\n\r\n- now\r\n\r\n## [1.2.2] - 2026-01-01\r\n",
			notes: "- now\n"},
		"the last one":           {changelog: "## v1.2.3 - 2026-01-31\n- now", notes: "- now\n"},
		"of another version":     {changelog: "## v1.2.30 - 2026-01-31\n- now", complaint: "no section v1.2.3"},
		"of the final version":   {changelog: "## v1.2.3-rc.1 - 2026-01-31\n- now", complaint: "no section v1.2.3"},
		"in a text":              {changelog: "### v1.2.3 - 2026-01-31\n- now", complaint: "no section v1.2.3"},
		"without date":           {changelog: "## v1.2.3\n- now", complaint: "has no date"},
		"that is not released":   {changelog: "## v1.2.3 - Unreleased\n- now", complaint: "has no date"},
		"without anything in it": {changelog: "## v1.2.3 - 2026-01-31\n\n## v1.2.2 - 2026-01-01\n- a", complaint: "is empty"},
	} {
		notes, err := section(test.changelog, testVersion)
		if notes != test.notes || (err == nil) != (test.complaint == "") ||
			err != nil && !strings.Contains(err.Error(), test.complaint) {
			t.Errorf("%s: %q, %v", name, notes, err)
		}
	}
}

func TestUnreleased(t *testing.T) {
	for text, want := range map[string]string{
		"# Log\n\n## Unreleased\n\n- a\n\n### Fixed\n\n- b\n\n## v1.0.0 - 2026-01-01\n": "- a\n\n### Fixed\n\n- b\n",
		"## Unreleased\n- a":                        "- a\n",
		"## Unreleased\n\n## v1.0.0 - 2026-01-01\n": "\n",
		"## v1.0.0 - 2026-01-01\n\n- c\n":           "\n",
	} {
		if got := unreleased(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help, io.Discard); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(help.String(), "SHA256SUMS") || !strings.Contains(help.String(), "-trial") {
		t.Errorf("%v\n%s", err, help.String())
	}
	for _, args := range [][]string{{"--wrong"}, {"--version=v1.2.3", "more"}} {
		if _, err := parse(args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "--help") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
