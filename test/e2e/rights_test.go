//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestWhatIsGrantedIsUsed has each role do all it can do, with the rights that operators install,
// and compares what it asked for with what it may: both ways.
func TestWhatIsGrantedIsUsed(t *testing.T) {
	for _, role := range []string{"owner", "node", "companion", "observer"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			// Without PUBLISH_UNPUBLISH_VOLUME the CSIDriver is asked whether volumes are attached.
			options := mockdriver.Options{Profile: "no-attach"}
			if role == "owner" {
				options.Args = []string{"--topology=zone=a"} // so that nodes matter
			}
			var place, node string
			if role == "node" {
				place = "place-" + rand.String(8)
				options.Args = []string{"--topology=" + segment + "=" + place}
			}
			s := newStageAs(t, role, options)
			if role == "observer" {
				s.peer(true)
			}
			flags, as := append(eager(), "--reclaim-unprotected", "--leader-election", "--leader-election-namespace="+s.Namespace,
				"--brake-deletions=4", "--immediate-topology=false"), role
			if role == "node" {
				node, as = s.node(map[string]string{segment: place}), "owner"
				flags = append(flags, "--node-deployment", "--node-deployment-base-delay=100ms")
				s.affinity = topology.Affinity([]*csi.Topology{{Segments: map[string]string{segment: place}}})
			}
			car := s.launchAs(sidecar.Options{Args: append(flags, "--role="+as), Env: []string{"NODE_NAME=" + node}})
			s.must(car.WaitReady(s.soon()))
			switch role {
			case "owner":
				s.useProvisioning(s.giveBackANode)
			case "node":
				s.useProvisioning(func() {})
			}
			s.useRights(role, car)
			cluster, namespaced, err := grant.Rules(role)
			s.must(err)
			var elsewhere []string
			if role == "companion" || role == "observer" {
				// Used to finish what an owner has left in flight: TestAWayOutFinishesWhatIsInFlight.
				elsewhere = []string{"create persistentvolumes", "get persistentvolumes"}
			}
			s.expectAllUsed(slices.Concat(cluster, namespaced), elsewhere...)
		})
	}
}

// expectAllUsed checks that the program has asked for all that is granted, and for nothing else.
func (s *stage) expectAllUsed(rules []rbacv1.PolicyRule, elsewhere ...string) {
	s.t.Helper()
	granted := map[string]bool{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				granted[verb+" "+strings.Trim(resource+"."+rule.APIGroups[0], ".")] = true
			}
		}
	}
	var unused []string
	var used map[string]bool
	for ctx := s.soon(); ; {
		used, unused = s.askedFor(), nil
		for right := range granted {
			if !used[right] && !slices.Contains(elsewhere, right) {
				unused = append(unused, right)
			}
		}
		if len(unused) == 0 || ctx.Err() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond) // the audit log is written behind the answers
	}
	slices.Sort(unused)
	if len(unused) > 0 {
		s.t.Errorf("granted and not used: %q", unused)
	}
	for right := range used {
		if !granted[right] {
			s.t.Errorf("used and not granted: %s", right)
		}
	}
}

// expectUsed is expectAllUsed for the rights on these resources alone.
func (s *stage) expectUsed(rules []rbacv1.PolicyRule, resources ...string) {
	s.t.Helper()
	s.eventually("each right on "+strings.Join(resources, ", ")+" is used", func() bool { // the audit log is written behind the answers
		used := s.askedFor()
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				if !slices.Contains(resources, resource) {
					continue
				}
				for _, verb := range rule.Verbs {
					if right := verb + " " + strings.Trim(resource+"."+rule.APIGroups[0], "."); !used[right] {
						return false
					}
				}
			}
		}
		return true
	})
}

// askedFor returns what the program asked for, but what every authenticated user may. Being
// refused is a failure.
func (s *stage) askedFor() map[string]bool {
	s.t.Helper()
	asked := map[string]bool{}
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource != "" && e.APIGroup != "authorization.k8s.io"
	})
	s.must(err)
	for _, e := range events {
		if e.Code == 403 {
			s.t.Fatalf("refused: %s %s %s", e.Verb, e.Resource, e.Name)
		}
		asked[e.Verb+" "+strings.Trim(e.Resource+"."+e.APIGroup, ".")] = true
	}
	return asked
}

