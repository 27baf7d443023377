//go:build unix

package provision

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
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/capacity"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// pool is the label of the places below.
const pool = "e2e.csi-reclaimer.io/pool"

// twoPools is a driver with room for two volumes in pool "small", and for many in pool "large".
func twoPools() mockdriver.Options {
	return mockdriver.Options{Profile: "no-attach",
		Args: []string{"--place=" + pool + "=small@2Mi", "--place=" + pool + "=large@64Mi"}}
}

// capacityEnvironment is the environment of a sidecar with --enable-capacity.
type capacityEnvironment struct {
	*environment
	deployment *appsv1.Deployment
}

// newCapacityEnvironment returns an environment with a driver on a node in each pool. For the API server, its sidecar
// runs in the pod of a Deployment.
func newCapacityEnvironment(t *testing.T) capacityEnvironment {
	t.Helper()
	env := capacityEnvironment{environment: newForRole(t, "owner", twoPools())}
	env.Must(rbac.GrantCapacity(env.Ctx, env.Client, env.Namespace, "csi-reclaimer"))
	labels := map[string]string{"app": "driver"}
	env.deployment = env.Deployments().Create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "driver"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				// No scheduler binds it: its existence is enough.
				SchedulerName: "nobody", Containers: []v1.Container{{Name: "driver", Image: "none"}},
			}},
		},
	})
	env.InstallDriver(func(d *storagev1.CSIDriver) { d.Spec.StorageCapacity = ptr.To(true) })
	for _, name := range []string{"small", "large"} {
		fakenode.ForTest(t, env.Plane, "node-"+name+"-"+rand.String(6), fakenode.Config{
			Drivers: map[string]fakenode.Driver{env.Driver: {Place: map[string]string{pool: name}}},
		})
	}
	return env
}

// sidecar starts a sidecar that publishes, and waits until it is ready.
func (env capacityEnvironment) sidecar(args ...string) *program.Program {
	env.T.Helper()
	pod := ""
	env.Eventually("the Deployment has a pod", func() bool {
		for _, one := range env.Pods().List("app=driver") {
			pod = one.Name
		}
		return pod != ""
	})
	car := env.LaunchSidecarWith(program.SidecarOptions{Env: []string{"NAMESPACE=" + env.Namespace, "POD_NAME=" + pod},
		Args: append([]string{"--enable-capacity", "--capacity-ownerref-level=2", "--kube-api-capacity-qps=0"}, args...)})
	env.Must(car.WaitReady(env.WithTimeout()))
	return car
}

// objects returns the published objects, by class and pool.
func (env capacityEnvironment) objects() map[string]*storagev1.CSIStorageCapacity {
	env.T.Helper()
	list := env.CSIStorageCapacities().List(capacity.LabelDriver + "=" + env.Driver + "," + capacity.LabelManagedBy +
		"=external-provisioner")
	all := map[string]*storagev1.CSIStorageCapacity{}
	for _, o := range list {
		all[o.StorageClassName+" in "+o.NodeTopology.MatchLabels[pool]] = o
	}
	if len(all) != len(list) {
		env.T.Errorf("%d objects for %d spots", len(list), len(all))
	}
	return all
}

// waitPublished waits until exactly these capacities are published, in MiB.
func (env capacityEnvironment) waitPublished(want map[string]int64) {
	env.T.Helper()
	var now map[string]int64
	env.Eventually("what is published is as it should be", func() bool {
		now = map[string]int64{}
		for spot, o := range env.objects() {
			now[spot] = o.Capacity.Value() >> 20
		}
		env.T.Logf("published: %v", now)
		return maps.Equal(now, want)
	})
}

// writes returns the verbs of the sidecar's writes to capacity objects.
func (env capacityEnvironment) writes() []string {
	env.T.Helper()
	var verbs []string
	for _, e := range env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource == "csistoragecapacities" && !slices.Contains([]string{"list", "watch"}, e.Verb)
	}) {
		verbs = append(verbs, e.Verb)
	}
	return verbs
}

