//go:build unix

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/capacity"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// pool is the label of the places below.
const pool = "e2e.csi-reclaimer.io/pool"

// pooled is a driver with room for two volumes in pool "small", and for many in pool "large".
func pooled() mockdriver.Options {
	return mockdriver.Options{Profile: "no-attach", Args: []string{"--place=" + pool + "=small@2Mi", "--place=" + pool + "=large@64Mi"}}
}

// published is what a sidecar with --enable-capacity runs in.
type published struct {
	*stage
	deployment *appsv1.Deployment
}

// newPublished makes a stage whose sidecar is in the pod of a Deployment, as far as the API server knows,
// and whose driver is on a node in each pool.
func newPublished(t *testing.T) published {
	t.Helper()
	s := published{stage: newStageAs(t, "owner", pooled())}
	s.must(grant.Capacity(s.ctx, s.client, s.Namespace, "csi-reclaimer"))
	labels := map[string]string{"app": "driver"}
	replicas := int32(1)
	var err error
	s.deployment, err = s.client.AppsV1().Deployments(s.Namespace).Create(s.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "driver"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				// Nobody schedules it: that it is there is enough.
				SchedulerName: "nobody", Containers: []v1.Container{{Name: "driver", Image: "none"}},
			}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.MakeDriver(s.ctx, func(d *storagev1.CSIDriver) { yes := true; d.Spec.StorageCapacity = &yes })
	s.must(err)
	t.Cleanup(func() { _ = s.client.StorageV1().CSIDrivers().Delete(s.clean(), s.Driver, metav1.DeleteOptions{}) })
	for _, name := range []string{"small", "large"} {
		fakenode.ForTest(t, cluster, "node-"+name+"-"+rand.String(6), fakenode.Config{
			Drivers: map[string]fakenode.Driver{s.Driver: {Place: map[string]string{pool: name}}},
		})
	}
	return s
}

// sidecar starts one that publishes, and waits until it is ready.
func (s published) sidecar(args ...string) *sidecar.Sidecar {
	s.t.Helper()
	pod := ""
	s.eventually("the Deployment has a pod", func() bool {
		pods, err := s.client.CoreV1().Pods(s.Namespace).List(s.ctx, metav1.ListOptions{LabelSelector: "app=driver"})
		s.must(err)
		if len(pods.Items) > 0 {
			pod = pods.Items[0].Name
		}
		return pod != ""
	})
	car := s.launchAs(sidecar.Options{Env: []string{"NAMESPACE=" + s.Namespace, "POD_NAME=" + pod},
		Args: append([]string{"--enable-capacity", "--capacity-ownerref-level=2", "--kube-api-capacity-qps=0"}, args...)})
	s.must(car.WaitReady(s.soon()))
	return car
}

// objects returns what is published, by class and pool.
func (s published) objects() map[string]storagev1.CSIStorageCapacity {
	s.t.Helper()
	list, err := s.client.StorageV1().CSIStorageCapacities(s.Namespace).List(s.ctx, metav1.ListOptions{
		LabelSelector: capacity.LabelDriver + "=" + s.Driver + "," + capacity.LabelManagedBy + "=external-provisioner"})
	s.must(err)
	all := map[string]storagev1.CSIStorageCapacity{}
	for _, o := range list.Items {
		all[o.StorageClassName+" in "+o.NodeTopology.MatchLabels[pool]] = o
	}
	if len(all) != len(list.Items) {
		s.t.Errorf("%d objects for %d spots", len(list.Items), len(all))
	}
	return all
}

// waitLeft waits until what is published is exactly this, in MiB.
func (s published) waitLeft(want map[string]int64) {
	s.t.Helper()
	var now map[string]int64
	s.eventually("what is published is as it should be", func() bool {
		now = map[string]int64{}
		for spot, o := range s.objects() {
			now[spot] = o.Capacity.Value() >> 20
		}
		s.t.Logf("published: %v", now)
		return maps.Equal(now, want)
	})
}

// writes returns the verbs of the sidecar's writes to capacity objects.
func (s published) writes() []string {
	s.t.Helper()
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "csistoragecapacities" && !slices.Contains([]string{"list", "watch"}, e.Verb)
	})
	s.must(err)
	var verbs []string
	for _, e := range events {
		verbs = append(verbs, e.Verb)
	}
	return verbs
}

