//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// volumeSetLabel marks the PVs and claims of one volume set; its value is the volume set's token.
const volumeSetLabel = "bench.csi-reclaimer.io/volume-set"

// volumeSet is a number of volumes, each with a PV and a claim that the controller manager has bound.
type volumeSet struct {
	env    *environment
	token  string
	names  []string // of PV, claim and volume
	handle map[string]string
	watch  *tracker
}

// volumeSetSpec says what volumes to make.
type volumeSetSpec struct {
	n int
	// name begins the volumes' names, which a fault plan can pick. Default "v".
	name string
	// unprotected leaves the finalizer out that a provisioner puts on as it makes the PV.
	unprotected bool
}

// createVolumeSet makes a volume set by the API and returns once all is bound. close ends its watch.
func (env *environment) createVolumeSet(ctx context.Context, spec volumeSetSpec) (_ *volumeSet, err error) {
	if spec.name == "" {
		spec.name = "v"
	}
	set := &volumeSet{env: env, token: fmt.Sprintf("r%d", env.rounds.Add(1)), handle: map[string]string{}}
	for i := range spec.n {
		set.names = append(set.names, fmt.Sprintf("%s-%s-%d", spec.name, set.token, i))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("create %d volumes: %w", spec.n, err)
			if set.watch != nil {
				set.watch.close()
			}
		}
	}()
	handles := make([]string, spec.n)
	if err := env.each(ctx, spec.n, func(ctx context.Context, _ kubernetes.Interface, i int) (err error) {
		handles[i], err = env.createVolume(ctx, set.names[i])
		return err
	}); err != nil {
		return nil, err
	}
	for i, name := range set.names {
		set.handle[name] = handles[i]
	}
	if set.watch, err = track(ctx, env.users[0], set.token); err != nil {
		return nil, err
	}
	if err := env.each(ctx, spec.n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, set.pv(set.names[i], spec), metav1.CreateOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	return set, set.claim(ctx)
}

// claim makes the claims. Each is made when the controller manager has marked its PV as Available and so knows it: it
// binds a claim whose PV it does not know yet only at its next look at all of them.
func (set *volumeSet) claim(ctx context.Context) error {
	for _, name := range set.names {
		if err := set.watch.wait(ctx, "available", func(t *tracker) bool { return t.pvs[name].available }); err != nil {
			return err
		}
	}
	if err := set.env.each(ctx, len(set.names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().PersistentVolumeClaims(set.env.namespace).Create(ctx, set.pvc(set.names[i]),
			metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := set.watch.wait(ctx, "bound", func(t *tracker) bool { return t.bound == len(set.names) }); err != nil {
		return err
	}
	// The claim is written after the PV.
	for {
		claims, err := set.env.users[0].CoreV1().PersistentVolumeClaims(set.env.namespace).List(ctx,
			metav1.ListOptions{LabelSelector: volumeSetLabel + "=" + set.token})
		if err != nil {
			return err
		}
		bound := 0
		for _, claim := range claims.Items {
			if claim.Status.Phase == v1.ClaimBound {
				bound++
			}
		}
		if bound == len(set.names) {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits for a time, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (env *environment) createVolume(ctx context.Context, name string) (handle string, err error) {
	made, err := env.driver.Controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	})
	if err != nil {
		return "", fmt.Errorf("make volume %q: %w", name, err)
	}
	return made.GetVolume().GetVolumeId(), nil
}

// pv is as the stock provisioner makes it.
func (set *volumeSet) pv(name string, spec volumeSetSpec) *v1.PersistentVolume {
	pv := provisionedPV(name, set.handle[name], driverName)
	pv.Labels = map[string]string{volumeSetLabel: set.token}
	pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: set.env.namespace,
		Name: name}
	if spec.unprotected {
		pv.Finalizers = nil
	}
	return pv
}

// provisionedPV is a PV as the stock provisioner makes it, without a claim.
func provisionedPV(name, handle, driver string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            driver,
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
			Finalizers: []string{volume.Finalizer},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: handle, FSType: "ext4",
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1790000000000-1234-" + driver},
			}},
		},
	}
}

func (set *volumeSet) pvc(name string) *v1.PersistentVolumeClaim {
	noClass := ""
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{volumeSetLabel: set.token}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &noClass, VolumeName: name,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// remove has users delete volumes, as many at once as there are connections: the PV first, then its claim, or the claim
// alone.
func (set *volumeSet) remove(ctx context.Context, pvFirst bool, names []string) error {
	err := set.env.each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		if pvFirst {
			if err := client.CoreV1().PersistentVolumes().Delete(ctx, names[i], metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return client.CoreV1().PersistentVolumeClaims(set.env.namespace).Delete(ctx, names[i], metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("delete volumes as users do: %w", err)
	}
	return nil
}

// close ends the watch, and removes from the cluster what is left.
func (set *volumeSet) close(ctx context.Context) error {
	left := set.watch.left()
	set.watch.close()
	err := set.env.each(ctx, len(left), func(ctx context.Context, client kubernetes.Interface, i int) error {
		pvs := client.CoreV1().PersistentVolumes()
		_, err := pvs.Patch(ctx, left[i], "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		err = errors.Join(ignoreNotFound(err), ignoreNotFound(pvs.Delete(ctx, left[i], metav1.DeleteOptions{})))
		return errors.Join(err, ignoreNotFound(client.CoreV1().PersistentVolumeClaims(set.env.namespace).Delete(ctx, left[i],
			metav1.DeleteOptions{})))
	})
	if err != nil {
		return fmt.Errorf("remove %d volumes that are left: %w", len(left), err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
