package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PVFacts holds the results of all reads about one PV.
type PVFacts struct {
	ClusterFacts
	PV *v1.PersistentVolume
	// Claim has a nil Value if the claim is gone. It is not read for a PV without a claimRef.
	Claim Read[*v1.PersistentVolumeClaim]
	// Pods holds the pods of the claim's namespace. They are only read for a terminating PV whose claim exists.
	Pods Read[[]pvc.Pod]
	// Nodes holds the nodes that the volume is attached to, by name. The Value is nil if the node is gone.
	Nodes map[string]Read[*v1.Node]
	// Events holds the Events about the PV, the latest last.
	Events Read[[]v1.Event]
}

// ExplainPV is a pure function that explains a PV.
func ExplainPV(f PVFacts) Explanation {
	f.ClusterFacts = f.indexed()
	pv := PVOf(f.PV)
	s := Explanation{Object: "PV " + pv.Name}
	d := f.ifGone(f.decide(pv, f.Claim), pv.Owner())
	s.Decision = &d
	s.addPV(f, pv)
	s.addInFlight(f.ClusterFacts,
		f.InFlight.Value.Of(pv.Owner()).matching(func(e inflight.Located) bool { return e.Of(pv.Name) }))
	s.addClaimOfPV(f, pv)
	s.addUsers(f)
	s.addAttachments(f, pv)
	s.addSiblings(f, pv)
	s.Finalizers = f.finalizersOf(f.PV, pv.Owner(), pv.Driver, f.pluginGone(pv))
	s.addDriver(f, pv)
	s.addWaits(f, pv, d)
	s.addAdvice(f, pv, d)
	s.AddEvents(f.Events, f.Now)
	s.Headline = headline(f, pv, d, s.Finalizers)
	return s
}

// headline returns the explanation in one sentence. A stuck finalizer takes precedence over the decision.
func headline(f PVFacts, pv PV, d Decision, finalizers []Finalizer) string {
	what := "PV " + pv.Name
	left := stuck(finalizers)
	switch {
	case pv.Terminating && len(left) > 0:
		return fmt.Sprintf("%s has been terminating for %s and is stuck: no program removes %s, because %s.", what,
			f.since(pv), left[0].Name, left[0].Stuck)
	case d.Action != "" && d.Action != reclaim.Wait.String() && f.presenceOf(pv.Owner()) == presenceGone:
		return fmt.Sprintf("%s is %s, and nothing happens to it: the next step is %s (%s), but driver %s is gone.", what,
			strings.ToLower(phase(f.PV)), d.Action, d.Reason, pv.Owner())
	case pv.Terminating && d.waits:
		return fmt.Sprintf("%s has been terminating for %s and waits (%s): %s.", what, f.since(pv), d.Reason,
			withoutPeriod(d.Text))
	case d.waits:
		return fmt.Sprintf("%s waits (%s): %s.", what, d.Reason, withoutPeriod(d.Text))
	case pv.Terminating:
		return fmt.Sprintf("%s has been terminating for %s (%s): %s.", what, f.since(pv), d.Reason, withoutPeriod(d.Text))
	}
	return fmt.Sprintf("%s is %s (%s): %s.", what, strings.ToLower(phase(f.PV)), d.Reason, withoutPeriod(d.Text))
}

func (f PVFacts) since(pv PV) string { return Age(f.Now, time.Unix(pv.TerminatingSince, 0)) }

func phase(o *v1.PersistentVolume) string {
	if o.Status.Phase == "" {
		return string(v1.VolumePending)
	}
	return string(o.Status.Phase)
}

