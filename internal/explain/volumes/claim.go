package volumes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ClaimFacts holds the results of all reads about one claim.
type ClaimFacts struct {
	ClusterFacts
	Claim *v1.PersistentVolumeClaim
	// Class has a nil Value if the StorageClass is gone. It is not read for a claim without a class.
	Class explain.Read[*storagev1.StorageClass]
	// Pods holds all pods of the claim's namespace.
	Pods explain.Read[[]pvc.Pod]
	// PV holds the facts of the PV that spec.volumeName names. Its Value is nil if the PV is gone.
	PV explain.Read[*PVFacts]
	// Events holds the Events about the claim, the latest last.
	Events explain.Read[[]v1.Event]
}

// noProvisioner marks a StorageClass whose PVs people create.
const noProvisioner = "kubernetes.io/no-provisioner"

// ExplainClaim is a pure function that explains a claim and the PV to which it is bound.
func ExplainClaim(f ClaimFacts) explain.Explanation {
	s, _, _ := f.explain()
	s.AddEvents(f.Events, f.Now)
	if f.PV.Value != nil {
		its := ExplainPV(*f.PV.Value)
		s.PV = &its
		if f.Claim.DeletionTimestamp == nil && f.PV.Value.PV.DeletionTimestamp != nil {
			s.Headline = fmt.Sprintf("%s, which is being deleted (%s): %s.", explain.WithoutPeriod(s.Headline),
				its.Decision.Reason,
				explain.WithoutPeriod(its.Decision.Text))
		}
	}
	return s
}

// explain does the work of ExplainClaim without the PV and the Events, with the same meaning of known as in decide.
func (f ClaimFacts) explain() (s explain.Explanation, d decision, known bool) {
	f.ClusterFacts = f.Indexed()
	s = explain.Explanation{Object: "claim " + f.Claim.Namespace + "/" + f.Claim.Name}
	driver := f.Driver()
	addClaim(&s, f, driver)
	addInFlight(&s, f.ClusterFacts, f.entriesOf(f.Claim.Namespace, f.Claim.Name), bond{f.boundTo(),
		"claim " + f.Claim.Namespace + "/" + f.Claim.Name + " is bound to it"})
	s.Finalizers = f.finalizersOf(f.Claim, driver, driver, "")
	if driver == "" && !f.driverRead() {
		for i := range s.Finalizers {
			s.Finalizers[i].Stuck = "" // a driver that is unknown here may remove it
		}
	}
	if d, known = f.decide(driver); known {
		s.Decision = &d.Decision
	}
	addClaimWaits(&s, f)
	s.Headline = f.headline(s, d)
	return s, d, known
}

// boundTo returns the PV that the claim names, of which only the name may be known.
func (f ClaimFacts) boundTo() volume.PV {
	name := f.Claim.Spec.VolumeName
	if f.PV.Value != nil {
		return explain.PVOf(f.PV.Value.PV).PV
	}
	pv, _ := f.FindPV(name)
	pv.Name = name
	return pv.PV
}

// namedPV returns the PV that the claim names, without a name if there is none. known is false if that could not be
// read.
func (f ClaimFacts) namedPV() (pv explain.PV, known bool) {
	switch {
	case f.PV.Value != nil:
		return explain.PVOf(f.PV.Value.PV), true
	case f.PV.OK():
		return explain.PV{}, true
	}
	pv, _ = f.FindPV(f.Claim.Spec.VolumeName)
	return pv, f.PVs.OK()
}

// Driver returns the provisioner that creates the claim's volume, empty if it is unknown.
func (f ClaimFacts) Driver() string {
	name, asked := volume.ProvisionerOf(f.Claim)
	switch {
	case asked:
		return name
	case f.PV.Value != nil:
		return explain.PVOf(f.PV.Value.PV).Owner()
	case f.Class.Value != nil:
		return f.Class.Value.Provisioner
	}
	return ""
}

// driverRead reports whether all was read that may name the claim's driver.
func (f ClaimFacts) driverRead() bool {
	_, known := f.namedPV()
	return (known || f.Claim.Spec.VolumeName == "") && (f.Class.OK() || objects.ClaimClass(f.Claim) == "")
}

