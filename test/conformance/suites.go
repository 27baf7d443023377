package conformance

import (
	"regexp"
	"slices"
	"strings"
)

// Parts are the programs that are judged.
type Parts string

const (
	// Stock are kube-controller-manager with all its controllers, and external-provisioner.
	Stock Parts = "stock"
	// Ours take the place of the stock parts of a suite.
	Ours Parts = "ours"
)

// Both are all parts. The stock ones come first: they show which specs the testbed can run.
func Both() []Parts { return []Parts{Stock, Ours} }

// Suite is a set of specs with the parts of ours that they judge.
type Suite struct {
	Name string
	// Focus is a regular expression that selects the specs by their full names.
	Focus string
	// Subject names the parts of ours, and the stock parts in whose place they are.
	Subject string
	// Guard are the controllers of volume-guard, Replaced those of kube-controller-manager in whose place they are.
	Guard, Replaced []string
	// LeftOut has the reason not to run some of the specs, by a regular expression of their full names.
	LeftOut map[string]string
}

// Suites are all sets of specs, in the order of the table.
func Suites() []Suite {
	protection := Suite{
		Subject: "pv-protection and pvc-protection of volume-guard for those of kube-controller-manager, csi-reclaimer for " +
			"external-provisioner",
		Guard:    []string{"pv-protection", "pvc-protection"},
		Replaced: []string{"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller"},
	}
	of := func(s Suite, name, focus string) Suite {
		s.Name, s.Focus = name, focus
		return s
	}
	return []Suite{
		of(protection, "PV Protection", `\[sig-storage\] PV Protection`),
		of(protection, "PVC Protection", `\[sig-storage\] PVC Protection`),
		of(protection, "StatefulSet PersistentVolumeClaimPolicy",
			`\[sig-apps\] StatefulSet .*StatefulSetPersistentVolumeClaimPolicy`),
	}
}

// slug is the suite's name in names of files.
func (s Suite) slug() string { return strings.ToLower(strings.ReplaceAll(s.Name, " ", "-")) }

// skipped returns the regular expressions of all specs that are left out.
func (s Suite) skipped() (all []string) {
	for expression := range s.LeftOut {
		all = append(all, expression)
	}
	slices.Sort(all)
	return all
}

// whyLeftOut returns the reason not to run a spec of the suite.
func (s Suite) whyLeftOut(spec string) (reason string, is bool) {
	if !regexp.MustCompile(s.Focus).MatchString(spec) {
		return "", false
	}
	for expression, reason := range s.LeftOut {
		if regexp.MustCompile(expression).MatchString(spec) {
			return reason, true
		}
	}
	return "", false
}