func (s *Explanation) addPV(f PVFacts, pv PV) {
	s.AddFact("Policy", "%s", f.PV.Spec.PersistentVolumeReclaimPolicy)
	state := phase(f.PV)
	if pv.Terminating {
		state += ", terminating for " + f.since(pv)
	}
	if f.PV.Status.Message != "" {
		state += ": " + f.PV.Status.Message
	}
	s.AddFact("Phase", "%s", state)
	if pv.Held {
		s.AddFact("Held", "by the annotation %s: %q", volume.HoldAnnotation, pv.HeldBecause)
	}
	switch owner := pv.Owner(); {
	case pv.Handle != "":
		s.AddFact("Volume", "%q of driver %s", pv.Handle, pv.Driver)
	case owner != "":
		s.AddFact("Volume", "of %s", owner)
	}
	switch {
	case pv.MigratedTo != "":
		s.AddFact("Provisioner", "%s, and migrated to %s", pv.ProvisionedBy, pv.MigratedTo)
	case pv.ProvisionedBy != "":
		s.AddFact("Provisioner", "%s", pv.ProvisionedBy)
	default:
		s.AddFact("Provisioner", "none: a person created the PV")
	}
	NoteUnread(s, f.PVs, "The list of PVs", "whether another PV names the same volume")
	NoteUnread(s, f.Attachments, "VolumeAttachments", "whether the volume is attached")
	NoteUnread(s, f.Installed, "CSIDrivers", "whether a driver is installed")
	NoteUnread(s, f.OnNodes, "CSINodes", "whether a node runs a driver")
	NoteUnread(s, f.Leases, "Leases", "whether the brake is on (it counts as off), and which replica leads")
}

func (s *Explanation) addClaimOfPV(f PVFacts, pv PV) {
	if pv.Claim.Name == "" {
		s.AddFact("Claim", "none")
		return
	}
	name := pv.Claim.Namespace + "/" + pv.Claim.Name
	NoteUnread(s, f.Claim, "Claim "+name, "whether it is gone")
	switch claim := f.Claim.Value; {
	case pv.Claim.UID == "":
		s.AddFact("Claim", "reserved for %s: never bound, or released for reuse", name)
	case !f.Claim.OK():
		s.AddFact("Claim", "%s, not readable here", name)
	case claim == nil:
		s.AddFact("Claim", "%s, gone", name)
	case claim.UID != pv.Claim.UID && claim.Spec.VolumeName == pv.Name:
		s.AddFact("Claim", "%s, gone; a new claim of that name names this PV (UID %s, %s)", name, claim.UID,
			strings.ToLower(string(claim.Status.Phase)))
	case claim.UID != pv.Claim.UID:
		s.AddFact("Claim", "%s, gone; a new claim has its name", name)
	case claim.DeletionTimestamp != nil:
		s.AddFact("Claim", "%s, terminating for %s", name, Age(f.Now, claim.DeletionTimestamp.Time))
	case claim.Spec.VolumeName != "" && claim.Spec.VolumeName != pv.Name:
		s.AddFact("Claim", "%s, bound to PV %s", name, claim.Spec.VolumeName)
	default:
		s.AddFact("Claim", "%s, %s", name, strings.ToLower(string(claim.Status.Phase)))
	}
}

// users returns the names of the pods that use the PV's claim.
func (f PVFacts) users() (names []string) {
	if f.Claim.Value == nil {
		return nil
	}
	for _, pod := range f.Pods.Value {
		if use := pvc.UsageOf(pvc.ClaimOf(f.Claim.Value), []pvc.Pod{pod}); use != (pvc.Usage{}) {
			names = append(names, pod.Name)
		}
	}
	return names
}

func (s *Explanation) addUsers(f PVFacts) {
	NoteUnread(s, f.Pods, "Pods", "which pods use the claim")
	if users := f.users(); len(users) > 0 {
		s.AddFact("Used by", "%s %s", plural.Verb(len(users), "pod", "pods"), strings.Join(users, ", "))
	}
}

func (s *Explanation) addAttachments(f PVFacts, pv PV) {
	for _, a := range f.attachmentsOf(pv.Name) {
		state := "attached"
		switch {
		case a.DeletionTimestamp != nil:
			state = "detaching for " + Age(f.Now, a.DeletionTimestamp.Time)
		case !a.Status.Attached:
			state = "attaching"
		}
		if e := a.Status.DetachError; e != nil && a.DeletionTimestamp != nil {
			state += fmt.Sprintf("; %s reports %q", a.Spec.Attacher, e.Message)
		}
		s.AddFact("Attachment", "%s to node %s (%s), %s", a.Name, a.Spec.NodeName, nodeOf(f, a), state)
	}
	if f.Attachments.OK() && len(f.attachmentsOf(pv.Name)) == 0 {
		s.AddFact("Attachment", "none")
	}
}