// TestCapacityGuidesTheScheduler has claims that wait for their pod. The real scheduler sends the pods to
// where the driver said that there is room.
func TestCapacityGuidesTheScheduler(t *testing.T) {
	t.Parallel()
	s := newPublished(t)
	car := s.sidecar(eager()...)
	class := s.class(lateBinding)
	s.waitLeft(map[string]int64{class + " in small": 2, class + " in large": 64})
	for spot, o := range s.objects() {
		if owner := metav1.GetControllerOf(&o); owner == nil || owner.UID != s.deployment.UID || owner.Kind != "Deployment" {
			t.Errorf("%s is owned by %+v, want the Deployment", spot, owner)
		}
	}
	// Too large for pool small, which nothing but the published capacity tells.
	for i, size := range []string{"3Mi", "4Mi"} {
		name := "data-" + string(rune('a'+i))
		claim, err := s.MakeClaim(s.ctx, storage.ClaimSpec{Name: name, Class: class, Size: size})
		s.must(err)
		pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: name, Claims: []string{name}})
		s.must(err)
		node, err := pod.WaitRunning(s.soon())
		s.must(err)
		if !strings.HasPrefix(node, "node-large-") {
			t.Errorf("pod %s runs on %s", name, node)
		}
		_, err = claim.WaitBound(s.soon())
		s.must(err)
	}
	calls, err := s.driver.Calls("CreateVolume")
	s.must(err)
	if len(calls) != 2 {
		t.Errorf("%d CreateVolume calls, want one for each claim: %+v", len(calls), calls)
	}
	// Long before the poll interval of a minute.
	s.waitLeft(map[string]int64{class + " in small": 2, class + " in large": 57})

	before := s.objects()
	wrote := len(s.writes())
	s.must(car.Terminate())
	s.must(car.Restart("--capacity-poll-interval=1s"))
	s.must(car.WaitReady(s.soon()))
	restarted := s.asks()
	s.eventually("the driver was asked again and again", func() bool { return s.asks() >= restarted+6 })
	if writes := s.writes(); len(writes) != wrote {
		t.Errorf("nothing changed, and was written: %q", writes[wrote:])
	}
	for spot, o := range s.objects() {
		if o.UID != before[spot].UID || o.ResourceVersion != before[spot].ResourceVersion {
			t.Errorf("the object of %s is another than before the restart", spot)
		}
	}

	for _, name := range []string{"data-a", "data-b"} {
		s.must(s.client.CoreV1().Pods(s.Namespace).Delete(s.ctx, name, metav1.DeleteOptions{}))
		s.must(s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Delete(s.ctx, name, metav1.DeleteOptions{}))
	}
	s.waitLeft(map[string]int64{class + " in small": 2, class + " in large": 64})
	foreign := s.foreign(class)
	s.must(s.client.StorageV1().StorageClasses().Delete(s.ctx, class, metav1.DeleteOptions{}))
	s.waitLeft(map[string]int64{})
	if _, err := s.client.StorageV1().CSIStorageCapacities(s.Namespace).Get(s.ctx, foreign, metav1.GetOptions{}); err != nil {
		t.Errorf("an object of somebody else's is gone: %v", err)
	}
	s.usedAsGranted()
}

