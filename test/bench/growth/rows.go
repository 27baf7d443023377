//go:build unix

package growth

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
)

// measures is the function that a growth calls with its measurement.
type measures = func(measure func(n int) ([]float64, error)) error

func attachGrowth() growth {
	return growth{name: "attach", sizes: []int{100, 1_000, 10_000}, run: growAttach,
		load: "200 VolumeAttachments (--quick: 50), beside %d volumes that VolumeLocks keep on nodes which are away, 100 " +
			"on each; the shipped policies of pod safety.",
		costs: []cost{{"ms", "ms", "Processor time of the API server for one CREATE.", 1}}}
}

func growAttach(ctx context.Context, s *session.Session, at measures) error {
	if err := manifests.Apply(ctx, s.Env.Cluster.Admin(), manifests.PodSafety(s.Env.Cluster.Version())...); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(s.Env.Cluster.Admin())
	if err != nil {
		return err
	}
	locks := client.Resource(volumeLocks)
	made := 0
	return at(func(n int) ([]float64, error) {
		for made < n {
			if _, err := locks.Create(ctx, volumeLock(made, min(n-made, 100)), metav1.CreateOptions{}); err != nil {
				return nil, err
			}
			made += min(n-made, 100)
		}
		if err := untilLocked(ctx, s.Env, lockedVolume(made-1)); err != nil {
			return nil, err
		}
		many := s.Size(200, 50)
		before, err := s.Env.Used(nil)
		if err != nil {
			return nil, err
		}
		err = s.Env.Each(ctx, many, func(ctx context.Context, client kubernetes.Interface, i int) error {
			return attach(ctx, client, fmt.Sprintf("free-%d-%d", made, i), metav1.CreateOptions{})
		})
		if err != nil {
			return nil, err
		}
		after, err := s.Env.Used(nil)
		return []float64{(after.ApiServer - before.ApiServer) * 1000 / float64(many)}, err
	})
}

func lockedVolume(i int) string { return fmt.Sprintf("locked-%d", i) }

// volumeLock returns the VolumeLock of a node with n volumes, from number first on.
func volumeLock(first, n int) *unstructured.Unstructured {
	volumes := map[string]any{}
	for i := range n {
		volumes[lockedVolume(first+i)] = map[string]any{"namespace": "team-1", "pod": fmt.Sprintf("database-%d", i),
			"uid": string(fill.UIDOf(first + i))}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "csi-reclaimer.io/v1alpha1", "kind": "VolumeLock",
		"metadata": map[string]any{"name": fmt.Sprintf("away-%d", first)}, "spec": map[string]any{"volumes": volumes},
	}}
}

func attach(ctx context.Context, client kubernetes.Interface, volume string, o metav1.CreateOptions) error {
	_, err := client.StorageV1().VolumeAttachments().Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: session.DriverName, NodeName: "node-0",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, o)
	return err
}

// untilLocked returns once the API server refuses to attach a volume.
func untilLocked(ctx context.Context, env *session.Environment, volume string) error {
	return session.Until(ctx, 50*time.Millisecond, "volume "+volume+" is locked", func() (bool, error) {
		err := attach(ctx, env.Users[0], volume, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
}

func handleGrowth() growth {
	return growth{name: "handle", sizes: []int{100, 1_000, 10_000}, run: growHandle,
		load: "%d bound static PVs that all name one volume, without finalizers; no controller manager; from the start of " +
			"csi-reclaimer until all have its finalizer.",
		costs: []cost{
			{"s", "s", "Processor time of csi-reclaimer, user and system (Linux).", 1},
			{"calls", "calls", "Its API calls but those about Events and Leases; watches are not counted.", 1010},
		}}
}

func growHandle(ctx context.Context, s *session.Session, at measures) error {
	p, err := s.Env.StartProxy(s.Env.Kubeconf[report.Ours], nil)
	if err != nil {
		return err
	}
	defer p.Close()
	s.Env.Kubeconf[report.Ours] = p.Kubeconfig
	return at(func(n int) ([]float64, error) { return growHandleTo(ctx, s, p, n) })
}

func growHandleTo(ctx context.Context, s *session.Session, p *session.Proxy, n int) (costs []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	if err := s.Env.Fill.Empty(ctx); err != nil {
		return nil, err
	}
	pvs := make([]fill.PV, n)
	for i := range pvs {
		pvs[i] = fill.PV{Name: fill.Name(i), Handle: "file-system", Driver: session.DriverName, Phase: v1.VolumeBound,
			Unprotected: true}
	}
	if err := s.Env.Fill.Put(ctx, pvs...); err != nil {
		return nil, err
	}
	watch, err := session.Track(ctx, s.Env.Users[0])
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	p.Take()
	program, err := s.Env.Start(ctx, subject.Ours().WithoutProvisioning())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	if err := watch.Wait(ctx, "protected", func(t *session.Tracker) bool { return t.Protected == n }); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, program.LogTail(10))
	}
	rested, err := subject.AtRest(ctx, program.PID())
	if err != nil {
		return nil, err
	}
	asked, _ := p.Take()
	return []float64{rested.CPU, float64(asked.Count())}, nil
}
