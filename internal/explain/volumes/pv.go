package volumes

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
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
	Claim explain.Read[*v1.PersistentVolumeClaim]
	// Pods holds the pods of the claim's namespace. They are only read for a terminating PV whose claim exists.
	Pods explain.Read[[]pvc.Pod]
	// Nodes holds the nodes that the volume is attached to, by name. The Value is nil if the node is gone.
	Nodes map[string]explain.Read[*v1.Node]
	// Events holds the Events about the PV, the latest last.
	Events explain.Read[[]v1.Event]
}

// ExplainPV is a pure function that explains a PV.
func ExplainPV(f PVFacts) explain.Explanation {
	f.ClusterFacts = f.Indexed()
	pv := explain.PVOf(f.PV)
	s := explain.Explanation{Object: "PV " + pv.Name}
	d := f.ifGone(f.decide(pv, f.Claim), pv.Owner())
	s.Decision = &d.Decision
	addPV(&s, f, pv, reclaim.Reason(d.Reason))
	addInFlight(&s, f.ClusterFacts,
		f.InFlight.Value.Of(pv.Owner()).Matching(func(e inflight.Located) bool { return e.Names(pv.PV) }), bondOf(pv.PV))
	addClaimOfPV(&s, f, pv)
	addUsers(&s, f)
	addAttachments(&s, f, pv)
	addSiblings(&s, f, pv)
	s.Finalizers = f.finalizersOf(f.PV, pv.Owner(), pv.Driver, f.pluginGone(pv))
	addDriver(&s, f, pv)
	addWaits(&s, f, pv, d)
	addAdvice(&s, f, pv, d)
	s.AddEvents(f.Events, f.Now)
	s.Headline = headline(f, pv, d, s.Finalizers)
	return s
}

// headline returns the explanation in one sentence. A stuck finalizer takes precedence over the decision.
func headline(f PVFacts, pv explain.PV, d decision, finalizers []explain.Finalizer) string {
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
			explain.WithoutPeriod(d.Text))
	case d.waits:
		return fmt.Sprintf("%s waits (%s): %s.", what, d.Reason, explain.WithoutPeriod(d.Text))
	case pv.Terminating:
		return fmt.Sprintf("%s has been terminating for %s (%s): %s.", what, f.since(pv), d.Reason,
			explain.WithoutPeriod(d.Text))
	}
	return fmt.Sprintf("%s is %s (%s): %s.", what, strings.ToLower(phase(f.PV)), d.Reason, explain.WithoutPeriod(d.Text))
}

func (f PVFacts) since(pv explain.PV) string {
	return explain.Age(f.Now, time.Unix(pv.TerminatingSince, 0))
}

func phase(o *v1.PersistentVolume) string { return string(cmp.Or(o.Status.Phase, v1.VolumePending)) }

func addPV(s *explain.Explanation, f PVFacts, pv explain.PV, reason reclaim.Reason) {
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
	if pv.Held {
		reason = reclaim.ReasonHeld // also while another reason precedes it
	}
	if doubt := f.inDoubt(pv, reason); doubt != "" && explain.CSIName(pv.Owner()) {
		s.AddFact("In doubt", "%s", doubt)
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
	explain.NoteUnread(s, f.PVs, "The list of PVs", "whether another PV names the same volume")
	explain.NoteUnread(s, f.Attachments, "VolumeAttachments", "whether the volume is attached")
	explain.NoteUnread(s, f.Installed, "CSIDrivers", "whether a driver is installed")
	explain.NoteUnread(s, f.OnNodes, "CSINodes", "whether a node runs a driver")
	explain.NoteUnread(s, f.Leases, "Leases", "whether the brake is on (it counts as off), and which replica leads")
}

func addClaimOfPV(s *explain.Explanation, f PVFacts, pv explain.PV) {
	if pv.Claim.Name == "" {
		s.AddFact("Claim", "none")
		return
	}
	name := pv.Claim.Namespace + "/" + pv.Claim.Name
	explain.NoteUnread(s, f.Claim, "Claim "+name, "whether it is gone")
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
		s.AddFact("Claim", "%s, terminating for %s", name, explain.Age(f.Now, claim.DeletionTimestamp.Time))
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

func addUsers(s *explain.Explanation, f PVFacts) {
	explain.NoteUnread(s, f.Pods, "Pods", "which pods use the claim")
	if users := f.users(); len(users) > 0 {
		s.AddFact("Used by", "%s %s", plural.Verb(len(users), "pod", "pods"), strings.Join(users, ", "))
	}
}

func addAttachments(s *explain.Explanation, f PVFacts, pv explain.PV) {
	for _, a := range f.attachmentsOf(pv.Name) {
		state := "attached"
		switch {
		case a.DeletionTimestamp != nil:
			state = "detaching for " + explain.Age(f.Now, a.DeletionTimestamp.Time)
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
	read := f.Nodes[a.Spec.NodeName]
	if since := explain.DownSince(read.Value); !since.IsZero() {
		return nodeState(read) + " for " + explain.Age(f.Now, since)
	}
	return nodeState(read)
}

const (
	nodeReady    = "Ready"
	nodeNotReady = "NotReady"
	nodeGone     = "gone from the cluster"
	nodeUnread   = "not readable here"
)

func nodeState(read explain.Read[*v1.Node]) string {
	switch {
	case !read.OK():
		return nodeUnread
	case read.Value == nil:
		return nodeGone
	case explain.IsReady(read.Value):
		return nodeReady
	}
	return nodeNotReady
}

func addSiblings(s *explain.Explanation, f PVFacts, pv explain.PV) {
	for _, other := range f.SiblingsOf(pv) {
		kind := "Same volume"
		if other.TwinOf == pv.UID || pv.TwinOf == other.UID {
			kind = "Twin"
		}
		s.AddFact(kind, "PV %s, policy %s", other.Name, other.PolicyName())
	}
}

// addDriver reports whether the driver is installed, and the pods of its leaders.
func addDriver(s *explain.Explanation, f PVFacts, pv explain.PV) {
	owner := pv.Owner()
	if owner == "" || explain.InTree(owner) || foreign(pv) {
		return
	}
	switch f.presenceOf(owner) {
	case presenceGone:
		s.AddFact("Driver", "%s, not found: no CSIDriver, no node that runs it, no leader", owner)
	case presenceInstalled:
		text := owner + ", installed"
		for _, lease := range f.heldOf(owner) {
			text += fmt.Sprintf("; %s leads (Lease %s/%s)", explain.HolderOf(lease), lease.Namespace, lease.Name)
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
func (w ClusterFacts) pluginGone(pv explain.PV) string {
	switch {
	case removed(pv.FormerPlugin, w.Minor):
		return "Kubernetes removed the in-tree plugin " + pv.FormerPlugin
	case pv.Tree != nil && pv.Tree.PluginGone:
		return "kube-controller-manager finds no plugin for the volume"
	}
	return ""
}

// pluginKeeps reports whether a volume is to be deleted, and its in-tree plugin does nothing.
func (w ClusterFacts) pluginKeeps(pv explain.PV) bool {
	return pv.Policy == volume.PolicyDelete && (pv.Terminating || pv.Deletable()) && w.pluginGone(pv) != ""
}