// TestEachNodePublishesWhatItHasLeft: each node's object is its own, and changes with its volumes alone.
func TestEachNodePublishesWhatItHasLeft(t *testing.T) {
	t.Parallel()
	s, members := newMembers(t, 2, "--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=1h")
	one, two := members[0], members[1]
	room := resource.MustParse("1Pi") // of the driver, by default
	type state struct {
		used    string
		uid     types.UID
		version string
	}
	// published is what each place's object says, by place.
	published := func() map[string]state {
		list, err := s.client.StorageV1().CSIStorageCapacities(s.Namespace).List(s.ctx, metav1.ListOptions{LabelSelector: capacity.LabelDriver + "=" + s.Driver})
		s.must(err)
		all := map[string]state{}
		for _, o := range list.Items {
			used := room.DeepCopy()
			used.Sub(*o.Capacity)
			all[o.NodeTopology.MatchLabels[segment]] = state{used.String(), o.UID, o.ResourceVersion}
		}
		if len(all) != len(list.Items) {
			t.Errorf("%d objects for %d places", len(list.Items), len(all))
		}
		return all
	}
	wait := func(ones, twos string) (now map[string]state) {
		t.Helper()
		s.eventually("the nodes say that "+ones+" and "+twos+" are used", func() bool {
			now = published()
			return now[one.place].used == ones && now[two.place].used == twos
		})
		return now
	}
	class := s.class(lateBinding)
	first := wait("0", "0")
	claim := s.claim(class, selected(two.node), func(spec *storage.ClaimSpec) { spec.Size = "5Mi" })
	vol := s.free(claim)
	second := wait("0", "5Mi")
	if second[one.place] != first[one.place] || second[two.place].uid != first[two.place].uid {
		t.Errorf("a volume on the second node turned %v into %v", first, second)
	}
	asked, err := one.driver.Calls("GetCapacity")
	s.must(err)
	s.must(one.car.Terminate())
	s.must(one.car.Restart())
	s.must(one.car.WaitReady(s.soon()))
	s.eventually("the first node's driver is asked anew", func() bool {
		again, err := one.driver.Calls("GetCapacity")
		s.must(err)
		return len(again) > len(asked)
	})
	if third := wait("0", "5Mi"); !maps.Equal(third, second) {
		t.Errorf("a restart turned %v into %v", second, third)
	}
	s.deleteClaim(claim)
	s.must(vol.WaitGone(s.soon()))
	wait("0", "0")
	s.must(s.client.StorageV1().StorageClasses().Delete(s.ctx, class, metav1.DeleteOptions{}))
	s.eventually("nothing is published for a class that is gone", func() bool { return len(published()) == 0 })
}

// asks counts the GetCapacity calls.
func (s published) asks() int {
	s.t.Helper()
	calls, err := s.driver.Calls("GetCapacity")
	s.must(err)
	return len(calls)
}

// foreign makes an object for the driver and the class that somebody else keeps.
func (s published) foreign(class string) string {
	s.t.Helper()
	o, err := s.client.StorageV1().CSIStorageCapacities(s.Namespace).Create(s.ctx, &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-", Labels: map[string]string{
			capacity.LabelDriver: s.Driver, capacity.LabelManagedBy: "external-provisioner-node-1"}},
		StorageClassName: class, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{pool: "small"}},
	}, metav1.CreateOptions{})
	s.must(err)
	return o.Name
}

// usedAsGranted compares what was asked for with what deploy/ grants for it, both ways.
func (s published) usedAsGranted() {
	s.t.Helper()
	rules, err := grant.CapacityRules()
	s.must(err)
	granted, resources := map[string]bool{}, map[string]bool{}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			name := strings.Trim(resource+"."+rule.APIGroups[0], ".")
			resources[name] = true
			for _, verb := range rule.Verbs {
				granted[verb+" "+name] = true
			}
		}
	}
	var used map[string]bool
	for ctx := s.soon(); ; time.Sleep(50 * time.Millisecond) { // the audit log is written behind the answers
		used = s.askedFor()
		maps.DeleteFunc(used, func(right string, _ bool) bool {
			_, resource, _ := strings.Cut(right, " ")
			return !resources[resource]
		})
		if maps.Equal(used, granted) || ctx.Err() != nil {
			break
		}
	}
	if !maps.Equal(used, granted) {
		s.t.Errorf("used %q, granted %q", slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(granted)))
	}
}

// TestCapacityOfADriverThatTellsNone: it is said, and volumes are made and deleted as usual.
func TestCapacityOfADriverThatTellsNone(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "owner", mockdriver.Options{Args: []string{"--disable-capabilities=GET_CAPACITY"}})
	car := s.launchAs(sidecar.Options{Env: []string{"NAMESPACE=" + s.Namespace}, Args: append(eager(), "--enable-capacity", "--capacity-ownerref-level=-1")})
	s.must(car.WaitReady(s.soon()))
	s.must(car.WaitLog(s.soon(), "does not advertise GET_CAPACITY"))
	s.bound(s.claim(s.class()))
	s.fence()
}
