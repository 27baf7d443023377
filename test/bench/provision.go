//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// className is the StorageClass of the claims that subjects make volumes for.
const className = "bench"

func provisionFamilies() []family {
	const load = "500 claims (reference: 50), made at once by 16 users' connections, driver without latency, with an " +
		"audit log. "
	return []family{{name: "provision", plane: audited, run: measureProvision, figures: []Figure{
		{Name: "claims_bound_per_second", Unit: "claims/s",
			Load: load + "From the first claim to the last that is Bound. Limit: no subject and no driver, the users make " +
				"each claim's PV themselves."},
		{Name: "writes_per_claim", Unit: "writes", Goals: []Goal{atMost(3)},
			Load: load + "The subject's writes to PVs, claims and the Leases of the in-flight log, from the audit log, until " +
				"the last claim is Bound and the log is empty."},
	}}}
}

// provisioning has a subject make volumes.
func provisioning(s subject) subject {
	if s.column == Ours {
		s.args = slices.DeleteFunc(slices.Clone(s.args), func(arg string) bool { return arg == "--provision=false" })
		return s
	}
	s.args = append(slices.Clone(s.args), "--provision")
	return s
}

func measureProvision(ctx context.Context, s *session) error {
	if err := s.env.makeClass(ctx); err != nil {
		return err
	}
	one := func(subject subject, n int) func() error {
		return func() error { return s.provision(ctx, provisioning(subject), n) }
	}
	n := s.size(500, 50)
	return s.alternate(func(int) []func() error {
		return []func() error{
			one(ours(), n), one(reference(), s.size(50, 10)), one(unthrottled(), n),
			func() error {
				rate, err := s.bindingAlone(ctx, n)
				if err == nil {
					s.record("claims_bound_per_second", Limit, rate)
				}
				return err
			},
		}
	})
}

// makeClass makes the StorageClass.
func (env *environment) makeClass(ctx context.Context) error {
	policy, binding := v1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate
	_, err := env.users[0].StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: driverName, ReclaimPolicy: &policy,
		VolumeBindingMode: &binding,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a StorageClass: %w", err)
	}
	return nil
}

// provision has a subject make volumes for n claims, after one that shows that it is at work. They are removed when it
// has ended, so that it has nothing to reclaim.
func (s *session) provision(ctx context.Context, subject subject, n int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	program, err := s.env.start(ctx, subject)
	if err != nil {
		return err
	}
	first, err := s.bindAll(ctx, 1, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("wait for %s to make a volume: %w\n%s", subject.column, err, program.LogTail(10)),
			program.Stop())
	}
	began := time.Now()
	all, err := s.bindAll(ctx, n, nil)
	if err == nil {
		err = s.env.waitSettled(ctx)
	}
	if err := errors.Join(err, program.Stop(), s.env.removeClaims(ctx, first.volumes),
		s.env.removeClaims(ctx, all.volumes)); err != nil {
		return err
	}
	s.record("claims_bound_per_second", subject.column, all.perSecond)
	writes, err := s.env.provisioningWrites(ctx, subject, began)
	if err == nil {
		s.record("writes_per_claim", subject.column, float64(len(writes))/float64(n))
	}
	return err
}

// bindingAlone takes the rate at which claims are bound to PVs that their users make.
func (s *session) bindingAlone(ctx context.Context, n int) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := s.bindAll(ctx, n, func(ctx context.Context, client kubernetes.Interface,
		claim *v1.PersistentVolumeClaim) error {
		pv := provisionedPV("pvc-"+string(claim.UID), "vol-"+string(claim.UID), driverName)
		pv.Spec.StorageClassName = className
		pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace,
			Name: claim.Name, UID: claim.UID}
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
		return err
	})
	return all.perSecond, errors.Join(err, s.env.removeClaims(ctx, all.volumes))
}

// bound are claims that were made and are Bound.
type bound struct {
	perSecond float64
	// volumes are their PVs by claim.
	volumes map[string]string
}

