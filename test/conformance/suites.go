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
	// Labels are those of all namespaces of the specs, with our parts.
	Labels map[string]string
	// RealNodes have kubelets and containers, and need root. Otherwise one node is played: it runs no process.
	RealNodes bool
	// LeftOut has the reason not to run some of the specs, by a regular expression of their full names.
	LeftOut map[string]string
}

// Suites are all sets of specs, in the order of the table.
func Suites() []Suite { return append(protected(), guarded()...) }

// protected are specs of the finalizers of PVs and claims.
func protected() []Suite {
	return each(Suite{
		Subject: "pv-protection and pvc-protection of volume-guard for those of kube-controller-manager, csi-reclaimer for " +
			"external-provisioner",
		Guard:    []string{"pv-protection", "pvc-protection"},
		Replaced: []string{"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller"},
	},
		"PV Protection", `\[sig-storage\] PV Protection`,
		"PVC Protection", `\[sig-storage\] PVC Protection`,
		"StatefulSet PersistentVolumeClaimPolicy", `\[sig-apps\] StatefulSet .*StatefulSetPersistentVolumeClaimPolicy`)
}

// guarded are specs of the users of pods, who must not notice volume-guard.
func guarded() []Suite {
	return each(Suite{
		Subject: "volume-guard with pod-safety and single-node beside the stock parts, for all pods and claims of the " +
			"specs; csi-reclaimer for external-provisioner",
		Guard:     []string{"pod-safety", "single-node"},
		Labels:    map[string]string{"csi-reclaimer.io/pod-safety": "enforce", "csi-reclaimer.io/single-node": "all"},
		RealNodes: true,
		LeftOut: map[string]string{
			`\[Feature:OffByDefault\]|\[Alpha\]`: "the feature is off by default",
			`evicted pods should be terminal`:    "kubelets of the testbed do not measure the disk of a pod",
			`\[Flaky\]`:                          "Kubernetes' own runs leave it out, as it fails now and then",
			`\[Slow\]`:                           "it takes many minutes",
		},
	},
		"Job", `\[sig-apps\] Job `,
		"DaemonSet", `\[sig-apps\] Daemon set `,
		"Deployment", `\[sig-apps\] Deployment `,
		"Garbage collector", `\[sig-api-machinery\] Garbage collector `,
		"Namespaces", `\[sig-api-machinery\] Namespaces `,
		"Pods", `\[sig-node\] Pods `,
		"StatefulSet", `\[sig-apps\] StatefulSet (Basic|MinReadySeconds|AvailableReplicas|Scaling|Automatically)`)
}

// each returns suites that differ in their names, each followed by its focus.
func each(like Suite, namesAndFocuses ...string) (all []Suite) {
	for pair := range slices.Chunk(namesAndFocuses, 2) {
		like.Name, like.Focus = pair[0], pair[1]
		all = append(all, like)
	}
	return all
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