func addClaim(s *explain.Explanation, f ClaimFacts, driver string) {
	o := f.Claim
	state := string(o.Status.Phase)
	if o.DeletionTimestamp != nil {
		state += ", terminating for " + explain.Age(f.Now, o.DeletionTimestamp.Time)
	}
	s.AddFact("Phase", "%s", state)
	class := objects.ClaimClass(o)
	explain.NoteUnread(s, f.Class, "StorageClass "+class, "which provisioner creates the volume")
	switch {
	case class == "":
		s.AddFact("Class", "none")
	case f.Class.OK() && f.Class.Value == nil:
		s.AddFact("Class", "%s, gone", class)
	default:
		s.AddFact("Class", "%s", class)
	}
	if driver != "" {
		s.AddFact("Driver", "%s", driver)
	}
	if node := o.Annotations[volume.AnnSelectedNode]; node != "" {
		s.AddFact("Node", "%s, selected by the scheduler", node)
	}
	switch name := o.Spec.VolumeName; {
	case name == "":
		if pv, shown := f.volumeName(o.UID, driver); shown {
			s.AddFact("PV", "%s, to which the claim is not bound yet", pv)
		} else {
			s.AddFact("PV", "none yet")
		}
	case f.PV.OK() && f.PV.Value == nil:
		s.AddFact("PV", "%s, gone", name)
	default:
		explain.NoteUnread(s, f.PV, "PV "+name, "whether the volume is deleted")
		s.AddFact("PV", "%s", name)
	}
	explain.NoteUnread(s, f.Pods, "Pods", "which pods use the claim")
	if by := f.usage(); by.By != "" {
		s.AddFact("Used by", "pod %s", by.By)
	} else if by.ByEnded != "" {
		s.AddFact("Used by", "pod %s, which has terminated", by.ByEnded)
	}
}

func (f ClaimFacts) usage() pvc.Usage { return pvc.UsageOf(pvc.ClaimOf(f.Claim), f.Pods.Value) }

// decide returns the decision on the claim. known is false if the claim is at rest, or if the in-flight log could not
// be read.
func (f ClaimFacts) decide(driver string) (d decision, known bool) {
	o := f.Claim
	own := explain.Filter(f.entriesOf(o.Namespace, o.Name), func(e inflight.Located) bool { return e.Claim.UID == o.UID })
	switch {
	case o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, pvc.Finalizer):
		return f.protection(), true
	case len(own) > 0:
		return f.finishProvisioning(own[0], claimFacts(o, own[0].Claim, own[0].Volume)), true
	case !explain.CSIName(driver):
	case o.Spec.VolumeName == "" && f.InFlight.OK():
		return f.provisioning(driver), true
	}
	return decision{}, false
}

// protection decides whether a pod still keeps a terminating claim, as kube-controller-manager does.
func (f ClaimFacts) protection() decision {
	d := pvc.Decide(pvc.Facts{
		Duty:  inuse.Duty{Mode: inuse.ModeFull, Alone: true},
		Ended: pvc.HoldTerminated, Claim: pvc.ClaimOf(f.Claim),
		Read: pvc.Reading{Made: true, Err: f.Pods.Err, Usage: f.usage()},
	})
	text := d.Reason.Sentence()
	if d.Detail != "" {
		text += " " + d.Detail
	}
	return decision{Decision: explain.Decision{By: "kube-controller-manager (pvc-protection), or volume-guard",
		Action: d.Action.String(), Reason: string(d.Reason), Text: text}, waits: d.Action == inuse.Wait}
}

// provisioning returns csi-reclaimer's next step for a claim without an entry in the in-flight log. The calls that a
// running sidecar remembers are not part of it.
func (f ClaimFacts) provisioning(driver string) decision {
	name, _ := f.volumeName(f.Claim.UID, driver)
	claim := claimFacts(f.Claim, volume.ClaimRef{}, name)
	facts := provision.Facts{
		MayAct: true, Claim: claim, PV: f.provisionedPV(name, claim.UID, driver),
		Wanted: f.Class.OK() && f.Class.Value != nil && (!f.waitsForConsumer() || claim.SelectedNode != ""),
	}
	switch logs := f.InFlight.Value; {
	case !f.InFlight.OK():
	case len(logs.Of(driver).Unreadable(name)) > 0:
		facts.Log = provision.LogUnreadable
	default:
		facts.Log = provision.LogAbsent
	}
	return provisioningDecision(provision.Decide(facts, f.Now, 0), driver)
}

