// Package fill writes PVs and claims into etcd as the API server would, so that a cluster has more of them than an API
// server takes in a reasonable time.
package fill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// pvKey is where the API server keeps PVs in etcd, with its default --etcd-prefix.
	pvKey = "/registry/persistentvolumes/"
	// claimKey is where it keeps the claims of the namespace that filled PVs name.
	claimKey = "/registry/persistentvolumeclaims/" + claimNamespace + "/"
	// claimNamespace has claims but no Namespace object, which no program reads.
	claimNamespace = "team-1"
	// otherDriver has PVs in the same cluster that no program serves.
	otherDriver = "other.csi-reclaimer.io"
	// writers is how many write into etcd at once.
	writers = 16
)

// Cluster fills a cluster. Each PV is as large as a real one: a copy of a PV that went through the API, so that it has
// the managed fields of provisioner and controller manager. Calls must not overlap.
type Cluster struct {
	client            kubernetes.Interface
	etcd              etcd
	namespace, driver string

	template *v1.PersistentVolume
	// count is the number of bound PVs, numbered from 0, all of a kind.
	count int
	kind  Kind
	// claims reports whether the claims of the driver's PVs are there, too.
	claims bool
	// written counts the bytes that were put.
	written atomic.Int64
}

// Kind is a kind of PVs that fill a cluster.
type Kind int

const (
	// Unprotected PVs are without the finalizer, and all of the same driver.
	Unprotected Kind = iota
	// Mixed PVs have the finalizer, and every second one is another driver's.
	Mixed
)

// PV is a PV to be written.
type PV struct {
	Name, Handle, Driver string
	Phase                v1.PersistentVolumePhase
	// Unprotected leaves the finalizer out.
	Unprotected bool
}

// New returns a Cluster that writes by etcd. The templates go through the client, claims into an existing namespace.
// Close ends the connection and leaves the objects.
func New(client kubernetes.Interface, etcdAddress, namespace, driver string) (*Cluster, error) {
	etcd, err := dialEtcd(etcdAddress)
	if err != nil {
		return nil, err
	}
	return &Cluster{client: client, etcd: etcd, namespace: namespace, driver: driver}, nil
}

// Close ends the connection.
func (c *Cluster) Close() error { return c.etcd.close() }

// Name is the name of a bound PV by its number.
func Name(i int) string { return fmt.Sprintf("pvc-%08x-5b1c-4e1f-9d5e-7a3f00c0ffee", i) }

// UID is the UID that a PV's name ends with, its own and its claim's.
func UID(pv string) types.UID { return types.UID(pv[len(pv)-36:]) }

// Bound adds bound PVs of a kind up to the number n. Existing PVs of that kind stay unchanged.
func (c *Cluster) Bound(ctx context.Context, n int, kind Kind) error {
	if c.count > n || c.kind != kind || c.claims {
		if err := c.Empty(ctx); err != nil {
			return err
		}
	}
	pvs := make([]PV, 0, n)
	for i := c.count; i < n; i++ {
		pv := PV{Name: Name(i), Handle: fmt.Sprintf("vol-%016x", i), Driver: c.driver, Phase: v1.VolumeBound,
			Unprotected: kind == Unprotected}
		if kind == Mixed && i%2 == 1 {
			pv.Driver = otherDriver
		}
		pvs = append(pvs, pv)
	}
	c.kind = kind
	if err := c.Put(ctx, pvs...); err != nil {
		return fmt.Errorf("fill the cluster with %d PVs: %w", n, err)
	}
	c.count = n
	return nil
}

// Claims has there be the bound claims of the driver's PVs.
func (c *Cluster) Claims(ctx context.Context) error {
	claim, err := c.claimTemplate(ctx)
	if err != nil {
		return fmt.Errorf("make a claim to copy: %w", err)
	}
	c.claims = true
	if err = each(ctx, (c.count+1)/2, func(ctx context.Context, i int) error {
		own, pv := claim.DeepCopy(), Name(2*i)
		own.Namespace, own.Name, own.UID = claimNamespace, "data-"+pv, UID(pv)
		own.Spec.VolumeName = pv
		return c.putObject(ctx, claimKey+own.Name, own)
	}); err != nil {
		return fmt.Errorf("fill the cluster with the claims of %d PVs: %w", c.count, err)
	}
	return nil
}

// Empty removes all PVs, and the claims that were filled in.
func (c *Cluster) Empty(ctx context.Context) error {
	c.count, c.claims = 0, false
	var errs []error
	for _, keys := range []string{pvKey, claimKey} {
		errs = append(errs, c.etcd.deleteRange(ctx, keys, keys[:len(keys)-1]+"0")) // 0 follows /
	}
	return errors.Join(errs...)
}

// Put writes PVs, many at once.
func (c *Cluster) Put(ctx context.Context, pvs ...PV) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	return each(ctx, len(pvs), func(ctx context.Context, i int) error { return c.put(ctx, pvs[i]) })
}

func (c *Cluster) put(ctx context.Context, p PV) error {
	pv := c.template.DeepCopy()
	pv.Name, pv.UID = p.Name, UID(p.Name)
	pv.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	pv.Annotations["pv.kubernetes.io/provisioned-by"] = p.Driver
	pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = p.Driver, p.Handle
	pv.Spec.CSI.VolumeAttributes["storage.kubernetes.io/csiProvisionerIdentity"] = "1790000000000-1234-" + p.Driver
	pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "data-"+p.Name, pv.UID
	pv.Status.Phase = p.Phase
	pv.Finalizers = []string{volume.Finalizer}
	if p.Unprotected {
		pv.Finalizers = nil
	}
	return c.putObject(ctx, pvKey+p.Name, pv)
}

func (c *Cluster) putObject(ctx context.Context, key string, object runtime.Object) error {
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &value); err != nil {
		return fmt.Errorf("encode %q: %w", key, err)
	}
	c.written.Add(int64(len(key) + value.Len()))
	return c.etcd.put(ctx, key, value.Bytes())
}

// Written returns how many bytes of keys and values it has put into etcd.
func (c *Cluster) Written() int64 { return c.written.Load() }

// each calls do for 0 to n-1, several at once, and returns the first error.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, i)
		})
	}
	return group.Wait()
}
