package oracle

import (
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// Kind of an object.
type Kind string

// The kinds that are read.
const (
	PV         Kind = "PV"
	Claim      Kind = "claim"
	Attachment Kind = "attachment"
	Class      Kind = "class"
	// Log is a shard of the in-flight log.
	Log Kind = "in-flight log"
)

const (
	// provisionedBy is the annotation of PVs that a provisioner made.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// provisioner is the annotation by which the PV controller names the provisioner of a claim's volume.
	provisioner = "volume.kubernetes.io/storage-provisioner"
)

// Object is one version of an object, with the fields that the judge needs.
type Object struct {
	Kind                 Kind
	Namespace, Name, UID string
	// Version is the resourceVersion; versions of one object can be compared.
	Version     uint64
	Terminating bool
	Finalizers  []string

	// Of a PV and a claim: the driver of the volume, empty for a claim without a provisioner.
	Driver, Phase string
	// Of a PV. The claim's UID is empty where the PV is not claimed.
	Handle, Policy                      string
	ClaimNamespace, ClaimName, ClaimUID string
	Dynamic                             bool

	// Volume is the name of the PV: a claim's own, or the one attached. Class is the StorageClass of a claim.
	Volume, Class string

	// Entries are the names of the volumes that a shard of the in-flight log has.
	Entries []string
}

// OfPV returns the Object of a PV.
func OfPV(pv *v1.PersistentVolume) Object {
	o := Object{
		Kind: PV, Name: pv.Name, UID: string(pv.UID), Version: version(pv.ResourceVersion),
		Terminating: pv.DeletionTimestamp != nil, Finalizers: pv.Finalizers,
		Policy: string(pv.Spec.PersistentVolumeReclaimPolicy), Phase: string(pv.Status.Phase),
		Dynamic: pv.Annotations[provisionedBy] != "",
	}
	if csi := pv.Spec.CSI; csi != nil {
		o.Driver, o.Handle = csi.Driver, csi.VolumeHandle
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		o.ClaimNamespace, o.ClaimName, o.ClaimUID = ref.Namespace, ref.Name, string(ref.UID)
	}
	return o
}

// OfClaim returns the Object of a claim.
func OfClaim(c *v1.PersistentVolumeClaim) Object {
	o := Object{
		Kind: Claim, Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), Version: version(c.ResourceVersion),
		Terminating: c.DeletionTimestamp != nil, Finalizers: c.Finalizers, Volume: c.Spec.VolumeName,
		Driver: c.Annotations[provisioner], Phase: string(c.Status.Phase),
	}
	if c.Spec.StorageClassName != nil {
		o.Class = *c.Spec.StorageClassName
	}
	return o
}

// OfClass returns the Object of a StorageClass.
func OfClass(c *storagev1.StorageClass) Object {
	return Object{Kind: Class, Name: c.Name, UID: string(c.UID), Version: version(c.ResourceVersion),
		Driver: c.Provisioner}
}

// OfLease returns the Object of a Lease, and false if the Lease is no shard of an in-flight log. An unreadable entry
// counts by the name in its key.
func OfLease(l *coordinationv1.Lease) (Object, bool) {
	o := Object{Kind: Log, Namespace: l.Namespace, Name: l.Name, UID: string(l.UID), Version: version(l.ResourceVersion)}
	if l.Labels[inflight.LabelLog] == "" {
		return Object{}, false
	}
	entries, problems := inflight.Locate([]coordinationv1.Lease{*l}, nil)
	for _, e := range entries {
		o.Entries = append(o.Entries, e.Volume)
	}
	for _, p := range problems {
		o.Entries = append(o.Entries, p.Volume)
	}
	return o, true
}

// OfAttachment returns the Object of a VolumeAttachment.
func OfAttachment(a *storagev1.VolumeAttachment) Object {
	o := Object{
		Kind: Attachment, Name: a.Name, UID: string(a.UID), Version: version(a.ResourceVersion),
		Terminating: a.DeletionTimestamp != nil, Finalizers: a.Finalizers,
	}
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		o.Volume = *name
	}
	return o
}

func version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// logs says whether a shard has an entry of this volume.
func (o Object) logs(volume string) bool { return o.Kind == Log && slices.Contains(o.Entries, volume) }

func (o Object) has(finalizer string) bool { return slices.Contains(o.Finalizers, finalizer) }

// due reports whether the PV itself shows that its volume should be deleted.
func (o Object) due() bool {
	return o.Policy == string(v1.PersistentVolumeReclaimDelete) && o.ClaimUID != "" && o.released()
}

func (o Object) released() bool {
	return o.Phase == string(v1.VolumeReleased) || o.Phase == string(v1.VolumeFailed)
}

// String describes a version in a few words.
func (o Object) String() string {
	words := []string{string(o.Kind), o.Name}
	if o.Kind == PV {
		claim := "unclaimed"
		if o.ClaimUID != "" {
			claim = "claimed"
		}
		words = append(words, o.Phase, o.Policy, claim)
	}
	if o.Terminating {
		words = append(words, "terminating")
	}
	for _, entry := range o.Entries {
		words = append(words, "+"+entry)
	}
	for _, f := range o.Finalizers {
		words = append(words, "+"+f[strings.LastIndex(f, "/")+1:])
	}
	return strings.Join(words, " ")
}