func addClaimWaits(s *explain.Explanation, f ClaimFacts) {
	o := f.Claim
	switch {
	case o.DeletionTimestamp != nil:
		waitsForFinalizers(s, f)
	case o.Status.Phase == v1.ClaimLost:
		addLostWaits(s, f)
	case o.Spec.VolumeName == "":
		addProvisioningWaits(s, f)
	}
}

// addLostWaits covers a claim that is not bound to the PV that it names. The PV may be gone, or have the UID of an
// earlier claim, as after a restore from a backup: then the claim is all that keeps a volume with policy Delete. The PV
// controller binds the claim once a PV of this name has its UID (syncBoundClaim in
// pkg/controller/volume/persistentvolume/pv_controller.go).
func addLostWaits(s *explain.Explanation, f ClaimFacts) {
	o, name := f.Claim, f.Claim.Spec.VolumeName
	remove := explain.Command(fmt.Sprintf("kubectl delete pvc %s -n %s", o.Name, o.Namespace))
	pv, known := f.namedPV()
	switch {
	case name == "":
		s.AddWait("a person to delete it, because it names no PV, and gets none")
		s.Advise("%s, and create the claim again", remove)
	case !known:
		s.AddWait("PV %s, of which it is not known whether it exists", name)
		s.Advise("Keep the claim until that is clear: it may be all that keeps the volume")
	case pv.Name == "":
		s.AddWait("PV %s, which is gone", name)
		s.Advise("To use the volume of the PV again, create a PV named %s for it", name)
		s.Advise("If the data is not needed: %s, and create the claim again", remove)
	case pv.Claim.Name != "" && (pv.Claim.Namespace != o.Namespace || pv.Claim.Name != o.Name):
		s.AddWait("PV %s, which belongs to claim %s/%s", name, pv.Claim.Namespace, pv.Claim.Name)
		s.Advise("If this claim is not needed: %s", remove)
	case pv.Claim.Name != "" && pv.Claim.UID != o.UID:
		s.AddWait("PV %s to be bound to it, because the PV names an earlier claim of this name", name)
		s.Advise("To bind the claim to the PV again: %s", bindCommand(name, o.UID))
		if pv.Policy == volume.PolicyDelete {
			remove += ". The driver then deletes the volume"
		}
		s.Advise("If the data is not needed: %s", remove)
	default:
		s.AddWait("kube-controller-manager to bind it to PV %s", name)
	}
}

// addProvisioningWaits adds the conditions that a claim without a PV waits for.
func addProvisioningWaits(s *explain.Explanation, f ClaimFacts) {
	o := f.Claim
	driver := f.Driver()
	switch {
	case objects.ClaimClass(o) != "" && f.Class.OK() && f.Class.Value == nil:
		s.AddWait("StorageClass %s, which does not exist", objects.ClaimClass(o))
		s.Advise("Create the StorageClass, or delete the claim and create it with another class")
	case objects.ClaimClass(o) == "" || driver == noProvisioner:
		s.AddWait("a PV that fits, which a person has to create")
	case f.waitsForConsumer() && o.Annotations[volume.AnnSelectedNode] == "":
		s.AddWait("a pod that uses the claim to be scheduled (the StorageClass says WaitForFirstConsumer)")
	case driver != "" && f.presenceOf(driver) == presenceGone:
		s.AddWait("driver %s, which is not installed", driver)
		s.Advise("Install driver %s, or delete the claim and create it with another StorageClass", driver)
		s.Advise("If %s is not a CSI driver, look for its program: no CSIDriver, node or Lease names it", driver)
	default:
		addInFlightWaits(s, f, driver)
	}
}