// TestStorageCapacityGuidesScheduler creates claims that wait for their pod. The scheduler places the pods by the
// driver's reported capacity.
func TestStorageCapacityGuidesScheduler(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env := newCapacityEnvironment(t)
	car := env.sidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	env.waitPublished(map[string]int64{class + " in small": 2, class + " in large": 64})
	for spot, o := range env.objects() {
		if owner := metav1.GetControllerOf(o); owner == nil || owner.UID != env.deployment.UID ||
			owner.Kind != "Deployment" {
			t.Errorf("%s is owned by %+v, want the Deployment", spot, owner)
		}
	}
	// Too large for pool small, which only the published capacity shows.
	for i, size := range []string{"3Mi", "4Mi"} {
		name := "data-" + string(rune('a'+i))
		claim, err := env.MakeClaim(env.Ctx, objects.ClaimSpec{Name: name, Class: class, Size: size})
		env.Must(err)
		pod := env.CreatePod(objects.PodSpec{Name: name, Claims: []string{name}})
		node := env.WaitRunning(pod)
		if !strings.HasPrefix(node, "node-large-") {
			t.Errorf("pod %s runs on %s", name, node)
		}
		_, err = claim.WaitBound(env.WithTimeout())
		env.Must(err)
	}
	calls, err := env.MockDriver.Calls("CreateVolume")
	env.Must(err)
	if len(calls) != 2 {
		t.Errorf("%d CreateVolume calls, want one for each claim: %+v", len(calls), calls)
	}
	// Long before the poll interval of a minute.
	env.waitPublished(map[string]int64{class + " in small": 2, class + " in large": 57})

	before := env.objects()
	env.Must(car.Terminate())
	wrote := len(env.writes()) // the sidecar has ended: no more come
	env.Must(car.Restart("--capacity-poll-interval=1s"))
	env.Must(car.WaitReady(env.WithTimeout()))
	restarted := env.capacityCalls()
	env.Eventually("the driver was asked again and again", func() bool { return env.capacityCalls() >= restarted+6 })
	if writes := env.writes(); len(writes) != wrote {
		t.Errorf("nothing changed, and was written: %q", writes[wrote:])
	}
	for spot, o := range env.objects() {
		if o.UID != before[spot].UID || o.ResourceVersion != before[spot].ResourceVersion {
			t.Errorf("the object of %s is another than before the restart", spot)
		}
	}

	for _, name := range []string{"data-a", "data-b"} {
		env.Pods().Delete(name)
		env.Claims().Delete(name)
	}
	env.waitPublished(map[string]int64{class + " in small": 2, class + " in large": 64})
	foreign := env.foreign(class)
	env.StorageClasses().Delete(class)
	env.waitPublished(map[string]int64{})
	if env.CSIStorageCapacities().Find(foreign) == nil {
		t.Error("an object of another program is gone")
	}
	env.usedAsGranted()
}

