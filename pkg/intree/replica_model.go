//go:build model

package intree

import (
	"context"
	"errors"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ModelPV is a PV of a world. Its twin has the slot after its own.
type ModelPV struct {
	Name string
	// Disk is the volume that it names.
	Disk int
	// Claim is the name of the claim that it is made for.
	Claim string
	// Static: no plugin provisioned it.
	Static bool
}

// PVView is a PV as it is read. The zero value is none.
type PVView struct {
	Version, UID uint8
	Policy       volume.Policy
	Phase        volume.Phase
	// Claim is the UID in the claimRef, 0 for none.
	Claim uint8
	Guard Writer
	// External: the finalizer of the CSI side is on.
	Terminating, External, Migrated, Held bool
	// TwinOf is the UID of the PV in the slot before, 0 for no twin.
	TwinOf uint8
}

// Ask is what a step asks of the API server.
type Ask struct {
	// Action is a read, Protect, DropGuard, ReleasePV, MakeTwin, ArmTwin, DisarmTwin or DeleteTwin.
	Action Action
	Slot   uint8
	// UID and Version are those to which a write is bound; Version 0: by UID alone.
	UID, Version uint8
	// Add and Drop are about the finalizer, DropExternal about that of the CSI side.
	Add, Drop, DropExternal bool
	// New is the PV to be made.
	New PVView
}

// Outcome is how a call ended. The zero value: the answer is as hoped for.
type Outcome uint8

const (
	// OK is the answer that was hoped for.
	OK Outcome = iota
	// Changed and Gone are answers of an API server that has done nothing.
	Changed
	Gone
	// Broken: no answer came, whatever was done.
	Broken
)

// Reply is the answer to an Ask.
type Reply struct {
	Outcome Outcome
	// PV is what was read, or what a write has made of it.
	PV PVView
	// Claim is the UID of the claim that has the name, 0 for none. Names is the slot of the PV that it names, from 1;
	// 0 for none.
	Claim, Names uint8
	// Attached: there is a VolumeAttachment.
	Attached bool
}

// Machine makes Replicas for the model checker. It is not safe for concurrent use: each worker has
// its own.
type Machine struct {
	pvs   []ModelPV
	slots []string
	// claims are the names of the claims, by UID from 1.
	claims []string
	ctx    context.Context
	// parts are shared by all Replicas, and hold nothing that is decided from.
	parts Controller
	// Objects are only read, so that each is made once.
	objects map[objectKey]*v1.PersistentVolume
	records map[objectKey]*PV
	idle    []*Replica
}

type objectKey struct {
	slot int
	PVView
}

// NewMachine returns a Machine for PVs, and claims of these names, whose UIDs count from 1.
func NewMachine(pvs []ModelPV, claims []string) *Machine {
	m := &Machine{pvs: pvs, claims: claims, objects: map[objectKey]*v1.PersistentVolume{}, records: map[objectKey]*PV{}}
	m.ctx = klog.NewContext(context.Background(), klog.Logger{}) // says nothing
	for _, pv := range pvs {
		m.slots = append(m.slots, pv.Name, TwinName(pv.Name))
	}
	cfg := Config{Clock: testclock.NewFakeClock(time.Unix(1e9, 0))}.withDefaults()
	m.parts = Controller{cfg: cfg, reports: newReports(events.NoEvents{}, func(Reason) {}), metrics: newMetrics()}
	return m
}

func (m *Machine) slotOf(name string) int {
	for slot, other := range m.slots {
		if other == name {
			return slot
		}
	}
	panic("the model has no PV " + name)
}

// uidOf is the slot and the number of a UID, a digit each.
func uidOf(slot int, uid uint8) types.UID {
	const all = "0.00.10.20.30.40.50.60.70.80.91.01.11.21.31.41.51.61.71.81.92.02.12.22.32.42.52.62.72.82.93.03.13.23.33.43.53.63.73.83.9"
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

func (m *Machine) claimRef(slot int, uid uint8) *v1.ObjectReference {
	ref := &v1.ObjectReference{Namespace: "ns", Name: m.pvs[slot/2].Claim}
	if uid > 0 {
		ref.Name, ref.UID = m.claims[uid-1], uidOf(0, uid)
	}
	return ref
}

// object returns a PV as the API server has it, nil for none.
func (m *Machine) object(slot int, view PVView) *v1.PersistentVolume {
	if view.Version == 0 {
		return nil
	}
	key := objectKey{slot, view}
	if object := m.objects[key]; object != nil {
		return object
	}
	o := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.slots[slot], UID: uidOf(slot, view.UID), ResourceVersion: strconv.Itoa(slot<<8 | int(view.Version)), Annotations: map[string]string{},
		},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef:                      m.claimRef(slot, view.Claim),
			PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/disks/" + strconv.Itoa(m.pvs[slot/2].Disk)}},
		},
		Status: v1.PersistentVolumeStatus{Phase: apiPhase(view.Phase)},
	}
	if view.Policy == volume.PolicyDelete {
		o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimDelete
	}
	if !m.pvs[slot/2].Static {
		o.Annotations["pv.kubernetes.io/provisioned-by"] = inTree + "host-path"
	}
	if view.Migrated {
		o.Annotations["pv.kubernetes.io/migrated-to"] = "disk.csi.example.com"
	}
	if view.Held {
		o.Annotations[volume.HoldAnnotation] = ""
	}
	if view.Terminating {
		o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	}
	if view.External {
		o.Finalizers = append(o.Finalizers, volume.Finalizer)
	}
	if view.Guard != WriterNone {
		o.Finalizers = append(o.Finalizers, Finalizer)
	}
	for writer, manager := range map[Writer]string{WriterUs: FieldManager, WriterOther: "kube-controller-manager"} {
		if view.Guard == writer {
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"` + Finalizer + `\"":{}}}}`)}}
		}
	}
	if view.TwinOf > 0 {
		o.Labels = map[string]string{volume.TwinLabel: string(uidOf(slot-1, view.TwinOf))}
		o.Annotations[twinOfAnnotation] = m.slots[slot-1]
	}
	m.objects[key] = o
	return o
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
func (m *Machine) record(slot int, view PVView) (_ *PV, found bool) {
	if view.Version == 0 {
		return nil, false
	}
	key := objectKey{slot, view}
	if m.records[key] == nil {
		record, _, err := recordPV(m.object(slot, view), true)
		if err != nil {
			panic(err)
		}
		m.records[key] = record
	}
	return m.records[key], true
}

// viewOf is the other way round.
func (m *Machine) viewOf(pv PV) PVView {
	version, _ := strconv.Atoi(pv.ResourceVersion)
	return PVView{
		Version: uint8(version), UID: last(pv.UID), Policy: pv.Policy, Phase: pv.Phase, Claim: last(pv.Claim.UID), Guard: pv.Guard,
		Terminating: pv.Terminating, External: pv.HasFinalizer, Migrated: pv.MigratedTo != "", Held: pv.Held, TwinOf: last(pv.TwinOf),
	}
}

// answers plays the API server. What has no answer yet ends the step.
type answers struct {
	given []Reply
	asked Ask
}

type unanswered struct{}

func (a *answers) ask(q Ask) Reply {
	if len(a.given) == 0 {
		a.asked = q
		panic(unanswered{})
	}
	r := a.given[0]
	a.given = a.given[1:]
	return r
}

var errBroken = errors.New("no answer")

func (r Reply) err() error {
	switch r.Outcome {
	case OK:
		return nil
	case Changed:
		return kube.ErrChanged
	case Gone:
		return kube.ErrGone
	case Broken:
	}
	return errBroken
}

// readPV and the others are what is asked of the API server.
func (r *Replica) readPV(_ context.Context, name string) (*v1.PersistentVolume, bool, error) {
	slot := r.slotOf(name)
	reply := r.answers.ask(Ask{Action: ReadPV, Slot: uint8(slot)})
	return r.object(slot, reply.PV), reply.PV.Version != 0, reply.err()
}

func (r *Replica) readClaim(_ context.Context, of volume.ClaimRef) (ClaimFacts, error) {
	reply := r.answers.ask(Ask{Action: ReadClaim, UID: last(of.UID)})
	facts := ClaimFacts{Of: of, Found: reply.Claim != 0}
	if facts.Found {
		facts.UID = uidOf(0, reply.Claim)
	}
	if reply.Names != 0 {
		facts.VolumeName = r.slots[reply.Names-1]
	}
	return facts, reply.err()
}

func (r *Replica) countAttachments(context.Context, []string) (int, error) {
	reply := r.answers.ask(Ask{Action: ReadAttachments})
	count := 0
	if reply.Attached {
		count = 1
	}
	return count, reply.err()
}

// write asks for a change of a PV that is there.
func (r *Replica) write(pv PV, a Ask) (*v1.PersistentVolume, error) {
	slot, view := r.slotOf(pv.Name), r.viewOf(pv)
	a.Slot, a.UID, a.Version = uint8(slot), view.UID, view.Version
	if a.Action == ReleasePV {
		a.Version = 0
	}
	reply := r.answers.ask(a)
	return r.object(slot, reply.PV), reply.err()
}

func (r *Replica) patchFinalizers(_ context.Context, pv PV, add, drop []string, bound bool) (*v1.PersistentVolume, error) {
	ask := Ask{Action: DropGuard, Add: len(add) > 0}
	switch {
	case ask.Add:
		ask.Action = Protect
	case !bound:
		ask.Action = ReleasePV
	}
	for _, f := range drop {
		ask.Drop = ask.Drop || f == Finalizer
		ask.DropExternal = ask.DropExternal || f == volume.Finalizer
	}
	return r.write(pv, ask)
}

func (r *Replica) createPV(_ context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	slot := r.slotOf(pv.Name)
	reply := r.answers.ask(Ask{Action: MakeTwin, Slot: uint8(slot), New: r.viewOf(PVOf(pv))})
	return r.object(slot, reply.PV), reply.err()
}

func (r *Replica) setPolicy(_ context.Context, pv PV, policy v1.PersistentVolumeReclaimPolicy) (*v1.PersistentVolume, error) {
	if policy == v1.PersistentVolumeReclaimDelete {
		return r.write(pv, Ask{Action: ArmTwin})
	}
	return r.write(pv, Ask{Action: DisarmTwin})
}

func (r *Replica) deletePV(_ context.Context, pv PV) error {
	_, err := r.write(pv, Ask{Action: DeleteTwin})
	return err
}
