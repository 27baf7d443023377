package main

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the controllers as they appear in --controllers.
const (
	inTree        = "intree"
	pvcProtection = "pvc-protection"
	pvProtection  = "pv-protection"
	podSafety     = "pod-safety"
	setClaims     = "statefulset-claims"
	nodeFencing   = "node-fencing"
	singleNode    = "single-node"
)

// onByDefault returns the controllers that * stands for, because the others duplicate Kubernetes' own controllers in
// most clusters, change the start and end of pods, delete claims, or fence nodes, and cost a watch of all claims or
// pods.
func onByDefault() []string { return []string{inTree} }

func offByDefault() []string {
	return []string{pvcProtection, pvProtection, podSafety, singleNode, setClaims, nodeFencing}
}

// selection is the value of --controllers, as in kube-controller-manager: "*" stands for the controllers that are on
// by default, "NAME" adds one, and "-NAME" removes one.
type selection []string

// has reports whether a controller runs, where its name takes precedence over *.
func (s selection) has(controller string) bool {
	switch {
	case slices.Contains(s, controller):
		return true
	case slices.Contains(s, "-"+controller):
		return false
	}
	return slices.Contains(s, "*") && slices.Contains(onByDefault(), controller)
}

func (s selection) none() bool {
	return !slices.ContainsFunc(slices.Concat(onByDefault(), offByDefault()), s.has)
}

// validate returns an error if the selection has an unknown name.
func (s selection) validate() error {
	all := slices.Concat(onByDefault(), offByDefault())
	for _, name := range s {
		if name != "*" && !slices.Contains(all, strings.TrimPrefix(name, "-")) {
			return fmt.Errorf("--controllers: unknown controller %q: must be one of %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}
