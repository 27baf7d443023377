package intree

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// PV is a PV of a world. Its twin has the slot after its own.
type PV struct {
	Name string
	// Disk is the volume that it names.
	Disk int
	// Claim is the name of the claim that it is made for.
	Claim string
	// Static: no plugin provisioned it.
	Static bool
}

// view is a PV as it is read. The zero value is none.
type view struct {
	Version, UID uint8
	Policy       volume.Policy
	Phase        volume.Phase
	// Claim is the UID in the claimRef, 0 for none.
	Claim  uint8
	Writer intree.Writer
	// External: the PV has the finalizer of the CSI side.
	Terminating, External, Migrated, Held bool
	// TwinOf is the UID of the PV in the slot before, 0 for no twin.
	TwinOf uint8
}

// ask is a call to the API server. It is plain, other than the engine's.
type ask struct {
	// Action is a read (ReadPV of whichever PV), or the step that writes.
	Action intree.Action
	Slot   uint8
	// UID and Version are those to which a write is bound; Version 0: by UID alone. Slot and UID of ReadClaim are the
	// PV's and its claim's.
	UID, Version uint8
	// Add and Remove are about the finalizer, RemoveExternal about that of the CSI side.
	Add, Remove, RemoveExternal bool
	// New is the PV to be created.
	New view
}

// reply is the answer to an ask.
type reply struct {
	Outcome session.Outcome
	// PV is what was read, or what a write has made of it.
	PV view
	// Claim is the UID of the claim that has the name, 0 for none. Names is the slot of the PV that it names, from 1;
	// 0 for none.
	Claim, Names uint8
	// Attached: there is a VolumeAttachment.
	Attached bool
}

// machine makes replicas. It is not safe for concurrent use: each worker has its own.
type machine struct {
	pvs   []PV
	slots []string
	// claims are the names of the claims, by UID from 1.
	claims []string
	rules  intree.Rules
	// reasons are all of the engine, each known by its number.
	reasons []intree.Reason
	// Objects are only read, so that each is made once.
	objects map[objectKey]*v1.PersistentVolume
	records map[objectKey]*intree.PV
	idle    []*replica
}

type objectKey struct {
	slot int
	view
}

// newMachine returns a machine for PVs, and claims of these names, whose UIDs count from 1.
func newMachine(pvs []PV, claims []string) *machine {
	m := &machine{
		pvs: pvs, claims: claims, reasons: intree.Reasons(),
		rules:   intree.Rules{RetryStart: time.Second, RetryMax: 5 * time.Minute},
		objects: map[objectKey]*v1.PersistentVolume{}, records: map[objectKey]*intree.PV{},
	}
	for _, pv := range pvs {
		m.slots = append(m.slots, pv.Name, volume.TwinName(pv.Name))
	}
	return m
}

func (m *machine) slotOf(name string) int {
	slot := slices.Index(m.slots, name)
	if slot < 0 {
		panic("the model has no PV " + name)
	}
	return slot
}

// uidOf is the slot and the number of a UID, a digit each.
func uidOf(slot int, uid uint8) types.UID {
	const all = "0.00.10.20.30.40.50.60.70.80.9" + "1.01.11.21.31.41.51.61.71.81.9" +
		"2.02.12.22.32.42.52.62.72.82.9" + "3.03.13.23.33.43.53.63.73.83.9"
	if uid > 9 {
		panic("the model has ten UIDs for each name")
	}
	at := 3 * (10*slot + int(uid))
	return types.UID(all[at : at+3])
}

// last is the number that a UID ends with, 0 for none.
func last(uid types.UID) uint8 {
	if uid == "" {
		return 0
	}
	return uid[2] - '0'
}

func (m *machine) claimRef(slot int, uid uint8) *v1.ObjectReference {
	ref := &v1.ObjectReference{Namespace: "ns", Name: m.pvs[slot/2].Claim}
	if uid > 0 {
		ref.Name, ref.UID = m.claims[uid-1], uidOf(0, uid)
	}
	return ref
}

