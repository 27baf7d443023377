// Package version has the version of the programs, which the Makefile sets when it compiles them.
package version

import (
	"strings"

	"k8s.io/component-base/version"
)

// Get returns the version that was set at build time, or "unknown". It is that of k8s.io/component-base, so that
// client-go and its metrics report the same one.
func Get() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unknown"
	}
	return v
}
