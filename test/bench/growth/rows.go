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

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// measures is the function that a growth calls with its measurement.
type measures = func(measure func(n int) ([]float64, error)) error

// attachGrowth has so many volumes in each VolumeLock.
func attachGrowth(name string, perLock int) growth {
	return growth{name: name, sizes: []int{100, 1_000, 10_000},
		load: fmt.Sprintf("200 VolumeAttachments (--quick: 50), beside %%d volumes that VolumeLocks keep on nodes which are "+
			"away, %d on each; the shipped policies of pod safety.", perLock),
		costs: []cost{{"ms", "ms", "Processor time of the API server for one CREATE.", 1}},
		run: func(ctx context.Context, s *session.Session, at measures) error {
			return growAttach(ctx, s, perLock, at)
		}}
}

func growAttach(ctx context.Context, s *session.Session, perLock int, at measures) error {
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
			more := min(n-made, perLock)
			if _, err := locks.Create(ctx, volumeLock(made, more), metav1.CreateOptions{}); err != nil {
				return nil, err
			}
			made += more
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

const (
	// doubtNamespaces share the claims in doubt, because a namespace may have only a share of the in-flight log.
	doubtNamespaces = 10
	// doubtFor is more than the minute after which an entry counts as old.
	doubtFor = 70 * time.Second
	// healthy is the number of claims that are provisioned beside the log.
	healthy = 50
)

func logGrowth() growth {
	return growth{name: "log", sizes: []int{10, 100, 1_000}, run: growLog,
		load: "50 claims that 16 users' connections make at once, beside %d claims in 10 namespaces whose volumes have " +
			"been in the in-flight log for over a minute, because the driver answers Unavailable for them.",
		costs: []cost{{"put_kib", "KiB", "All PUTs to the Leases of the in-flight log, for each of the 50 volumes.", 1}}}
}

func growLog(ctx context.Context, s *session.Session, at measures) (err error) {
	p, err := s.Env.StartProxy(s.Env.Kubeconf[report.Ours], session.ToLog)
	if err != nil {
		return err
	}
	defer p.Close()
	s.Env.Kubeconf[report.Ours] = p.Kubeconfig
	var namespaces []string
	for range doubtNamespaces {
		namespace, err := s.Env.Cluster.CreateNamespace(ctx, "doubt")
		if err != nil {
			return err
		}
		namespaces = append(namespaces, namespace)
	}
	program, err := s.Env.Start(ctx, subject.Ours())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	doubt := &doubt{Session: s, namespaces: namespaces}
	return at(func(n int) ([]float64, error) {
		if err := doubt.grow(ctx, n); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, program.LogTail(10))
		}
		p.Take()
		if _, err := s.Env.BindClaims(ctx, healthy, nil); err != nil {
			return nil, err
		}
		_, bodies := p.Take()
		sent := 0
		for _, body := range bodies {
			sent += len(body)
		}
		return []float64{float64(sent) / healthy / 1024}, nil
	})
}

// doubt has claims in the in-flight log whose volumes the driver does not answer for.
type doubt struct {
	*session.Session
	namespaces []string
	claims     int
	rules      []faults.Rule
}

func unavailable(volume string) faults.Rule {
	return faults.Rule{Method: "CreateVolume", VolumeName: volume, Action: faults.Fail, Code: "Unavailable"}
}

// grow has there be n entries, all of them older than doubtFor.
func (d *doubt) grow(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	if err := d.Env.Driver.SetFaults(ctx, faults.Plan{Rules: []faults.Rule{unavailable("*")}}); err != nil {
		return err
	}
	made := make([]*v1.PersistentVolumeClaim, n-d.claims)
	err := d.Env.Each(ctx, len(made), func(ctx context.Context, client kubernetes.Interface, i int) (err error) {
		of := d.namespaces[i%len(d.namespaces)]
		made[i], err = client.CoreV1().PersistentVolumeClaims(of).Create(ctx, session.NewClaim("doubt", d.claims+i),
			metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	d.claims = n
	for _, claim := range made {
		d.rules = append(d.rules, unavailable("pvc-"+string(claim.UID)))
	}
	err = session.Until(ctx, 100*time.Millisecond, "the in-flight log has all entries", func() (bool, error) {
		entries, err := objects.InFlight(ctx, d.Env.Users[0], d.Env.Namespace, session.DriverName)
		return len(entries) >= n, err
	})
	if err != nil {
		return err
	}
	if err := d.Env.Driver.SetFaults(ctx, faults.Plan{Rules: d.rules}); err != nil {
		return err
	}
	return session.Pause(ctx, doubtFor)
}