// TestNodeDeploymentPublishesCapacityOfEachNode expects one object for each node, which changes only with that node's
// volumes.
func TestNodeDeploymentPublishesCapacityOfEachNode(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env, members := newNodeMembers(t, "--enable-capacity", "--capacity-ownerref-level=-1",
		"--capacity-poll-interval=1h")
	one, two := members[0], members[1]
	room := resource.MustParse("1Pi") // of the driver, by default
	type state struct {
		used    string
		uid     types.UID
		version string
	}
	// published returns the state of each pool's object, by pool.
	published := func() map[string]state {
		list, all := env.CSIStorageCapacities().List(capacity.LabelDriver+"="+env.Driver), map[string]state{}
		for _, o := range list {
			used := room.DeepCopy()
			used.Sub(*o.Capacity)
			all[o.NodeTopology.MatchLabels[fixture.NodeTopologyKey]] = state{used.String(), o.UID, o.ResourceVersion}
		}
		if len(all) != len(list) {
			t.Errorf("%d objects for %d places", len(list), len(all))
		}
		return all
	}
	wait := func(ones, twos string) (now map[string]state) {
		t.Helper()
		env.Eventually("the nodes say that "+ones+" and "+twos+" are used", func() bool {
			now = published()
			return now[one.place].used == ones && now[two.place].used == twos
		})
		return now
	}
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	first := wait("0", "0")
	claim := env.CreateClaim(class, fixture.WithSelectedNode(two.node),
		func(spec *objects.ClaimSpec) { spec.Size = "5Mi" })
	vol := env.waitBoundAndSettled(claim)
	second := wait("0", "5Mi")
	if second[one.place] != first[one.place] || second[two.place].uid != first[two.place].uid {
		t.Errorf("a volume on the second node turned %v into %v", first, second)
	}
	asked, err := one.driver.Calls("GetCapacity")
	env.Must(err)
	env.Must(one.sidecar.Terminate())
	env.Must(one.sidecar.Restart())
	env.Must(one.sidecar.WaitReady(env.WithTimeout()))
	env.Eventually("the first node's driver is asked anew", func() bool {
		again, err := one.driver.Calls("GetCapacity")
		env.Must(err)
		return len(again) > len(asked)
	})
	if third := wait("0", "5Mi"); !maps.Equal(third, second) {
		t.Errorf("a restart turned %v into %v", second, third)
	}
	env.MustDeleteClaim(claim)
	env.Must(vol.WaitGone(env.WithTimeout()))
	wait("0", "0")
	env.StorageClasses().Delete(class)
	env.Eventually("nothing is published for a class that is gone", func() bool { return len(published()) == 0 })
}

// capacityCalls counts the GetCapacity calls.
func (env capacityEnvironment) capacityCalls() int {
	env.T.Helper()
	calls, err := env.MockDriver.Calls("GetCapacity")
	env.Must(err)
	return len(calls)
}

// foreign creates an object for the driver and the class that another program manages.
func (env capacityEnvironment) foreign(class string) string {
	env.T.Helper()
	o := env.CSIStorageCapacities().Create(&storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-", Labels: map[string]string{
			capacity.LabelDriver: env.Driver, capacity.LabelManagedBy: "external-provisioner-node-1"}},
		StorageClassName: class, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{pool: "small"}},
	})
	return o.Name
}

// usedAsGranted compares the used permissions with the ones that deploy/ grants, in both directions.
func (env capacityEnvironment) usedAsGranted() {
	env.T.Helper()
	rules, err := rbac.CapacityRules()
	env.Must(err)
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
	for ctx := env.WithTimeout(); ; time.Sleep(50 * time.Millisecond) { // the audit log is written behind the answers
		used = env.RequestedPermissions()
		maps.DeleteFunc(used, func(right string, _ bool) bool {
			_, resource, _ := strings.Cut(right, " ")
			return !resources[resource]
		})
		if maps.Equal(used, granted) || ctx.Err() != nil {
			break
		}
	}
	if !maps.Equal(used, granted) {
		env.T.Errorf("used %q, granted %q", slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(granted)))
	}
}

// TestStorageCapacityOfDriverWithoutGetCapacity expects a report; the sidecar still creates and deletes volumes.
func TestStorageCapacityOfDriverWithoutGetCapacity(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutDriver)
	env := newForRole(t, "owner", mockdriver.Options{Args: []string{"--disable-capabilities=GET_CAPACITY"}})
	car := env.LaunchSidecarWith(program.SidecarOptions{Env: []string{"NAMESPACE=" + env.Namespace},
		Args: append(fixture.FastRetries(), "--enable-capacity", "--capacity-ownerref-level=-1")})
	env.Must(car.WaitReady(env.WithTimeout()))
	env.Must(car.WaitLog(env.WithTimeout(), "does not advertise GET_CAPACITY"))
	env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
	env.Barrier()
}
