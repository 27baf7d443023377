//go:build unix

package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// claimsLabel marks the claims that are made together.
const claimsLabel = "bench.csi-reclaimer.io/claims"

// Claims are the claims that users created at once, all of them Bound.
type Claims struct {
	// Volumes are their PVs by claim.
	Volumes map[string]string
	// Began is when the first was made, bound when the last was seen to be Bound.
	Began, Bound time.Time
}

// Names are the claims in an order of their own.
func (c Claims) Names() []string { return slices.Sorted(maps.Keys(c.Volumes)) }

// Pvs are the claims' PVs.
func (c Claims) Pvs() []string { return slices.Collect(maps.Values(c.Volumes)) }

// afterClaim is a user's action after the creation of a claim.
type afterClaim func(context.Context, kubernetes.Interface, *v1.PersistentVolumeClaim) error

// BindClaims has users make n claims at once, each followed by then if that is not nil, and waits until all are Bound.
func (env *Environment) BindClaims(ctx context.Context, n int, then afterClaim) (c Claims, err error) {
	token := fmt.Sprintf("r%d", env.Rounds.Add(1))
	watch, err := env.watchClaims(ctx, token)
	if err != nil {
		return c, err
	}
	defer watch.Stop()
	c.Began = time.Now()
	if err := env.Each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		claim, err := client.CoreV1().PersistentVolumeClaims(env.Namespace).Create(ctx, NewClaim(token, i),
			metav1.CreateOptions{})
		if err != nil || then == nil {
			return err
		}
		return then(ctx, client, claim)
	}); err != nil {
		return c, fmt.Errorf("make %d claims: %w", n, err)
	}
	c.Volumes, c.Bound, err = waitBound(ctx, watch, n)
	return c, err
}

func NewClaim(token string, i int) *v1.PersistentVolumeClaim {
	class := className
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%s-%d", token, i),
			Labels: map[string]string{claimsLabel: token}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// MakePV makes the PV of a claim as a provisioner does, with the finalizer if it is to be protected.
func MakePV(protected bool) afterClaim {
	return func(ctx context.Context, client kubernetes.Interface, claim *v1.PersistentVolumeClaim) error {
		pv := fill.ProvisionedPV("pvc-"+string(claim.UID), "vol-"+string(claim.UID), DriverName)
		pv.Spec.StorageClassName = className
		pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace,
			Name: claim.Name, UID: claim.UID}
		if !protected {
			pv.Finalizers = nil
		}
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
		return err
	}
}

