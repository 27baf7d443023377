//go:build unix

package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// pvKey is where the API server keeps PVs in etcd, with its default --etcd-prefix.
const pvKey = "/registry/persistentvolumes/"

// otherDriver has PVs in the same cluster, and nobody who looks after them.
const otherDriver = "other.csi-reclaimer.io"

// writers is how many write into etcd at once.
const writers = 16

// filling writes PVs into etcd as the API server would, each as large as a real one: a copy of one that went through the
// API, so that it has the managed fields of provisioner and controller manager.
type filling struct {
	template *v1.PersistentVolume
	// count is how many there are, numbered from 0, all of a kind.
	count int
	kind  fillKind
}

// fillKind says what PVs a cluster is filled with.
type fillKind int

const (
	// unprotected PVs are without the finalizer, and all of the subjects' driver.
	unprotected fillKind = iota
	// mixed PVs have the finalizer, and every second one is another driver's.
	mixed
)

// filledPV says what one of them is like.
type filledPV struct {
	name, handle, driver string
	phase                v1.PersistentVolumePhase
	unprotected          bool
}

// fillName is the name of a PV by its number.
func fillName(i int) string { return fmt.Sprintf("pvc-%08x-5b1c-4e1f-9d5e-7a3f00c0ffee", i) }

// fill has there be n PVs of a kind that are bound to claims. Those of that kind that are there already stay as they are.
func (l *lab) fill(ctx context.Context, n int, kind fillKind) error {
	if err := l.prepare(ctx); err != nil {
		return err
	}
	if l.filled.count > n || l.filled.kind != kind {
		if err := l.empty(ctx); err != nil {
			return err
		}
	}
	from := l.filled.count
	l.filled.kind = kind
	err := inParallel(ctx, writers, n-from, func(ctx context.Context, _, i int) error {
		number := from + i
		pv := filledPV{name: fillName(number), handle: fmt.Sprintf("vol-%016x", number), driver: driverName, phase: v1.VolumeBound, unprotected: kind == unprotected}
		if kind == mixed && number%2 == 1 {
			pv.driver = otherDriver
		}
		return l.put(ctx, pv)
	})
	if err != nil {
		return fmt.Errorf("fill the cluster with %d PVs: %w", n, err)
	}
	l.filled.count = n
	return nil
}

// empty removes all PVs.
func (l *lab) empty(ctx context.Context) error {
	l.filled.count = 0
	return l.etcd.deleteRange(ctx, pvKey, pvKey[:len(pvKey)-1]+"0") // 0 follows /
}

// prepare makes the PV of which the others are copies.
func (l *lab) prepare(ctx context.Context) error {
	if l.filled.template != nil {
		return nil
	}
	pvs := l.users[0].CoreV1().PersistentVolumes()
	pv := provisionedPV("template", "template", driverName)
	pv.Spec.StorageClassName = "fast"
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team-1", Name: "data-database-0", UID: "2f3c9d3a-0000-4000-8000-000000000000", ResourceVersion: "1234567",
	}
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: v1.NodeSelectorOpIn, Values: []string{"zone-a"}}},
	}}}}
	made, err := pvs.Create(ctx, pv, metav1.CreateOptions{FieldManager: "csi-provisioner"})
	if err != nil {
		return fmt.Errorf("make a PV to copy: %w", err)
	}
	made.Status.Phase = v1.VolumeBound
	if made, err = pvs.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return fmt.Errorf("make a PV to copy: %w", err)
	}
	made.TypeMeta, made.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ""
	l.filled.template = made
	return l.empty(ctx)
}

// put writes one PV.
func (l *lab) put(ctx context.Context, p filledPV) error {
	pv := l.filled.template.DeepCopy()
	pv.Name, pv.UID = p.name, types.UID(p.name[len(p.name)-36:])
	pv.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	pv.Annotations["pv.kubernetes.io/provisioned-by"] = p.driver
	pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = p.driver, p.handle
	pv.Spec.CSI.VolumeAttributes["storage.kubernetes.io/csiProvisionerIdentity"] = "1790000000000-1234-" + p.driver
	pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "data-"+p.name, pv.UID
	pv.Status.Phase = p.phase
	pv.Finalizers = []string{reclaim.Finalizer}
	if p.unprotected {
		pv.Finalizers = nil
	}
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pv, &value); err != nil {
		return fmt.Errorf("encode PV %q: %w", p.name, err)
	}
	return l.etcd.put(ctx, pvKey+p.name, value.Bytes())
}