// addInFlightWaits covers a claim whose class and driver exist.
func addInFlightWaits(s *explain.Explanation, f ClaimFacts, driver string) {
	uid, logs := f.Claim.UID, f.InFlight.Value.Of(driver)
	inFlight := len(s.InFlight) > 0 && s.InFlight[0].ClaimUID == string(uid)
	name, shown := f.volumeName(uid, driver)
	if shown && !inFlight {
		addUnboundWait(s, f.provisionedPV(name, uid, driver), name)
		return
	}
	unreadable := logs.Unreadable(name)
	switch {
	case f.InFlight.OK() && len(s.InFlight) == 0 && len(unreadable) > 0:
		s.AddWait("the in-flight log to be readable where it is for its volume, if that has the usual name %s", name)
		adviseOnLog(s, f.ClusterFacts, unreadable, bond{})
	case inFlight && wasRefused(f.Events):
		s.AddWait("the API server to accept the PV of volume %s, which the driver has created", s.InFlight[0].Volume)
	case inFlight:
		s.AddWait("driver %s to answer CreateVolume, whose outcome has been unknown for %s", driver,
			explain.Age(f.Now, s.InFlight[0].Since.Time))
	case explain.CSIName(driver):
		s.AddWait("driver %s to create the volume", driver)
		if f.InFlight.OK() && len(logs.UnreadableElsewhere(uid, name)) > 0 {
			s.AddWait("the in-flight log to be readable, if flags give its volume another name than %s", name)
		}
	case driver != "":
		s.AddWait("provisioner %s to create the volume", driver)
	}
}

// addUnboundWait covers a claim that has a PV with this name, to which it is not bound.
func addUnboundWait(s *explain.Explanation, pv provision.PV, name string) {
	if pv.Terminating {
		s.AddWait("PV %s to be gone, which is terminating; the claim then gets another volume", name)
		return
	}
	s.AddWait("kube-controller-manager to bind it to PV %s", name)
}

func waitsForFinalizers(s *explain.Explanation, f ClaimFacts) {
	use := f.usage()
	pod := cmp.Or(use.By, use.ByEnded)
	for _, finalizer := range s.Finalizers {
		switch {
		case finalizer.Stuck != "":
			s.AddWait("finalizer %s, forever: %s", finalizer.Name, finalizer.Stuck)
			s.Advise("Install the driver again: it finishes the deletion. Or remove the finalizer by hand: %s",
				removeCommand("pvc -n "+f.Claim.Namespace, f.Claim.Name, finalizer.Name))
		case finalizer.Name == pvc.Finalizer && pod != "":
			s.AddWait("pod %s to end", pod)
			s.Advise("If the pod is not needed: kubectl delete pod %s -n %s", pod, f.Claim.Namespace)
		case finalizer.Owner == "":
			s.AddWait("the owner of finalizer %s to remove it%s", finalizer.Name, addedByNote(finalizer))
		default:
			s.AddWait("finalizer %s, which %s removes %s", finalizer.Name, finalizer.Owner, finalizer.When)
		}
	}
}

func (f ClaimFacts) waitsForConsumer() bool {
	class := f.Class.Value
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func (f ClaimFacts) headline(s explain.Explanation, d decision) string {
	o := f.Claim
	what := "Claim " + o.Namespace + "/" + o.Name
	if o.DeletionTimestamp != nil {
		what += " has been terminating for " + explain.Age(f.Now, o.DeletionTimestamp.Time)
		if left := stuck(s.Finalizers); len(left) > 0 {
			return fmt.Sprintf("%s and is stuck: no program removes %s, because %s.", what, left[0].Name, left[0].Stuck)
		}
		if d.Reason != "" {
			return fmt.Sprintf("%s (%s): %s.", what, d.Reason, explain.WithoutPeriod(d.Text))
		}
		return what + "."
	}
	what += " is " + strings.ToLower(string(o.Status.Phase))
	switch {
	case len(s.WaitsFor) > 0:
		return fmt.Sprintf("%s and waits for %s.", what, s.WaitsFor[0])
	case o.Spec.VolumeName != "":
		return fmt.Sprintf("%s, with PV %s.", what, o.Spec.VolumeName)
	}
	return what + "."
}
