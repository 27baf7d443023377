package volumes

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	engine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Plan describes the effect of releasing a driver's PVs from csi-reclaimer's finalizers.
type Plan struct {
	Driver string `json:"driver"`
	Role   string `json:"role"`
	// PVs lists the PVs that lose a finalizer.
	PVs []string `json:"pvs"`
	// Abandoned lists those PVs that are terminating with policy Delete. The release lets them go, and their volumes stay
	// in the storage system.
	Abandoned []string `json:"abandoned,omitempty"`
	// InFlight lists the driver's volumes in flight, which no program finishes without csi-reclaimer. PVs of these names
	// keep their finalizers.
	InFlight []explain.InFlight `json:"inFlight,omitempty"`
	// ListedBy names the objects that list the driver, as "mutatingadmissionpolicy/NAME". They add each finalizer again
	// in the write that removes it, so the driver has to be removed from them first.
	ListedBy []string `json:"listedBy,omitempty"`
	// Obstacles lists the reasons why the release would fail or be undone at once, each with the next step.
	Obstacles []string `json:"obstacles,omitempty"`
	// Unread lists the reads that failed.
	Unread []string `json:"unread,omitempty"`

	// As is the role whose finalizers the release removes.
	As volume.Role `json:"-"`
}

// PlanRelease is a pure function that returns the effect of releasing a driver, decided by the function that
// [reclaim.Controller.Release] uses.
func PlanRelease(f StatusFacts, driver string) Plan {
	f.ClusterFacts = f.Indexed()
	role, guessed := f.RoleOf(driver)
	p := Plan{PVs: []string{}, Driver: driver, Role: role.String(), As: role,
		ListedBy: f.Admission.Value.Lists[driver], Unread: f.unread()}
	log := f.InFlight.Value.Of(driver)
	for _, e := range log.Entries {
		p.InFlight = append(p.InFlight, inFlightOf(e))
	}
	rules := engine.Rules{Driver: driver, Role: role, Mode: reclaim.ModeRelease, Logged: true}
	var owners int
	for _, pv := range f.PVs.Value {
		state, _ := f.logState(log, pv.Name)
		d := engine.Decide(engine.Facts{Rules: rules, Leading: true, PV: pv.PV, Log: state}, f.Now)
		if d.Action != engine.RemoveFinalizer {
			if pv.Owner() == driver && pv.HasFinalizer {
				owners++
			}
			continue
		}
		p.PVs = append(p.PVs, pv.Name)
		if pv.HasFinalizer {
			owners++
		}
		if pv.Terminating && pv.Policy == volume.PolicyDelete && pv.Claim.UID != "" {
			p.Abandoned = append(p.Abandoned, pv.Name)
		}
	}
	if guessed {
		p.guessed(f, owners > 0)
	}
	p.obstacles(f)
	return p
}

// guessed adds the obstacles of a role that was guessed; owners reports whether PVs carry the owner's finalizer.
func (p *Plan) guessed(f StatusFacts, owners bool) {
	switch {
	case p.As == volume.RoleCompanion && owners:
		p.obstacle("PVs of %s carry the finalizers of role owner and of role companion: set --role=owner to remove both, "+
			"or --role=companion if an external-provisioner manages the former", p.Driver)
	case p.As == volume.RoleOwner && len(p.PVs) > 0 && f.Leases.OK() && f.InFlight.OK() && !f.showsOwner(p.Driver):
		p.obstacle("nothing shows that csi-reclaimer is the provisioner of %s, and an external-provisioner adds the same "+
			"finalizer: set --role=owner if it has been. In role observer there is nothing to release", p.Driver)
	}
}

// showsOwner reports whether csi-reclaimer has left more of role owner than finalizers: its Lease, or its in-flight
// log.
func (f StatusFacts) showsOwner(driver string) bool {
	_, logged := f.InFlight.Value.Fill[driver]
	return logged ||
		slices.ContainsFunc(f.leasesOf(driver), func(l coordinationv1.Lease) bool {
			return l.Name == objects.ElectionLeases(driver)[0] && l.Labels[objects.DriverLabel] == driver
		})
}

func (p *Plan) obstacle(format string, args ...any) {
	p.Obstacles = append(p.Obstacles, fmt.Sprintf(format, args...))
}

// obstacles adds the unreadable parts of the in-flight log, and sidecars that run, or are not known to be stopped, and
// would add the finalizers again.
func (p *Plan) obstacles(f StatusFacts) {
	if !f.Leases.OK() || !f.Sidecars.OK() {
		p.obstacle("the Leases of csi-reclaimer cannot be read, so that it may still run and add the finalizers again: try " +
			"again, or use another --context or --as, which may list leases")
	}
	if !f.InFlight.OK() {
		p.obstacle("the in-flight log cannot be read, and PVs whose volumes are in flight keep their finalizers: use " +
			"another --context or --as, which may list leases")
	}
	for _, problem := range f.InFlight.Value.Of(p.Driver).Problems {
		if problem.HidesEntries() {
			p.obstacle("part of the in-flight log cannot be read: %s; %s", problem.Problem, inflight.IfForged)
		}
	}
	names := objects.ElectionLeases(p.Driver)
	if at := f.onNodes(p.Driver); len(at) > 0 {
		pods := podsOf(at)
		p.obstacle("csi-reclaimer still runs on %s for %s: %s%s. Stop it on all nodes first",
			plural.Count(len(at), "node"), p.Driver, strings.Join(pods[:min(len(pods), shownPods)], ", "),
			moreThan(len(pods), shownPods))
	}
	for _, lease := range f.heldOf(p.Driver) {
		if lease.Name == names[1] || p.As == volume.RoleOwner {
			p.obstacle("csi-reclaimer, or an external-provisioner, still runs for %s: %s holds Lease %s/%s. Stop all its "+
				"replicas first (kubectl scale --replicas=0)",
				p.Driver, explain.HolderOf(lease), lease.Namespace, lease.Name)
		}
	}
}

// shownPods limits the pods that an obstacle names.
const shownPods = 3

// moreThan says how many of all are not shown, empty for none.
func moreThan(all, shown int) string {
	if all <= shown {
		return ""
	}
	return fmt.Sprintf(" and %d more", all-shown)
}