// watchClaims begins to watch the claims with a token, before any exist.
func (env *Environment) watchClaims(ctx context.Context, token string) (watch.Interface, error) {
	claims := env.Users[0].CoreV1().PersistentVolumeClaims(env.Namespace)
	ofToken := metav1.ListOptions{LabelSelector: claimsLabel + "=" + token}
	w, err := objects.WatchFromNow(ctx, ofToken, claims.List, claims.Watch)
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	return w, nil
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

// WaitSettled waits until the driver's in-flight log has no entry.
func (env *Environment) WaitSettled(ctx context.Context) error {
	return Until(ctx, 20*time.Millisecond, "the in-flight log is empty", func() (bool, error) {
		left, err := objects.InFlight(ctx, env.Users[0], env.Namespace, DriverName)
		return len(left) == 0, err
	})
}

// Remove has users delete some of the claims over all connections at once: the PV first and then its claim, or only the
// claim.
func (env *Environment) Remove(ctx context.Context, c Claims, names []string, pvFirst bool) error {
	err := env.Each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		core := client.CoreV1()
		if pvFirst {
			if err := core.PersistentVolumes().Delete(ctx, c.Volumes[names[i]], metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return core.PersistentVolumeClaims(env.Namespace).Delete(ctx, names[i], metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("delete volumes as users do: %w", err)
	}
	return nil
}

// removeReleased has users delete each claim and, as soon as it is Released, its PV.
func (env *Environment) removeReleased(ctx context.Context, c Claims, names []string, watch *Tracker) error {
	released := make(chan string, len(names))
	watch.mu.Lock()
	watch.onReleased = func(pv string) { released <- pv }
	watch.mu.Unlock()
	deleted := make(chan error, 1)
	go func() { deleted <- env.Remove(ctx, c, names, false) }()
	err := env.Each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, _ int) error {
		select {
		case pv := <-released:
			return client.CoreV1().PersistentVolumes().Delete(ctx, pv, metav1.DeleteOptions{})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return errors.Join(err, <-deleted)
}

// CallsFor picks the calls for some volumes.
func CallsFor(calls []ledger.Call, handles map[string]string) (picked []ledger.Call) {
	mine := map[string]bool{}
	for _, handle := range handles {
		mine[handle] = true
	}
	for _, call := range calls {
		if mine[call.Volume] {
			picked = append(picked, call)
		}
	}
	return picked
}

// EveryVolume returns an error unless n volumes were deleted, because a program that loses volumes is not fast.
func EveryVolume(calls []ledger.Call, n int) error {
	deleted := map[string]bool{}
	for _, call := range calls {
		if call.Code == "OK" {
			deleted[call.Volume] = true
		}
	}
	if len(deleted) != n {
		return fmt.Errorf("%d of %d volumes were deleted", len(deleted), n)
	}
	return nil
}

// CreateVolume makes a volume in the driver and returns its handle.
func (env *Environment) CreateVolume(ctx context.Context, name string) (handle string, err error) {
	made, err := env.Driver.Controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
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

// Patience bounds one run. The reference at its defaults takes a minute for a hundred volumes.
const Patience = 5 * time.Minute

// Orders are the two in which users delete: the endings of figures' names.
func Orders() []string { return []string{PVFirst, ClaimFirst} }

const (
	PVFirst    = "pv_first"
	ClaimFirst = "claim_first"
)

// afterTakeover is how long after its start ours reads claim and PV before it provisions a claim. Until then the claim
// may be older than ours' hold of the in-flight log, by clocks that differ by 5 seconds and show whole ones.
const afterTakeover = 7 * time.Second

// WithSubject starts a subject, calls do once it has made and deleted a volume, so that its caches are filled, and
// afterTakeover has passed, and ends it.
func (s *Session) WithSubject(ctx context.Context, sub subject.Subject,
	do func(context.Context, subject.Running) error) error {
	return s.WithStarting(ctx, sub, func(ctx context.Context, program subject.Running) error {
		if _, err := s.Round(ctx, 1, PVFirst, false); err != nil {
			return fmt.Errorf("wait for %s to make and delete a volume: %w\n%s", sub.Column, err, program.LogTail(10))
		}
		if err := Pause(ctx, afterTakeover); err != nil {
			return err
		}
		return do(ctx, program)
	})
}

// WithStarting starts a subject, calls do at once, and ends the subject.
func (s *Session) WithStarting(ctx context.Context, sub subject.Subject,
	do func(context.Context, subject.Running) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	program, err := s.Env.Start(ctx, sub)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	return do(ctx, program)
}

// Round is a number of claims that users make and delete.
type Round struct {
	Claims
	// Deleted is when the first claim or PV was deleted, gone when the last PV was gone, and ended, with an audit log,
	// when the API server received no more requests.
	Deleted, Gone, Ended time.Time
	// Calls are the DeleteVolume calls for the volumes.
	Calls []ledger.Call
}

// Round has users make and delete n claims in an order. alone, no subject is at work, and they make the PVs too.
func (s *Session) Round(ctx context.Context, n int, order string, alone bool) (r Round, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	watch, err := Track(ctx, s.Env.Users[0])
	if err != nil {
		return r, err
	}
	defer watch.Close()
	var then afterClaim
	if alone {
		then = MakePV(false)
	}
	if r.Claims, err = s.Env.BindClaims(ctx, n, then); err != nil {
		return r, err
	}
	if err := errors.Join(s.Env.WaitSettled(ctx), s.Env.Quiet(ctx)); err != nil {
		return r, err
	}
	names := s.Shuffled(r.Names())
	r.Deleted = time.Now()
	if alone && order == ClaimFirst {
		err = s.Env.removeReleased(ctx, r.Claims, names, watch)
	} else {
		err = s.Env.Remove(ctx, r.Claims, names, order == PVFirst)
	}
	if err != nil {
		return r, err
	}
	if err := watch.Wait(ctx, "gone", func(t *Tracker) bool { return t.Gone == n }); err != nil {
		return r, err
	}
	_, r.Gone = watch.Span(r.Pvs(), func(p PvTimes) time.Time { return p.Gone })
	err = s.Env.Quiet(ctx)
	r.Ended = time.Now()
	if alone || err != nil {
		return r, err
	}
	calls, err := s.Env.Deletions()
	if err != nil {
		return r, err
	}
	r.Calls = CallsFor(calls, watch.Handles(r.Pvs()))
	return r, EveryVolume(r.Calls, n)
}