// bindAll makes n claims at once, each followed by made if that is not nil, and takes how many a second are bound until
// the last is.
func (s *session) bindAll(ctx context.Context, n int,
	made func(context.Context, kubernetes.Interface, *v1.PersistentVolumeClaim) error) (b bound, err error) {
	token := fmt.Sprintf("r%d", s.env.rounds.Add(1))
	watch, err := s.env.watchClaims(ctx, token)
	if err != nil {
		return b, err
	}
	defer watch.Stop()
	began := time.Now()
	if err := s.env.each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		claim, err := client.CoreV1().PersistentVolumeClaims(s.env.namespace).Create(ctx, s.env.newClaim(token, i),
			metav1.CreateOptions{})
		if err != nil || made == nil {
			return err
		}
		return made(ctx, client, claim)
	}); err != nil {
		return b, fmt.Errorf("make %d claims: %w", n, err)
	}
	var last time.Time
	b.volumes, last, err = waitBound(ctx, watch, n)
	b.perSecond = float64(n) / last.Sub(began).Seconds()
	return b, err
}

func (env *environment) newClaim(token string, i int) *v1.PersistentVolumeClaim {
	class := className
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%s-%d", token, i),
			Labels: map[string]string{volumeSetLabel: token}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// watchClaims begins to watch the claims with a token, of which there are none yet.
func (env *environment) watchClaims(ctx context.Context, token string) (*retry.RetryWatcher, error) {
	claims := env.users[0].CoreV1().PersistentVolumeClaims(env.namespace)
	selector := volumeSetLabel + "=" + token
	list, err := claims.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	w, err := retry.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return claims.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	return w, nil
}

// waitSettled waits until the driver's in-flight log has no entry.
func (env *environment) waitSettled(ctx context.Context) error {
	for {
		left, err := objects.InFlight(ctx, env.users[0], env.namespace, driverName)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the in-flight log to be empty: %w; %d entries are left", context.Cause(ctx), len(left))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// waitBound waits until n claims are Bound. It returns their PVs by claim, and when the last was seen to be Bound.
func waitBound(ctx context.Context, claims watch.Interface, n int) (volumes map[string]string, last time.Time,
	err error) {
	volumes = map[string]string{}
	for len(volumes) < n {
		select {
		case <-ctx.Done():
			return volumes, last, fmt.Errorf("wait for %d claims: %w; %d are bound", n, context.Cause(ctx), len(volumes))
		case event, open := <-claims.ResultChan():
			if !open {
				return volumes, last, fmt.Errorf("wait for %d claims: the watch ended", n)
			}
			claim, ok := event.Object.(*v1.PersistentVolumeClaim)
			if !ok || claim.Status.Phase != v1.ClaimBound {
				continue
			}
			if _, seen := volumes[claim.Name]; !seen {
				volumes[claim.Name], last = claim.Spec.VolumeName, time.Now()
			}
		}
	}
	return volumes, last, nil
}

// removeClaims deletes claims and their PVs, whoever holds them. The driver's volumes stay in its memory.
func (env *environment) removeClaims(ctx context.Context, volumes map[string]string) error {
	var names []string
	for name := range volumes {
		names = append(names, name)
	}
	err := env.each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		pvs, pv := client.CoreV1().PersistentVolumes(), volumes[names[i]]
		err := ignoreNotFound(client.CoreV1().PersistentVolumeClaims(env.namespace).Delete(ctx, names[i],
			metav1.DeleteOptions{}))
		if err == nil {
			err = ignoreNotFound(pvs.Delete(ctx, pv, metav1.DeleteOptions{}))
		}
		if err == nil {
			_, err = pvs.Patch(ctx, pv, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{})
		}
		return ignoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("remove %d claims: %w", len(names), err)
	}
	return nil
}

// provisioningWrites returns what a subject, which has ended, wrote to PVs, claims and the in-flight log since then.
func (env *environment) provisioningWrites(ctx context.Context, s subject, since time.Time) ([]controlplane.AuditEvent,
	error) {
	if err := env.auditComplete(ctx); err != nil {
		return nil, err
	}
	return env.cluster.AuditEventsOf(s.user(env.namespace), func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && (strings.HasPrefix(e.Resource, "persistentvolume") || e.Resource == "leases" &&
			strings.Contains(e.Name, "-in-flight-")) && !strings.Contains("get list watch", e.Verb)
	})
}