// useRights makes the sidecar do all that its role does.
func (s *stage) useRights(role string, car *sidecar.Sidecar) {
	s.t.Helper()
	class := "class-" + s.Namespace
	_, err := s.client.StorageV1().StorageClasses().Create(s.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: s.Driver,
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = s.client.StorageV1().StorageClasses().Delete(s.clean(), class, metav1.DeleteOptions{}) })
	plain := func(pv *v1.PersistentVolume) {
		// No annotation names its Secret, so the class is asked; and it was attached once.
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": s.Driver, v1.BetaStorageClassAnnotation: class}
		pv.Finalizers = []string{"external-attacher/" + s.lease()}
		pv.Spec.NodeAffinity = s.affinity
	}
	if role != "observer" {
		vol := s.make(storage.Spec{Dynamic: true, Change: plain})
		s.waitPV(vol, "protected", func(pv *v1.PersistentVolume) bool { return protected(pv) || companionProtected(pv) })
		if role == "companion" {
			s.must(vol.DeletePV(s.ctx))
		}
		s.must(vol.DeleteClaim(s.ctx))
		s.waitCalls(vol, 1)
	}
	for range 2 { // the same Event a second time is a patch
		lease := s.braked(func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": s.Driver, v1.BetaStorageClassAnnotation: class}
			pv.Spec.NodeAffinity = s.affinity
		})
		_, err := s.client.CoordinationV1().Leases(s.Namespace).Patch(s.ctx, lease, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, reclaim.BrakeAnnotation), metav1.PatchOptions{})
		s.must(err)
		// A peer may have deleted the volumes long before: only the sidecar tells that it saw this.
		s.metric(car, "csi_reclaimer_braked", "0")
		s.eventually("all volumes are gone", func() bool { return len(s.onDiskAll()) == 0 })
	}
}

// useProvisioning has the sidecar make all kinds of volumes, and do what is special to its place.
func (s *stage) useProvisioning(special func()) {
	s.t.Helper()
	class, tier := s.class(), "tier-"+s.Namespace
	_, err := s.client.StorageV1().VolumeAttributesClasses().Create(s.ctx, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: tier}, DriverName: s.Driver, Parameters: map[string]string{"tier": "gold"},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		_ = s.client.StorageV1().VolumeAttributesClasses().Delete(s.clean(), tier, metav1.DeleteOptions{})
	})
	source := s.bound(s.claim(class, func(spec *storage.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &tier }
	}))
	clone := s.bound(s.claim(class, cloneOf(source.claim)))
	s.snapshotsServed()
	restored := s.bound(s.claim(class, fromSnapshot(s.snapshot(source, nil).Name)))
	special()
	for _, claim := range []*storage.Claim{clone.claim, restored.claim, source.claim} {
		s.deleteClaim(claim)
	}
	s.eventually("all volumes are gone", func() bool { return len(s.onDiskAll()) == 0 })
}

// giveBackANode has the sidecar ask for another node than one that has nothing of the driver.
func (s *stage) giveBackANode() {
	s.t.Helper()
	late := s.claim(s.class(lateBinding), selected(s.node(nil)))
	s.waitClaim(late, "without that node", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Annotations[storage.SelectedNode] == ""
	})
	s.deleteClaim(late)
}

// vanish makes PVs that go before they can be protected.
func (s *stage) vanish(n int, change func(*v1.PersistentVolume)) {
	s.t.Helper()
	vols := s.makeMany(n, func(int) storage.Spec {
		return storage.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain, Change: change}
	})
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "released", isReleased)
	s.all(vols, func(vol *storage.Volume) error {
		if err := vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete); err != nil {
			return err
		}
		return s.deletePV(vol)
	})
}

// deletePV deletes a PV that a peer may have deleted before.
func (s *stage) deletePV(vol *storage.Volume) error {
	if err := vol.DeletePV(s.ctx); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// braked has PVs vanish until a Lease says that the brake is on, and returns its name. Where a
// peer works beside, it may protect most of them in time.
func (s *stage) braked(change func(*v1.PersistentVolume)) (name string) {
	s.t.Helper()
	looks := 0
	s.eventually("the Lease says that the brake is on", func() bool {
		if looks%100 == 0 {
			s.vanish(10, change)
		}
		looks++
		list, err := s.client.CoordinationV1().Leases(s.Namespace).List(s.ctx, metav1.ListOptions{})
		s.must(err)
		for _, lease := range list.Items {
			if lease.Annotations[reclaim.BrakeAnnotation] != "" {
				name = lease.Name
			}
		}
		return name != ""
	})
	return name
}
