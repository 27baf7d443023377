package explain

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// InFlightLogs holds the in-flight logs of a cluster, and is a [reclaim.InFlight] that does not change after its read.
type InFlightLogs struct {
	Entries []inflight.Located
	// Problems lists the parts of the logs that cannot be read.
	Problems []inflight.LocatedProblem
	// Fill is the used part of the fullest Lease of each driver's log, where 1 is full.
	Fill map[string]float64
	// OnNodes holds the drivers whose csi-reclaimer has a log for each node.
	OnNodes map[string]bool
}

// Of returns the log of one driver. A shard that does not name its driver may belong to any driver, so it is included.
func (l InFlightLogs) Of(driver string) InFlightLogs {
	return InFlightLogs{
		Entries: l.Matching(func(e inflight.Located) bool { return e.Driver == driver }),
		Problems: Filter(l.Problems,
			func(p inflight.LocatedProblem) bool { return p.Driver == driver || p.Driver == "" }),
	}
}

// For returns the logs without the entries of other nodes for a volume of the PV's name.
func (l InFlightLogs) For(pv volume.PV) InFlightLogs {
	l.Entries = l.Matching(func(e inflight.Located) bool { return !e.Apart(pv) })
	return l
}

// InFlight returns the state of the volume of a PV in the logs. problem is the first unreadable part that may concern
// it.
func (l InFlightLogs) InFlight(pv string) (state volume.InFlight, problem string) {
	if unreadable := l.Unreadable(pv); len(unreadable) > 0 {
		return volume.InFlightUnreadable, unreadable[0].String()
	}
	if len(l.Matching(func(e inflight.Located) bool { return e.Of(pv) })) > 0 {
		return volume.InFlightOpen, ""
	}
	return volume.InFlightSettled, ""
}

// Follow does nothing, because the logs do not change after their read.
func (InFlightLogs) Follow(func(volume string)) {}

// Unreadable returns the unreadable parts that may concern the volume of a PV.
func (l InFlightLogs) Unreadable(pv string) []inflight.LocatedProblem {
	return Filter(l.Problems, func(p inflight.LocatedProblem) bool { return p.Of(pv) })
}

// UnreadableElsewhere returns the unreadable parts that concern a claim's volume only if its name is not the usual one.
func (l InFlightLogs) UnreadableElsewhere(claim types.UID, usual string) []inflight.LocatedProblem {
	return Filter(l.Problems, func(p inflight.LocatedProblem) bool {
		return !p.Of(usual) && (p.OfShard() || request.IsVolumeName(p.Volume, claim))
	})
}

// Matching returns the entries that fit.
func (l InFlightLogs) Matching(fits func(inflight.Located) bool) []inflight.Located {
	return Filter(l.Entries, fits)
}

// InFlightOf decodes the Leases of in-flight logs.
func InFlightOf(shards []coordinationv1.Lease) (logs InFlightLogs) {
	logs.Entries, logs.Problems = inflight.Locate(shards, nil)
	logs.Fill, logs.OnNodes = inflight.FillOf(shards), inflight.OnNodes(shards)
	return logs
}

// InFlight is an entry of the in-flight log: a volume whose CreateVolume may have been called and has no known
// outcome.
type InFlight struct {
	Volume string `json:"volume"`
	Driver string `json:"driver"`
	// Claim is the namespace and name of the claim that the volume is for; ClaimUID is its UID.
	Claim    string      `json:"claim"`
	ClaimUID string      `json:"claimUID"`
	Since    metav1.Time `json:"since"`
	// Lease is the namespace and name of the Lease that holds the entry; Annotation is its key there.
	Lease      string `json:"lease"`
	Annotation string `json:"annotation"`
	// Requests are the requests that csi-reclaimer repeats until it knows the outcome.
	Requests []InFlightRequest `json:"requests"`
}

// InFlightRequest is the printable part of a CreateVolume request. It holds no secrets, and of parameters only the
// names.
type InFlightRequest struct {
	Bytes      int64    `json:"bytes"`
	Parameters []string `json:"parameters,omitempty"`
	// Node is the node that the scheduler selected for the claim, empty if it selected none.
	Node string `json:"node,omitempty"`
	// Source is the snapshot or volume that the data comes from, empty for an empty volume.
	Source string `json:"source,omitempty"`
	// Secret is the namespace and name of the Secret for the request, empty if it uses none.
	Secret string `json:"secret,omitempty"`
	Class  string `json:"class,omitempty"`
}
