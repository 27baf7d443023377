package builder

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const driverName = "disk.csi.example.com"

var errLost = errors.New("the connection is lost")

// able is a driver with all capabilities except topology.
type able struct{}

func (able) Name() string                                      { return driverName }
func (able) Known() error                                      { return nil }
func (able) Has(csi.ControllerServiceCapability_RPC_Type) bool { return true }
func (able) Offers(service csi.PluginCapability_Service_Type) bool {
	return service == csi.PluginCapability_Service_CONTROLLER_SERVICE
}

func build(t *testing.T, client kubernetes.Interface, driver Capable, cfg Config) *Builder {
	t.Helper()
	b := must.Get(NewForClient(client, driver, cfg))(t)
	return b
}

// want returns a claim with a valid request, with the changes.
func want(changes ...func(*v1.PersistentVolumeClaim)) request.Options {
	class := "fast"
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1",
			Annotations: map[string]string{volume.AnnProvisioner: driverName}},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}}}
	for _, change := range changes {
		change(claim)
	}
	return request.Options{Claim: claim,
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driverName}}
}

// named returns a plain claim whose volume has this name.
func named(name string) request.Options {
	o := want()
	o.Name = name
	return o
}

func from(group, kind, name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: &group, Kind: kind, Name: name}
	}
}

func tier(name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &name }
}

func TestBuild(t *testing.T) {
	const snapshots = "snapshot.storage.k8s.io"
	size := v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}
	world := []runtime.Object{
		&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: driverName,
			Parameters: map[string]string{"iops": "9"}},
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "source", UID: "u-source"},
			Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv-source", Resources: size},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}},
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-source"},
			Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: "source", UID: "u-source"},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
					VolumeHandle: "vol-source"}}},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}},
	}
	for name, c := range map[string]struct {
		want   request.Options
		snaps  Snapshots
		reason request.Reason
		check  func(*inflight.Request) bool
	}{
		"a plain claim": {want(), nil, "", func(o *inflight.Request) bool {
			return o.Create.Name == "pvc-u1" && o.Source == nil && o.Secret == nil
		}},
		"a claim that keeps its name": {named("disk-u1"), nil, "", func(o *inflight.Request) bool {
			return o.Create.Name == "disk-u1" && o.PV.Name == "disk-u1"
		}},
		"a VolumeAttributesClass": {want(tier("gold")), nil, "", func(o *inflight.Request) bool {
			return o.Create.MutableParameters["iops"] == "9"
		}},
		"an absent class": {want(tier("lead")), nil, request.ReasonAttributesClassMissing, nil},
		"a clone": {want(from("", "PersistentVolumeClaim", "source")), nil, "", func(o *inflight.Request) bool {
			return *o.Source == volume.SourceRef{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "source",
				UID: "u-source"} && o.Create.GetVolumeContentSource().GetVolume().GetVolumeId() == "vol-source"
		}},
		"a clone of nothing": {want(from("", "PersistentVolumeClaim", "nothing")), nil,
			request.ReasonSourceMissing, nil},
		"a snapshot without a reader": {want(from(snapshots, "VolumeSnapshot", "snap")), nil,
			request.ReasonSourceUnserved, nil},
		"a snapshot that is not there": {want(from(snapshots, "VolumeSnapshot", "snap")), noSnapshots{},
			request.ReasonSourceMissing, nil},
		"a claim without a provisioner": {want(func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }), nil,
			request.ReasonNotOurs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(world...)
			built := build(t, client, able{}, Config{Snapshots: c.snaps})
			serve(client, "storageclasses", "volumeattributesclasses")
			got, err := built.Build(t.Context(), c.want)
			if request.ReasonOf(err) != c.reason || (err == nil) != (c.reason == "") {
				t.Fatalf("%v, want %q", err, c.reason)
			}
			if c.check != nil && !c.check(got) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// serve lets the API server have these resources in storage.k8s.io/v1.
func serve(client *fake.Clientset, resources ...string) {
	list := &metav1.APIResourceList{GroupVersion: storagev1.SchemeGroupVersion.String()}
	for _, name := range resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	client.Resources = []*metav1.APIResourceList{list}
}

// TestVolumeAttributesClassesUnserved checks that a claim that names one is refused until the cluster serves the kind.
func TestVolumeAttributesClassesUnserved(t *testing.T) {
	client := fake.NewClientset()
	built := build(t, client, able{}, Config{})
	serve(client, "storageclasses")
	if _, err := built.Build(t.Context(),
		want(tier("gold"))); request.ReasonOf(err) != request.ReasonAttributesClassUnserved {
		t.Errorf("where they are not served: %v", err)
	}
	lost := true
	client.PrependReactor("get", "resource", func(k8stesting.Action) (bool, runtime.Object, error) {
		return lost, nil, errLost
	})
	if _, err := built.Build(t.Context(), want(tier("gold"))); !errors.Is(err, errLost) || request.ReasonOf(err) != "" {
		t.Errorf("where that cannot be found out: %v", err)
	}
	lost = false
	serve(client, "volumeattributesclasses")
	_, err := client.StorageV1().VolumeAttributesClasses().Create(t.Context(),
		&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: driverName},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := built.Build(t.Context(), want(tier("gold"))); err != nil {
		t.Errorf("after an upgrade: %v", err)
	}
}

// TestVolumeAttributesClassesDisabled checks that no class is read, and that a claim that names one is refused.
func TestVolumeAttributesClassesDisabled(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "volumeattributesclasses", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errLost
	})
	built := build(t, client, able{}, Config{Settings: request.Settings{NoAttributesClass: true}})
	if _, err := built.Build(t.Context(),
		want(tier("gold"))); request.ReasonOf(err) != request.ReasonAttributesClassUnserved {
		t.Errorf("a claim with a class: %v", err)
	}
	if _, err := built.Build(t.Context(), want()); err != nil {
		t.Errorf("a claim without: %v", err)
	}
}

