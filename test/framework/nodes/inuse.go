//go:build linux

package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// DeletionInUse is a DeleteVolume call that the driver received for a volume that was attached, staged or published.
type DeletionInUse struct {
	Volume string
	At     time.Time
	// Method is the call that began the use: ControllerPublishVolume, NodeStageVolume or NodePublishVolume, on Node and,
	// except for the first, at Path.
	Method, Node, Path string
}

func (d DeletionInUse) String() string {
	return fmt.Sprintf("volume %s was to be deleted at %s, after %s on node %s", d.Volume,
		d.At.Format(time.TimeOnly+".000"), strings.TrimSpace(d.Method+" "+d.Path), d.Node)
}

// DeletedInUse returns the deletions that came while the volume was in use on any node: one for each use. The driver's
// answer does not matter.
func (d *Driver) DeletedInUse() ([]DeletionInUse, error) {
	calls, err := d.Calls()
	return deletedInUse(calls), err
}

// uses maps each call that ends a use of a volume to the call that begins it.
var uses = map[string]string{
	"ControllerUnpublishVolume": "ControllerPublishVolume",
	"NodeUnstageVolume":         "NodeStageVolume",
	"NodeUnpublishVolume":       "NodePublishVolume",
}

// deletedInUse orders the effects of calls by the time of their work, and deletions by the time of their request.
func deletedInUse(calls []ledger.Call) []DeletionInUse {
	type step struct {
		at     time.Time
		method string
		call   ledger.Call
	}
	var steps []step
	for _, call := range calls {
		switch {
		case call.Method == "DeleteVolume":
			steps = append(steps, step{call.Received, call.Method, call})
		case !call.Done.IsZero():
			steps = append(steps, step{call.Done, call.Method, call})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	type use struct{ volume, method, node, path string }
	in := map[use]bool{}
	var found []DeletionInUse
	for _, s := range steps {
		begins := cmp.Or(uses[s.method], s.method)
		u := use{s.call.Volume, begins, s.call.Node, s.call.Path}
		switch {
		case s.method == "DeleteVolume":
			for used := range in {
				if used.volume == s.call.Volume {
					found = append(found, DeletionInUse{used.volume, s.at, used.method, used.node, used.path})
				}
			}
		case uses[s.method] != "":
			delete(in, u)
		case s.method == "ControllerPublishVolume", s.method == "NodeStageVolume", s.method == "NodePublishVolume":
			in[u] = true
		}
	}
	return found
}
