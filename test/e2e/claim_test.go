//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// class makes a StorageClass of the stage's driver, which goes with the test.
func (s *stage) class(changes ...func(*storagev1.StorageClass)) string {
	s.t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class-" + rand.String(8)}, Provisioner: s.Driver}
	for _, change := range changes {
		change(class)
	}
	_, err := s.client.StorageV1().StorageClasses().Create(s.ctx, class, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		_ = s.client.StorageV1().StorageClasses().Delete(s.clean(), class.Name, metav1.DeleteOptions{})
	})
	return class.Name
}

func parameter(key, value string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) { class.Parameters = map[string]string{key: value} }
}

func keep(class *storagev1.StorageClass) {
	policy := v1.PersistentVolumeReclaimRetain
	class.ReclaimPolicy = &policy
}

// claim makes a claim that asks for a volume of the class.
func (s *stage) claim(class string, changes ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	s.t.Helper()
	claim, err := s.tryClaim(class, changes...)
	s.must(err)
	return claim
}

func (s *stage) tryClaim(class string, changes ...func(*v1.PersistentVolumeClaim)) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim-" + rand.String(8)},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
	for _, change := range changes {
		change(claim)
	}
	return s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Create(s.ctx, claim, metav1.CreateOptions{})
}

func cloneOf(source *v1.PersistentVolumeClaim) func(*v1.PersistentVolumeClaim) {
	return func(claim *v1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source.Name}
	}
}

// volumeName is the name of a claim's PV and volume.
func volumeName(claim *v1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// claimNow returns a claim as it is now, nil when it is gone.
func (s *stage) claimNow(ctx context.Context, claim *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	now, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return now, err
}

// waitClaim waits until a claim is as wanted; want gets nil for one that is gone.
func (s *stage) waitClaim(claim *v1.PersistentVolumeClaim, what string, want func(*v1.PersistentVolumeClaim) bool) {
	s.t.Helper()
	ctx := s.soon()
	for {
		now, err := s.claimNow(ctx, claim)
		if err == nil && want(now) {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("wait for claim %s to be %s: it is %+v; events: %q", claim.Name, what, now, s.toldOf(claim, ""))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func heldClaim(claim *v1.PersistentVolumeClaim) bool {
	return claim != nil && slices.Contains(claim.Finalizers, provision.Finalizer)
}

func noClaim(claim *v1.PersistentVolumeClaim) bool { return claim == nil }

// bound waits until a claim is bound, and returns its volume.
func (s *stage) bound(claim *v1.PersistentVolumeClaim) *provisioned {
	s.t.Helper()
	s.waitClaim(claim, "bound and free", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Status.Phase == v1.ClaimBound && !heldClaim(now)
	})
	pv, err := s.client.CoreV1().PersistentVolumes().Get(s.ctx, volumeName(claim), metav1.GetOptions{})
	s.must(err)
	return &provisioned{s, claim, pv}
}

func (s *stage) deleteClaim(claim *v1.PersistentVolumeClaim) {
	s.t.Helper()
	s.must(s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Delete(s.ctx, claim.Name, metav1.DeleteOptions{}))
}

// provisioned is a claim with its volume.
type provisioned struct {
	*stage
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
}

func (p *provisioned) handle() string { return p.pv.Spec.CSI.VolumeHandle }

// waitPVIs waits until the PV is as wanted; want gets nil for one that is gone.
func (p *provisioned) waitPVIs(what string, want func(*v1.PersistentVolume) bool) {
	p.t.Helper()
	p.eventually("PV "+p.pv.Name+" is "+what, func() bool {
		now, err := p.client.CoreV1().PersistentVolumes().Get(p.ctx, p.pv.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		return err == nil && want(now)
	})
}

// onDiskNow returns the volume as the driver's disk has it, nil if it is not there.
func (p *provisioned) onDiskNow() *backend.Volume {
	p.t.Helper()
	volumes, err := p.driver.Volumes()
	p.must(err)
	for _, v := range volumes {
		if v.ID == p.handle() {
			return &v
		}
	}
	return nil
}

// creations returns the CreateVolume calls for a claim.
func (s *stage) creations(claim *v1.PersistentVolumeClaim) []ledger.Call {
	s.t.Helper()
	calls, err := s.driver.Calls("CreateVolume")
	s.must(err)
	return slices.DeleteFunc(calls, func(c ledger.Call) bool { return c.Name != volumeName(claim) })
}

// asked waits until the driver was asked for a claim's volume.
func (s *stage) asked(claim *v1.PersistentVolumeClaim) {
	s.t.Helper()
	s.eventually("the driver is asked for the volume", func() bool { return len(s.creations(claim)) > 0 })
}

// nothingLeft checks that neither a PV nor a volume is left of a claim.
func (s *stage) nothingLeft(claim *v1.PersistentVolumeClaim) {
	s.t.Helper()
	if pv, err := s.client.CoreV1().PersistentVolumes().Get(s.ctx, volumeName(claim), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.t.Errorf("PV %s is there (%v): %s", volumeName(claim), err, storage.Describe(pv))
	}
	volumes, err := s.driver.Volumes()
	s.must(err)
	for _, v := range volumes {
		if v.Name == volumeName(claim) {
			s.t.Errorf("LEAK: volume %s of claim %s is on the driver's disk", v.ID, claim.Name)
		}
	}
}

// toldOf returns the Events about a claim, those with a reason or all.
func (s *stage) toldOf(claim *v1.PersistentVolumeClaim, reason string) []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.Namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(claim.UID)})
	if err != nil {
		return []string{err.Error()}
	}
	var told []string
	for _, e := range list.Items {
		if reason == "" || e.Reason == reason {
			told = append(told, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
	}
	return told
}

func (s *stage) waitTold(claim *v1.PersistentVolumeClaim, reason, text string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("claim %s has an Event %s with %q", claim.Name, reason, text), func() bool {
		return slices.ContainsFunc(s.toldOf(claim, reason), func(message string) bool { return strings.Contains(message, text) })
	})
}