type noSnapshots struct{}

func (noSnapshots) Read(context.Context, types.NamespacedName) (*request.Snapshot, error) {
	return nil, nil
}

// lostSnapshots fails all reads.
type lostSnapshots struct{}

func (lostSnapshots) Read(context.Context, types.NamespacedName) (*request.Snapshot, error) {
	return nil, errLost
}

func TestFailedReadIsNoFact(t *testing.T) {
	for resource, asks := range map[string]request.Options{
		"volumeattributesclasses": want(tier("gold")),
		"persistentvolumeclaims":  want(from("", "PersistentVolumeClaim", "source")),
		"volumesnapshots":         want(from("snapshot.storage.k8s.io", "VolumeSnapshot", "snap")),
	} {
		client := fake.NewClientset()
		client.PrependReactor("get", resource, func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, errLost
		})
		built := build(t, client, able{}, Config{Snapshots: lostSnapshots{}})
		if _, err := built.Build(t.Context(), asks); !errors.Is(err, errLost) || request.ReasonOf(err) != "" {
			t.Errorf("%s: %v", resource, err)
		}
	}
}

// unable is a driver without controller capabilities.
type unable struct{ able }

func (unable) Has(csi.ControllerServiceCapability_RPC_Type) bool { return false }

func TestSnapshotPermissionsNeedDriverSupport(t *testing.T) {
	for name, c := range map[string]struct {
		driver Capable
		cfg    Config
		want   int
	}{
		"a driver with snapshots": {able{}, Config{Snapshots: noSnapshots{}}, 3},
		"one without":             {unable{}, Config{Snapshots: noSnapshots{}}, 0},
		"without a reader":        {able{}, Config{}, 0},
	} {
		built := build(t, fake.NewClientset(), c.driver, c.cfg)
		rights := slices.DeleteFunc(built.Permissions(),
			func(r permission.Permission) bool { return r.Group != "snapshot.storage.k8s.io" })
		if len(rights) != c.want {
			t.Errorf("%s: needs %v, want %d rights", name, rights, c.want)
		}
	}
}

// changing is a driver whose capabilities change.
type changing struct {
	clones, topology bool
	lost             error
}

func (*changing) Name() string   { return driverName }
func (d *changing) Known() error { return d.lost }
func (d *changing) Has(c csi.ControllerServiceCapability_RPC_Type) bool {
	return d.clones || c != csi.ControllerServiceCapability_RPC_CLONE_VOLUME
}
func (d *changing) Offers(service csi.PluginCapability_Service_Type) bool {
	return d.topology || service == csi.PluginCapability_Service_CONTROLLER_SERVICE
}

