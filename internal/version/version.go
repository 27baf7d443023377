// Package version holds the version of the programs, which the Makefile sets at build time.
package version

import (
	"strings"

	"k8s.io/component-base/version"
)

// Get returns the version that was set at build time, or "unknown". It reads k8s.io/component-base, so client-go and
// its metrics report the same version.
func Get() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unknown"
	}
	return v
}
