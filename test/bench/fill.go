//go:build unix

package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// pvKey is where the API server keeps PVs in etcd, with its default --etcd-prefix.
const pvKey = "/registry/persistentvolumes/"

// claimKey is where it keeps the claims of the namespace that filled PVs name.
const claimKey = "/registry/persistentvolumeclaims/" + filledNamespace + "/"

// filledNamespace has claims and no object of its own: nobody asks for one.
const filledNamespace = "team-1"

// otherDriver has PVs in the same cluster, and nobody who looks after them.
const otherDriver = "other.csi-reclaimer.io"

// writers is how many write into etcd at once.
const writers = 16

// filling writes PVs into etcd as the API server would, each as large as a real one: a copy of one that went through
// the API, so that it has the managed fields of provisioner and controller manager.
type filling struct {
	template *v1.PersistentVolume
	// count is how many there are, numbered from 0, all of a kind.
	count int
	kind  fillKind
	// claims reports whether the claims of our driver's PVs are there, too.
	claims bool
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

// fill has there be n PVs of a kind that are bound to claims. Those of that kind that are there already stay as they
// are.
func (env *environment) fill(ctx context.Context, n int, kind fillKind) error {
	if err := env.prepare(ctx); err != nil {
		return err
	}
	if env.filled.count > n || env.filled.kind != kind || env.filled.claims {
		if err := env.empty(ctx); err != nil {
			return err
		}
	}
	from := env.filled.count
	env.filled.kind = kind
	err := inParallel(ctx, writers, n-from, func(ctx context.Context, _, i int) error {
		number := from + i
		pv := filledPV{name: fillName(number), handle: fmt.Sprintf("vol-%016x", number), driver: driverName,
			phase: v1.VolumeBound, unprotected: kind == unprotected}
		if kind == mixed && number%2 == 1 {
			pv.driver = otherDriver
		}
		return env.put(ctx, pv)
	})
	if err != nil {
		return fmt.Errorf("fill the cluster with %d PVs: %w", n, err)
	}
	env.filled.count = n
	return nil
}

// fillClaims has there be the bound claims of the PVs of our driver that are there.
func (env *environment) fillClaims(ctx context.Context) error {
	claim, err := env.claimTemplate(ctx)
	if err != nil {
		return fmt.Errorf("make a claim to copy: %w", err)
	}
	env.filled.claims = true
	err = inParallel(ctx, writers, (env.filled.count+1)/2, func(ctx context.Context, _, i int) error {
		own, pv := claim.DeepCopy(), fillName(2*i)
		own.Namespace, own.Name, own.UID = filledNamespace, "data-"+pv, uidOf(pv)
		own.Spec.VolumeName = pv
		return env.putObject(ctx, claimKey+own.Name, own)
	})
	if err != nil {
		return fmt.Errorf("fill the cluster with the claims of %d PVs: %w", env.filled.count, err)
	}
	return nil
}

// claimTemplate returns a claim as one that was provisioned is stored, which goes through the API for that and is
// removed again.
func (env *environment) claimTemplate(ctx context.Context) (*v1.PersistentVolumeClaim, error) {
	claims, class := env.users[0].CoreV1().PersistentVolumeClaims(env.namespace), "fast"
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	claim, err := claims.Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "template", Labels: map[string]string{"app.kubernetes.io/name": "database"},
			Finalizers: []string{"kubernetes.io/pvc-protection"},
			Annotations: map[string]string{
				"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
				"volume.kubernetes.io/storage-provisioner": driverName, "volume.beta.kubernetes.io/storage-provisioner": driverName,
			},
		},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "template",
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: claim.Spec.AccessModes,
		Capacity: size}
	if claim, err = claims.UpdateStatus(ctx, claim,
		metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return nil, err
	}
	claim.TypeMeta, claim.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ""
	// Nobody protects claims here, so nobody removes that finalizer.
	return claim, env.etcd.deleteRange(ctx, templateKey(env.namespace), templateKey(env.namespace)+"\x00")
}

func templateKey(namespace string) string {
	return "/registry/persistentvolumeclaims/" + namespace + "/template"
}

// empty removes all PVs, and the claims that were filled in.
func (env *environment) empty(ctx context.Context) error {
	env.filled.count, env.filled.claims = 0, false
	for _, keys := range []string{pvKey, claimKey} {
		if err := env.etcd.deleteRange(ctx, keys, keys[:len(keys)-1]+"0"); err != nil { // 0 follows /
			return err
		}
	}
	return nil
}

// prepare makes the PV of which the others are copies.
func (env *environment) prepare(ctx context.Context) error {
	if env.filled.template != nil {
		return nil
	}
	pvs := env.users[0].CoreV1().PersistentVolumes()
	pv := provisionedPV("template", "template", driverName)
	pv.Spec.StorageClassName = "fast"
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: filledNamespace, Name: "data-database-0",
		UID: "2f3c9d3a-0000-4000-8000-000000000000", ResourceVersion: "1234567",
	}
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: v1.NodeSelectorOpIn,
			Values: []string{"zone-a"}}},
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
	env.filled.template = made
	return env.empty(ctx)
}

// put writes one PV.
func (env *environment) put(ctx context.Context, p filledPV) error {
	pv := env.filled.template.DeepCopy()
	pv.Name, pv.UID = p.name, uidOf(p.name)
	pv.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	pv.Annotations["pv.kubernetes.io/provisioned-by"] = p.driver
	pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = p.driver, p.handle
	pv.Spec.CSI.VolumeAttributes["storage.kubernetes.io/csiProvisionerIdentity"] = "1790000000000-1234-" + p.driver
	pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "data-"+p.name, pv.UID
	pv.Status.Phase = p.phase
	pv.Finalizers = []string{volume.Finalizer}
	if p.unprotected {
		pv.Finalizers = nil
	}
	return env.putObject(ctx, pvKey+p.name, pv)
}

// uidOf is the UID that a PV's name ends with, its own and its claim's.
func uidOf(pv string) types.UID { return types.UID(pv[len(pv)-36:]) }

func (env *environment) putObject(ctx context.Context, key string, object runtime.Object) error {
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &value); err != nil {
		return fmt.Errorf("encode %q: %w", key, err)
	}
	return env.etcd.put(ctx, key, value.Bytes())
}
