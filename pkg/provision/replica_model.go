//go:build model

package provision

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/board"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/order"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Machine makes Replicas for the model checker. It is not safe for concurrent use: each worker has
// its own.
type Machine struct {
	// names are those of the claims, which are known by their index; two may have the same, one
	// after the other. pvs is for each the index of its PV's name.
	names    []string
	pvs      []int
	uids     []types.UID
	pvNames  []string
	protects bool
	ctx      context.Context
	// parts are shared by all Replicas, and hold nothing that is decided from.
	parts Provisioner
	// Objects are only read, so that each is made once.
	claims   map[claimShown]*v1.PersistentVolumeClaim
	recorded map[claimShown]*v1.PersistentVolumeClaim
	volumes  map[pvShown]reclaim.PV
	stored   map[pvShown]*v1.PersistentVolume
	orders   []*Order
	idle     []*Replica
}

// Replica is one process as a value: what it has seen, remembers and has in hand. All of it is the
// code that ships, but for its queues, its caches, those who answer, and the library.
type Replica struct {
	*Machine
	p     Provisioner
	leads bool
	seen  []ClaimView
	pv    []PVView
	class bool
	// Woken are the claims that wait in our loop, Again those that come back to it by the clock.
	Woken, Again []bool
	// Asked and AskedAgain are the same for the library's queue.
	Asked, AskedAgain []bool
	// inProgress are the claims that the library holds on to, and syncing those that a worker of
	// it has in hand.
	inProgress, syncing []ClaimView
	hands               []hand
	// unknown are the claims whose last run told that nobody knows what is left of them.
	unknown []bool
	answers answers
}

// ClaimView is a claim as it is read. The zero value is none.
type ClaimView struct {
	Version                uint8
	Protected, Terminating bool
	Bound                  Binding
}

// Binding is the PV that a claim names.
type Binding uint8

// A claim names no PV, the one that is made for it, or another.
const (
	Unbound Binding = iota
	BoundOwn
	BoundElsewhere
)

// PVView is a PV as it is read. The zero value is none.
type PVView struct {
	// Claim is the index of the claim that it belongs to, from 1, or Foreign.
	Claim       uint8
	Terminating bool
}

// Foreign stands for the claim of a PV that somebody else made, of a volume that is none of ours.
const Foreign uint8 = 15

const (
	foreignUID    types.UID = "foreign"
	foreignHandle string    = "foreign"
)

// Ask is what a step asks of the API server or the driver.
type Ask struct {
	// Action is Protect, LetGo, ReadPV, StorePV (a CREATE), CreateVolume or DeleteVolume.
	Action Action
	// Version is the resourceVersion to which Protect is bound.
	Version uint8
	Reason  Reason
}

// Outcome is how a call ended. The zero value: the answer is as hoped for.
type Outcome uint8

const (
	// OK is the answer that was hoped for.
	OK Outcome = iota
	// Changed, Gone and Exists are answers of the API server that has done nothing.
	Changed
	Gone
	Exists
	// Broken: no answer came, whatever was done.
	Broken
	// Refused, Unfit and InProgress are answers of the driver: this call made nothing, there is
	// nothing of that name, another call is at work on it.
	Refused
	Unfit
	InProgress
)

// Reply is the answer to an Ask.
type Reply struct {
	Outcome Outcome
	Version uint8
	PV      PVView
	// Spoiled: the volume that the driver made is not what was asked for.
	Spoiled bool
}

// origin is who has begun a run.
type origin uint8

const (
	ofLoop origin = iota
	ofShouldProvision
	ofProvision
)

// hand is the run that a worker has in hand for one claim. Its step is begun anew with each answer.
type hand struct {
	w     *run
	d     Decision
	from  origin
	given []Reply
	ask   Ask
}

type claimShown struct {
	claim int
	ClaimView
}

type pvShown struct {
	name int
	PVView
}

// answers plays those who are asked. What has no answer yet ends the step.
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
	case Exists:
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "persistentvolumes"}, "")
	case Refused:
		return outcome.Mark(outcome.Refused, errBroken)
	case Unfit:
		return outcome.Mark(outcome.Unfit, errBroken)
	case InProgress:
		return outcome.Mark(outcome.InProgress, errBroken)
	case Broken:
	}
	return errBroken
}