func nodeOf(f PVFacts, a storagev1.VolumeAttachment) string {
	state, since := nodeState(f.Nodes[a.Spec.NodeName])
	if since.IsZero() {
		return state
	}
	return state + " for " + Age(f.Now, since)
}

const (
	nodeReady    = "Ready"
	nodeNotReady = "NotReady"
	nodeGone     = "gone from the cluster"
	nodeUnread   = "not readable here"
)

// nodeState returns the state of a node, and since when it is not ready.
func nodeState(read Read[*v1.Node]) (state string, since time.Time) {
	switch {
	case !read.OK():
		return nodeUnread, time.Time{}
	case read.Value == nil:
		return nodeGone, time.Time{}
	}
	switch ready := ReadyOf(read.Value); {
	case ready == nil:
		return nodeNotReady, time.Time{}
	case ready.Status == v1.ConditionTrue:
		return nodeReady, time.Time{}
	default:
		return nodeNotReady, ready.LastTransitionTime.Time
	}
}

func (s *Explanation) addSiblings(f PVFacts, pv PV) {
	for _, other := range f.siblingsOf(pv) {
		kind := "Same volume"
		if other.TwinOf == pv.UID || pv.TwinOf == other.UID {
			kind = "Twin"
		}
		s.AddFact(kind, "PV %s, policy %s", other.Name, policy(other.Policy))
	}
}

func policy(p volume.Policy) string {
	switch p {
	case volume.PolicyDelete:
		return string(v1.PersistentVolumeReclaimDelete)
	case volume.PolicyRetain:
		return string(v1.PersistentVolumeReclaimRetain)
	case volume.PolicyRecycle:
		return string(v1.PersistentVolumeReclaimRecycle)
	case volume.PolicyUnknown:
	}
	return "unknown"
}

// addDriver reports whether the driver is installed, and the pods of its leaders.
func (s *Explanation) addDriver(f PVFacts, pv PV) {
	owner := pv.Owner()
	if owner == "" || InTree(owner) || pv.foreign() {
		return
	}
	switch f.presenceOf(owner) {
	case presenceGone:
		s.AddFact("Driver", "%s, not found: no CSIDriver, no node that runs it, no leader", owner)
	case presenceInstalled:
		text := owner + ", installed"
		for _, lease := range f.leasesOf(owner) {
			if IsHeld(lease, f.Now) {
				text += fmt.Sprintf("; %s leads (Lease %s/%s)", HolderOf(lease), lease.Namespace, lease.Name)
			}
		}
		s.AddFact("Driver", "%s", text)
	case presenceUnknown:
		s.AddFact("Driver", "%s, not known whether it is installed", owner)
	}
	for _, warning := range f.idleBrakes(owner) {
		s.AddFact("Brake", "%s", warning)
	}
	if warning := f.contested(owner); warning != "" {
		s.AddFact("Leader", "%s", warning)
	}
	if _, guessed := f.RoleOf(owner); guessed {
		s.AddFact("Role", "guessed from the driver's finalizers; set it with --role")
	}
}

// pluginGone returns the reason why a PV's in-tree plugin does nothing, empty if none is known.
func (w ClusterFacts) pluginGone(pv PV) string {
	switch {
	case removed(pv.FormerPlugin, w.Minor):
		return "Kubernetes removed the in-tree plugin " + pv.FormerPlugin
	case pv.Tree != nil && pv.Tree.PluginGone:
		return "kube-controller-manager finds no plugin for the volume"
	}
	return ""
}

// pluginKeeps reports whether a volume is to be deleted, and its in-tree plugin does nothing.
func (w ClusterFacts) pluginKeeps(pv PV) bool {
	return pv.Policy == volume.PolicyDelete && (pv.Terminating || wantsDeletion(pv.PV)) && w.pluginGone(pv) != ""
}
