package main

import (
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// checkVersion rejects a version that is invalid for one of the artifacts. Tags, images and krew keep the v, charts
// drop it.
func checkVersion(version string) error {
	const want = "make release VERSION=vX.Y.Z, or vX.Y.Z-rc.N"
	number, hasV := strings.CutPrefix(version, "v")
	switch parsed, err := semver.StrictNewVersion(number); {
	case version == "":
		return fmt.Errorf("no version: %s", want)
	case !hasV:
		return fmt.Errorf("version %q does not begin with v: %s", version, want)
	case err != nil:
		return fmt.Errorf("version %q is no semantic version (%w): %s", version, err, want)
	case parsed.Metadata() != "":
		return fmt.Errorf("version %q has build metadata, which the tag of an image cannot have: %s", version, want)
	}
	return nil
}

// chartVersion returns the version of a chart, which Helm wants without the v.
func chartVersion(version string) string { return strings.TrimPrefix(version, "v") }