const modelDriver = "driver"

// NewMachine returns a Machine for claims of these names, each with the index of its PV's name.
// protects: claims get our finalizer.
func NewMachine(names []string, pvs []int, protects bool) *Machine {
	m := &Machine{
		names: names, pvs: pvs, protects: protects,
		claims: map[claimShown]*v1.PersistentVolumeClaim{}, recorded: map[claimShown]*v1.PersistentVolumeClaim{}, volumes: map[pvShown]reclaim.PV{}, stored: map[pvShown]*v1.PersistentVolume{},
	}
	m.ctx = klog.NewContext(context.Background(), klog.Logger{}) // says nothing
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	m.parts = Provisioner{
		cfg: Config{Clock: clock}.withDefaults(), names: []string{modelDriver}, orders: m, protects: protects, reports: newReports(board.NoEvents{}),
		metrics: newMetrics(modelDriver, func() int { return 0 }, func() int { return 0 }),
	}
	for i := range names {
		m.uids = append(m.uids, types.UID("u"+strconv.Itoa(i)))
		m.pvNames = append(m.pvNames, "pvc-u"+strconv.Itoa(i))
		if pvs[len(pvs)-1] != len(pvs)-1 {
			// The name, which several claims share, does not hold all of the UID.
			m.uids[i] = types.UID("u0-" + strconv.Itoa(i))
		}
		m.orders = append(m.orders, &Order{Request: &csi.CreateVolumeRequest{Name: "pvc-u" + strconv.Itoa(pvs[i])}, PV: func(made *csi.Volume) (*v1.PersistentVolume, error) {
			if made.GetVolumeContext() != nil {
				return nil, errBroken
			}
			return m.storedPV(pvShown{pvs[i], PVView{Claim: uint8(i + 1)}}), nil
		}})
	}
	return m
}

func (m *Machine) uid(claim int) types.UID { return m.uids[claim] }

func (m *Machine) key(claim int) key { return key{"ns", m.names[claim], m.uid(claim)} }

func (m *Machine) claimOf(uid types.UID) int {
	if uid == foreignUID {
		return int(Foreign) - 1
	}
	return int(uid[len(uid)-1] - '0')
}

// pvName is "pvc-" and the UID where each claim has a name of its own.
func (m *Machine) pvName(name int) string { return m.pvNames[name] }

func (m *Machine) nameOf(pv string) int { return int(pv[5] - '0') }

// PVName and Compose are what is asked of the orders: the class says nothing.
func (m *Machine) PVName(claim types.UID) string { return m.pvName(m.pvs[m.claimOf(claim)]) }

// Compose fails for nobody.
func (m *Machine) Compose(_ context.Context, want Want) (*Order, error) {
	return m.orders[m.claimOf(want.Claim.UID)], nil
}

func (m *Machine) claim(claim int, c ClaimView) *v1.PersistentVolumeClaim {
	if c.Version == 0 {
		return nil
	}
	shown := claimShown{claim, c}
	if object := m.claims[shown]; object != nil {
		return object
	}
	class, long := "class", metav1.Unix(1e9, 0)
	object := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: m.names[claim], UID: m.uid(claim), ResourceVersion: strconv.Itoa(int(c.Version)),
			Annotations: map[string]string{annProvisioner: modelDriver},
		},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class},
	}
	if c.Protected {
		object.Finalizers = []string{Finalizer}
	}
	if c.Terminating {
		object.DeletionTimestamp = &long
	}
	switch c.Bound {
	case BoundOwn:
		object.Spec.VolumeName = m.PVName(object.UID)
	case BoundElsewhere:
		object.Spec.VolumeName = "another"
	case Unbound:
	}
	m.claims[shown] = object
	return object
}

func (m *Machine) viewOf(claim *v1.PersistentVolumeClaim) (c ClaimView) {
	if claim == nil {
		return c
	}
	version, _ := strconv.Atoi(claim.ResourceVersion)
	c = ClaimView{Version: uint8(version), Protected: len(claim.Finalizers) > 0, Terminating: claim.DeletionTimestamp != nil}
	switch claim.Spec.VolumeName {
	case "":
	case "another":
		c.Bound = BoundElsewhere
	default:
		c.Bound = BoundOwn
	}
	return c
}

