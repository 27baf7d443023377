package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// heading matches the heading of a section: "## v1.2.3 - 2026-01-31", also with the brackets and without the v as in
// keepachangelog.com.
var heading = regexp.MustCompile(`^## \[?v?([^\]\s]+)\]?(?: - (.*))?$`)

var date = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// readNotes returns the section of the version in CHANGELOG.md, without its heading. The notes of a trial say so.
func readNotes(root, version string, trial bool) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return "", fmt.Errorf("read the release notes: %w", err)
	}
	notes, err := section(string(text), version)
	if trial {
		if err != nil {
			notes = unreleased(string(text))
		}
		return fmt.Sprintf("This is a trial of %s, and no release.\n\n%s", version, notes), nil
	}
	if err != nil {
		return "", fmt.Errorf("CHANGELOG.md: %w; for a trial, set TRIAL=1 (--trial)", err)
	}
	return notes, nil
}

// unreleased returns the changes since the last release. It may be empty.
func unreleased(changelog string) string {
	_, after, _ := strings.Cut("\n"+changelog, "\n## Unreleased\n")
	changes, _, _ := strings.Cut(after, "\n## ")
	return strings.TrimSpace(changes) + "\n"
}

func section(changelog, version string) (string, error) {
	var lines []string
	found := false
	for line := range strings.Lines(changelog) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "## ") {
			if found {
				break
			}
			match := heading.FindStringSubmatch(line)
			if match == nil || "v"+match[1] != version {
				continue
			}
			if !date.MatchString(match[2]) {
				return "", fmt.Errorf(`%q has no date: make it "## %s - YYYY-MM-DD", with the day of the release`, line, version)
			}
			found = true
			continue
		}
		if found {
			lines = append(lines, line)
		}
	}
	notes := strings.TrimSpace(strings.Join(lines, "\n"))
	switch {
	case !found:
		return "", fmt.Errorf(`there is no section %s: rename "## Unreleased" to "## %[1]s - YYYY-MM-DD", `+
			`and add an empty "## Unreleased" above it`, version)
	case notes == "":
		return "", fmt.Errorf("the section %s is empty: describe the changes for users", version)
	}
	return notes + "\n", nil
}