func (m *machine) claimOf(slot int, uid uint8) volume.ClaimRef {
	ref := m.claimRef(slot, uid)
	return volume.ClaimRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// object returns a PV as the API server has it, nil for none.
func (m *machine) object(slot int, view view) *v1.PersistentVolume {
	if view.Version == 0 {
		return nil
	}
	key := objectKey{slot, view}
	if object := m.objects[key]; object != nil {
		return object
	}
	o := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.slots[slot], UID: uidOf(slot, view.UID), ResourceVersion: strconv.Itoa(slot<<8 | int(view.Version)),
			Annotations: map[string]string{},
		},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef:                      m.claimRef(slot, view.Claim),
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/disks/" +
				strconv.Itoa(m.pvs[slot/2].Disk)}},
		},
		Status: v1.PersistentVolumeStatus{Phase: apiPhase(view.Phase)},
	}
	if view.Policy == volume.PolicyDelete {
		o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
	}
	if !m.pvs[slot/2].Static {
		o.Annotations[volume.AnnProvisionedBy] = "kubernetes.io/host-path"
	}
	if view.Migrated {
		o.Annotations[volume.AnnMigratedTo] = "disk.csi.example.com"
	}
	if view.Held {
		o.Annotations[volume.HoldAnnotation] = ""
	}
	if view.Terminating {
		o.DeletionTimestamp = &metav1.Time{Time: clock.Now}
	}
	if view.External {
		o.Finalizers = append(o.Finalizers, volume.Finalizer)
	}
	setWriter(o, view.Writer)
	if view.TwinOf > 0 {
		o.Labels = map[string]string{volume.TwinLabel: string(uidOf(slot-1, view.TwinOf))}
		o.Annotations[volume.TwinLabel] = m.slots[slot-1]
	}
	m.objects[key] = o
	return o
}

// setWriter adds the finalizer in the name of whoever adds it.
func setWriter(o *v1.PersistentVolume, w intree.Writer) {
	if w == intree.WriterNone {
		return
	}
	o.Finalizers = append(o.Finalizers, intree.Finalizer)
	managers := map[intree.Writer]string{intree.WriterSelf: intree.FieldManager,
		intree.WriterOther: "kube-controller-manager"}
	if manager := managers[w]; manager != "" {
		set := metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"` + intree.Finalizer + `\"":{}}}}`)
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: set}}
	}
}

func apiPhase(phase volume.Phase) v1.PersistentVolumePhase {
	switch phase {
	case volume.PhasePending:
		return v1.VolumePending
	case volume.PhaseAvailable:
		return v1.VolumeAvailable
	case volume.PhaseBound:
		return v1.VolumeBound
	case volume.PhaseReleased:
		return v1.VolumeReleased
	case volume.PhaseFailed:
		return v1.VolumeFailed
	case volume.PhaseUnknown:
	}
	return ""
}

// record returns a PV as the watch cache has it.
func (m *machine) record(slot int, view view) (_ *intree.PV, found bool) {
	if view.Version == 0 {
		return nil, false
	}
	key := objectKey{slot, view}
	if m.records[key] == nil {
		record := intree.Of(m.object(slot, view))
		m.records[key] = &record
	}
	return m.records[key], true
}

// viewOf is the other way round.
func (m *machine) viewOf(pv intree.PV) view {
	version, _ := strconv.Atoi(pv.ResourceVersion)
	return view{
		Version: uint8(version), UID: last(pv.UID), Policy: pv.Policy, Phase: pv.Phase, Claim: last(pv.Claim.UID),
		Writer:      pv.Writer,
		Terminating: pv.Terminating, External: pv.HasFinalizer, Migrated: pv.MigratedTo != "", Held: pv.Held,
		TwinOf: last(pv.TwinOf),
	}
}

// askOf returns a session's call as the API server of the model takes it.
func (m *machine) askOf(s *intree.Session) (a ask) {
	call := s.Ask()
	a.Action = call.Action
	switch call.Call {
	case intree.GetPV:
		return ask{Action: intree.ReadPV, Slot: uint8(m.slotOf(call.Name))}
	case intree.GetClaim:
		a = ask{Action: intree.ReadClaim, Slot: uint8(m.slotOf(s.Subject().Name)), UID: last(call.Claim.UID)}
		if s.ClaimUnread {
			a.Slot = uint8(m.slotOf(s.Siblings[len(s.Siblings)-1].Name))
		}
		return a
	case intree.ListAttachments:
		return a
	case intree.CreatePV:
		a.Slot = uint8(m.slotOf(call.Name))
		read := m.object(m.slotOf(s.Facts.PV.Name), m.viewOf(s.Facts.PV))
		a.New = m.viewOf(intree.Of(intree.NewTwin(read)))
		return a
	default:
	}
	version, _ := strconv.Atoi(call.ResourceVersion)
	a.Slot, a.UID, a.Version = uint8(m.slotOf(call.Name)), last(call.UID), uint8(version)
	a.Add = len(call.Add) > 0
	for _, f := range call.Remove {
		a.Remove = a.Remove || f == intree.Finalizer
		a.RemoveExternal = a.RemoveExternal || f == volume.Finalizer
	}
	return a
}

// replyOf returns the answer of the model's API server as the session takes it.
func (m *machine) replyOf(a ask, r reply) intree.Reply {
	out := intree.Reply{Outcome: r.Outcome}
	if pv, found := m.record(int(a.Slot), r.PV); found {
		out.Found, out.PV = true, *pv
	}
	if r.Claim != 0 {
		out.Claim.Found, out.Claim.UID = true, uidOf(0, r.Claim)
	}
	if r.Names != 0 {
		out.Claim.VolumeName = m.slots[r.Names-1]
	}
	if r.Attached {
		out.Attachments = 1
	}
	return out
}