// storedPV returns a PV as the API server has it.
func (m *Machine) storedPV(shown pvShown) *v1.PersistentVolume {
	if shown.Claim == 0 {
		return nil
	}
	if object := m.stored[shown]; object != nil {
		return object
	}
	claim, long := int(shown.Claim)-1, metav1.Unix(1e9, 0)
	of, handle := &v1.ObjectReference{Namespace: "ns", Name: "foreign", UID: foreignUID}, foreignHandle
	if shown.Claim != Foreign {
		of, handle = &v1.ObjectReference{Namespace: "ns", Name: m.names[claim], UID: m.uid(claim)}, m.pvName(shown.name)
	}
	object := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: m.pvName(shown.name), UID: types.UID("pv-" + strconv.Itoa(claim))},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef:               of,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: modelDriver, VolumeHandle: handle}},
		},
	}
	if shown.Terminating {
		object.DeletionTimestamp = &long
	}
	m.stored[shown] = object
	return object
}

// cachedPV returns a PV as the watch cache has it.
func (m *Machine) cachedPV(shown pvShown) (_ reclaim.PV, found bool) {
	if shown.Claim == 0 {
		return reclaim.PV{}, false
	}
	pv, known := m.volumes[shown]
	if !known {
		pv = reclaim.PVOf(m.storedPV(shown))
		m.volumes[shown] = pv
	}
	return pv, true
}

// cachedClaim returns a claim as the watch cache has it, nil if it is not there. One that would take
// no memory is kept in part, as one that was seen whole before.
func (m *Machine) cachedClaim(claim int, c ClaimView) *v1.PersistentVolumeClaim {
	if c.Version == 0 {
		return nil
	}
	shown := claimShown{claim, c}
	if m.recorded[shown] == nil {
		recorded, _, err := recordClaim(m.claim(claim, c), true)
		if err != nil {
			panic(err)
		}
		m.recorded[shown] = recorded
	}
	return m.recorded[shown]
}

var modelClass = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Provisioner: modelDriver}

// protect and the others are what is asked of the API server and the driver.
func (r *Replica) protect(_ context.Context, c Claim) error {
	version, _ := strconv.Atoi(c.ResourceVersion)
	return r.answers.ask(Ask{Action: Protect, Version: uint8(version)}).err()
}

func (r *Replica) letGo(context.Context, Claim) (string, error) {
	reply := r.answers.ask(Ask{Action: LetGo})
	if reply.Outcome != OK {
		return "", reply.err()
	}
	return strconv.Itoa(int(reply.Version)), nil
}

func (r *Replica) readPV(_ context.Context, name string) (*v1.PersistentVolume, error) {
	reply := r.answers.ask(Ask{Action: ReadPV})
	return r.storedPV(pvShown{r.nameOf(name), reply.PV}), reply.err()
}

func (r *Replica) createPV(_ context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	return pv, r.answers.ask(Ask{Action: StorePV}).err()
}

func (*Replica) selectNode(context.Context, *v1.PersistentVolumeClaim, string) error {
	panic("the model has one process for the whole cluster")
}
func (*Replica) holdSource(context.Context, order.SourceRef) error { panic("the model has no clones") }
func (*Replica) freeSource(context.Context, order.SourceRef) error { panic("the model has no clones") }
func (*Replica) readSecret(context.Context, v1.SecretReference) (map[string]string, error) {
	panic("the model has no Secrets")
}

// CreateVolume is answered with the one volume that has the name.
func (r *Replica) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest, _ map[string]string) (*csi.Volume, error) {
	reply := r.answers.ask(Ask{Action: CreateVolume})
	if reply.Outcome != OK {
		return nil, reply.err()
	}
	return madeVolume(request.GetName(), reply.Spoiled), nil
}

// DeleteVolume is bound to the id.
func (r *Replica) DeleteVolume(context.Context, string, map[string]string) error {
	return r.answers.ask(Ask{Action: DeleteVolume}).err()
}

func madeVolume(id string, spoiled bool) *csi.Volume {
	made := &csi.Volume{VolumeId: id}
	if spoiled {
		made.VolumeContext = map[string]string{}
	}
	return made
}
