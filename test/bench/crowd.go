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

// crowdLabel marks the PVs and claims of one crowd; its value is the crowd's token.
const crowdLabel = "bench.csi-reclaimer.io/crowd"

// crowd is a number of volumes, each with a PV and a claim that the controller manager has bound.
type crowd struct {
	lab    *lab
	token  string
	names  []string // of PV, claim and volume
	handle map[string]string
	watch  *tracker
}

// crowdSpec says what volumes to make.
type crowdSpec struct {
	n int
	// name begins the volumes' names, which a fault plan can pick. Default "v".
	name string
	// unprotected leaves the finalizer out that a provisioner puts on as it makes the PV.
	unprotected bool
}

// gather makes a crowd by the API and returns once all is bound. close ends its watch.
func (l *lab) gather(ctx context.Context, spec crowdSpec) (_ *crowd, err error) {
	if spec.name == "" {
		spec.name = "v"
	}
	c := &crowd{lab: l, token: fmt.Sprintf("r%d", l.rounds.Add(1)), handle: map[string]string{}}
	for i := range spec.n {
		c.names = append(c.names, fmt.Sprintf("%s-%s-%d", spec.name, c.token, i))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("gather %d volumes: %w", spec.n, err)
			if c.watch != nil {
				c.watch.close()
			}
		}
	}()
	handles := make([]string, spec.n)
	if err := l.each(ctx, spec.n, func(ctx context.Context, _ kubernetes.Interface, i int) (err error) {
		handles[i], err = l.createVolume(ctx, c.names[i])
		return err
	}); err != nil {
		return nil, err
	}
	for i, name := range c.names {
		c.handle[name] = handles[i]
	}
	if c.watch, err = track(ctx, l.users[0], c.token); err != nil {
		return nil, err
	}
	if err := l.each(ctx, spec.n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, c.pv(c.names[i], spec), metav1.CreateOptions{})
		return err
	}); err != nil {
		return nil, err
	}
	return c, c.claim(ctx)
}

// claim makes the claims. Each is made when the controller manager has marked its PV as Available and so knows it: it binds a
// claim whose PV it does not know yet only at its next look at all of them.
func (c *crowd) claim(ctx context.Context) error {
	for _, name := range c.names {
		if err := c.watch.wait(ctx, "available", func(t *tracker) bool { return t.pvs[name].available }); err != nil {
			return err
		}
	}
	if err := c.lab.each(ctx, len(c.names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().PersistentVolumeClaims(c.lab.namespace).Create(ctx, c.pvc(c.names[i]), metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := c.watch.wait(ctx, "bound", func(t *tracker) bool { return t.bound == len(c.names) }); err != nil {
		return err
	}
	// The claim is written after the PV.
	for {
		claims, err := c.lab.users[0].CoreV1().PersistentVolumeClaims(c.lab.namespace).List(ctx, metav1.ListOptions{LabelSelector: crowdLabel + "=" + c.token})
		if err != nil {
			return err
		}
		bound := 0
		for _, claim := range claims.Items {
			if claim.Status.Phase == v1.ClaimBound {
				bound++
			}
		}
		if bound == len(c.names) {
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

func (l *lab) createVolume(ctx context.Context, name string) (handle string, err error) {
	made, err := l.driver.Controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
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
func (c *crowd) pv(name string, spec crowdSpec) *v1.PersistentVolume {
	pv := provisionedPV(name, c.handle[name], driverName)
	pv.Labels = map[string]string{crowdLabel: c.token}
	pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.lab.namespace, Name: name}
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

func (c *crowd) pvc(name string) *v1.PersistentVolumeClaim {
	noClass := ""
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{crowdLabel: c.token}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &noClass, VolumeName: name,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// remove has users delete volumes, as many at once as there are connections: the PV first, then its claim, or the claim alone.
func (c *crowd) remove(ctx context.Context, pvFirst bool, names []string) error {
	err := c.lab.each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		if pvFirst {
			if err := client.CoreV1().PersistentVolumes().Delete(ctx, names[i], metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return client.CoreV1().PersistentVolumeClaims(c.lab.namespace).Delete(ctx, names[i], metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("delete volumes as users do: %w", err)
	}
	return nil
}

// close ends the watch, and removes from the cluster what is left.
func (c *crowd) close(ctx context.Context) error {
	left := c.watch.left()
	c.watch.close()
	err := c.lab.each(ctx, len(left), func(ctx context.Context, client kubernetes.Interface, i int) error {
		pvs := client.CoreV1().PersistentVolumes()
		_, err := pvs.Patch(ctx, left[i], "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		err = errors.Join(ignoreNotFound(err), ignoreNotFound(pvs.Delete(ctx, left[i], metav1.DeleteOptions{})))
		return errors.Join(err, ignoreNotFound(client.CoreV1().PersistentVolumeClaims(c.lab.namespace).Delete(ctx, left[i], metav1.DeleteOptions{})))
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