func TestCapabilitiesAreCurrent(t *testing.T) {
	source := want().Claim
	source.Name, source.Spec.VolumeName, source.Status.Phase = "source", "pv-1", v1.ClaimBound
	client := fake.NewClientset(source, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: v1.PersistentVolumeSpec{StorageClassName: "fast", ClaimRef: &v1.ObjectReference{Namespace: "ns",
			Name: "source", UID: source.UID},
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
				VolumeHandle: "vol-1"}}}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}})
	driver := &changing{}
	built := build(t, client, driver, Config{})
	clone := want(from("", "PersistentVolumeClaim", "source"))
	if _, err := built.Build(t.Context(), clone); err == nil || !strings.Contains(err.Error(), "CLONE_VOLUME") {
		t.Errorf("without the capability: %v", err)
	}
	driver.clones = true
	if o, err := built.Build(t.Context(), clone); err != nil || o.Source == nil || o.Source.Name != "source" {
		t.Errorf("with it: %+v, %v", o, err)
	}
	driver.lost = errLost
	if _, err := built.Build(t.Context(), want()); !errors.Is(err, errLost) {
		t.Errorf("while they are not known: %v", err)
	}
	driver.lost, driver.topology = nil, true
	if _, err := built.Build(t.Context(), want()); !errors.Is(err, errTopologyChanged) {
		t.Errorf("with topology that was not there at the start: %v", err)
	}
	ignoring := build(t, built.client, &changing{}, Config{IgnoreTopology: true})
	ignoring.driver = driver
	if _, err := ignoring.Build(t.Context(), want()); err != nil {
		t.Errorf("where topology is ignored: %v", err)
	}
}

// TestRequestFromBeforeTopology covers a request that was sent before a driver with topology replaced the earlier one.
func TestRequestFromBeforeTopology(t *testing.T) {
	client := fake.NewClientset()
	before := build(t, client, &changing{}, Config{})
	o := must.Get(before.Build(t.Context(), want()))(t)
	made := &csi.Volume{VolumeId: "vol-1", CapacityBytes: 1 << 20,
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}}
	for topology, want := range map[bool]int{false: 0, true: 1} {
		after := build(t, client, &changing{topology: topology}, Config{})
		pv := must.Get(after.PV(*o, made))(t)
		terms := 0
		if pv.Spec.NodeAffinity != nil {
			terms = len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms)
		}
		if terms != want {
			t.Errorf("topology %v: the PV has the node affinity %+v", topology, pv.Spec.NodeAffinity)
		}
	}
}

func TestPVName(t *testing.T) {
	client := fake.NewClientset()
	built := build(t, client, able{},
		Config{Settings: request.Settings{VolumeNamePrefix: "disk", VolumeNameUUIDLength: 4}})
	if name := built.PVName("0f0c4b1e-7a51-4d2a"); name != "disk-0f0c" {
		t.Errorf("%q", name)
	}
}

func TestVolumeBeyondItsNodeIsRefused(t *testing.T) {
	node := volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	b := &Builder{cfg: Config{Node: &node}}
	pv := &v1.PersistentVolume{}
	if b.checkHere(pv) == nil {
		t.Error("takes a volume of which no node is known")
	}
	pv.Spec.NodeAffinity = topology.Affinity([]*csi.Topology{{Segments: node.Segments}})
	if err := b.checkHere(pv); err != nil {
		t.Errorf("refuses its own: %v", err)
	}
	if _, err := NewForClient(b.client, Fixed{}, b.cfg); err == nil {
		t.Error("takes a driver that does not say where its volumes are")
	}
}

func TestFixedDriverGetsRequests(t *testing.T) {
	clones := from("", "PersistentVolumeClaim", "source")
	clone := csi.ControllerServiceCapability_RPC_CLONE_VOLUME
	for name, c := range map[string]struct {
		driver  Fixed
		changes []func(*v1.PersistentVolumeClaim)
		refused bool
	}{
		"an empty volume":         {driver: Fixed{Driver: driverName}},
		"a clone, without clones": {Fixed{Driver: driverName}, []func(*v1.PersistentVolumeClaim){clones}, true},
		"without a name":          {refused: true},
	} {
		built := build(t, fake.NewClientset(), c.driver, Config{})
		if _, err := built.Build(t.Context(), want(c.changes...)); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	able := Fixed{Driver: driverName, Controller: []csi.ControllerServiceCapability_RPC_Type{clone}, Topology: true}
	if !able.Has(clone) || !able.Offers(topologyService) || (Fixed{}).Has(clone) || (Fixed{}).Offers(topologyService) {
		t.Error("a capability is not the configured one")
	}
}
