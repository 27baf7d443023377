package cli

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is a kind of object that the plugin explains or completes.
type Kind uint8

const (
	// KindAny is a PV, or else a claim or a pod.
	KindAny Kind = iota
	KindPV
	KindClaim
	KindPod
	KindNamespace
	KindNode
	KindSet
	// KindFence, KindPolicy and kindDriver are only completed, not explained.
	KindFence
	KindPolicy
	kindDriver
)

// kinds holds the words for each kind, as kubectl takes them, and the shell completes the first. A NodeFence has the
// name of its node.
var kinds = map[Kind][]string{
	KindPV:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	KindClaim:     {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	KindPod:       {"pod", "po", "pods"},
	KindNamespace: {"namespace", "ns", "namespaces"},
	KindNode:      {"node", "no", "nodes", "nodefence", "nodefences", "nodefence.csi-reclaimer.io"},
	KindSet:       {"statefulset", "sts", "statefulsets", "statefulsets.apps"},
}

// Word returns the word for a kind that the shell completes.
func (k Kind) Word() string { return kinds[k][0] }

// KindOf returns the kind that a word names.
func KindOf(word string) (Kind, bool) {
	for kind, words := range kinds {
		if slices.Contains(words, strings.ToLower(word)) {
			return kind, true
		}
	}
	return KindAny, false
}

// ParseObject parses KIND/NAME.
func ParseObject(arg string) (Kind, string, error) {
	of, name, found := strings.Cut(arg, "/")
	if kind, known := KindOf(of); found && known && name != "" && !strings.Contains(name, "/") {
		return kind, name, nil
	}
	return KindAny, "", fmt.Errorf("%q cannot be explained: write pv/NAME, pvc/NAME, pod/NAME, namespace/NAME, node/NAME "+
		"or statefulset/NAME", arg)
}
