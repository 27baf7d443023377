package view

import (
	"regexp"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// page is a page of the docs about the reasons of a table.
type page struct {
	path string
	has  func(reason string) bool
}

// The references of Events of both programs.
const sidecarEvents, guardEvents = "reference/events.md#", "reference/events-volume-guard.md#"

// events is the section of a reference of Events with the reasons of type R.
func events[R reasons.Reason](reference, section string) page {
	return page{reference + section,
		func(reason string) bool { return R(reason).About() != reasons.About{} }}
}

var (
	deletionPage     = events[reclaim.Reason](sidecarEvents, "deletion")
	provisioningPage = events[provision.Reason](sidecarEvents, "provisioning")
	inTreePage       = events[intree.Reason](guardEvents, "volumes-of-in-tree-plugins")
	inUsePage        = events[inuse.Reason](guardEvents, "claims-and-pvs-in-use")
	podsPage         = events[podsafety.Reason](guardEvents, "pods-held-until-their-processes-have-ended")
	locksPage        = events[singlenode.Reason](guardEvents, "locks-of-claims")
	setsPage         = events[statefulset.Reason](guardEvents, "claims-of-statefulsets")
	fencesPage       = events[fencing.Reason](guardEvents, "fences-of-nodes")
)

// pagesOf holds the tables of the programs that decide on a kind, the likeliest first: the same word may be in several.
var pagesOf = map[Kind][]page{
	KindPV:       {deletionPage, inUsePage},
	KindClaim:    {provisioningPage, inUsePage, setsPage, deletionPage},
	KindInFlight: {provisioningPage},
	KindPod:      {podsPage, locksPage},
	KindLock:     {locksPage},
	KindFence:    {fencesPage},
	KindNode:     {fencesPage},
}

// DocsOf is a pure function that returns the page of the docs about a reason, below DocsAddress. It is empty if no page
// has the reason.
func DocsOf(kind Kind, driver, reason string) string {
	pages := pagesOf[kind]
	if explain.InTree(driver) {
		pages = append([]page{inTreePage}, pages...)
	}
	for _, p := range pages {
		if p.has(reason) {
			return p.path
		}
	}
	return ""
}

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// DocsAddress returns the address of the docs of a version of the program, and of the newest ones for one that is not
// released.
func DocsAddress(version string) string {
	if !release.MatchString(version) {
		version = "main"
	}
	return "https://github.com/csi-reclaimer/csi-reclaimer/blob/" + version + "/docs/"
}
