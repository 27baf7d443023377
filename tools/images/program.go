package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// program is a program of this repository that gets an image.
type program struct{ name, pkg, description string }

// programs lists all programs with an image.
var programs = []program{
	{"csi-reclaimer", "./cmd/csi-reclaimer",
		"Sidecar of a CSI driver: deletes volumes in any order of deletion of PV and claim"},
	{"volume-guard", "./cmd/volume-guard",
		"Reclaims and protects volumes where Kubernetes does not; runs once per cluster"},
	{"kubectl-reclaim", "./cmd/kubectl-reclaim",
		"kubectl plugin: explains why PVs, claims and pods are still there"},
	{"mock-driver", "./mock-driver",
		"CSI driver for tests: its volumes are directories"},
}

// choose returns the programs with these names, or all programs for an empty list.
func choose(list string) ([]program, error) {
	names := separated(list)
	if len(names) == 0 {
		return programs, nil
	}
	var chosen []program
	for _, p := range programs {
		if at := slices.Index(names, p.name); at >= 0 {
			names = slices.Delete(names, at, at+1)
			chosen = append(chosen, p)
		}
	}
	if len(names) > 0 {
		var all []string
		for _, p := range programs {
			all = append(all, p.name)
		}
		return nil, fmt.Errorf("no image of %q, or named twice; known images: %s", names[0],
			strings.Join(all, ", "))
	}
	return chosen, nil
}

// tag matches a valid tag in the grammar of the distribution specification.
var tag = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

func checkVersion(version string) error {
	switch {
	case version == "":
		return errors.New("no version: make images VERSION=vX.Y.Z, or --version=vX.Y.Z")
	case !tag.MatchString(version):
		return fmt.Errorf("version %q cannot be the tag of an image: it may have letters, digits, \"_\", \".\" and \"-\", "+
			"up to 128, and begins with none of the last two", version)
	}
	return nil
}
