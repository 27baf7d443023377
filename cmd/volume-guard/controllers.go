package main

import (
	"fmt"
	"slices"
	"strings"
)

// The controllers, as --controllers names them.
const (
	inTree        = "intree"
	pvcProtection = "pvc-protection"
	pvProtection  = "pv-protection"
	podSafety     = "pod-safety"
	setClaims     = "statefulset-claims"
	nodeFencing   = "node-fencing"
	singleNode    = "single-node"
)

// onByDefault are those that * means. The others do what Kubernetes' own controllers do in most
// clusters, change how pods begin and end, delete claims, or fence nodes, and cost a watch of all claims or pods.
func onByDefault() []string { return []string{inTree} }

func offByDefault() []string {
	return []string{pvcProtection, pvProtection, podSafety, singleNode, setClaims, nodeFencing}
}

// selection is the value of --controllers: "*" for those that are on by default, "NAME" for one more,
// "-NAME" for one less, as in kube-controller-manager.
type selection []string

// has reports whether a controller runs. Its name wins over *.
func (s selection) has(controller string) bool {
	switch {
	case slices.Contains(s, controller):
		return true
	case slices.Contains(s, "-"+controller):
		return false
	}
	return slices.Contains(s, "*") && slices.Contains(onByDefault(), controller)
}

// none reports whether no controller runs.
func (s selection) none() bool {
	return !slices.ContainsFunc(slices.Concat(onByDefault(), offByDefault()), s.has)
}

// validate returns an error for an unknown name.
func (s selection) validate() error {
	all := slices.Concat(onByDefault(), offByDefault())
	for _, name := range s {
		if name != "*" && !slices.Contains(all, strings.TrimPrefix(name, "-")) {
			return fmt.Errorf("--controllers: unknown controller %q: must be one of %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}
