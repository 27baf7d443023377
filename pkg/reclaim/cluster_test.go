package reclaim

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// serverOf returns the apiServer of a fake client.
func serverOf(c *fake.Clientset) apiServer {
	return apiServer{clients: kube.Clients{Core: c.CoreV1(), Storage: c.StorageV1()}}
}

// A backup that is restored over the Lease would release the brake.
func TestLeaseOfBrakeStaysOutOfBackups(t *testing.T) {
	for name, write := range map[string]func(apiServer, types.NamespacedName) error{
		"created": func(a apiServer, lease types.NamespacedName) error { return a.createBrake(t.Context(), lease) },
		"written where none is": func(a apiServer, lease types.NamespacedName) error {
			_, err := a.writeBrake(t.Context(), lease, "why")
			return err
		},
	} {
		client, lease := fake.NewClientset(), types.NamespacedName{Namespace: "ns", Name: "lease"}
		a := serverOf(client)
		a.clients.Coordination = client.CoordinationV1()
		must.OK(t, write(a, lease))
		o, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "lease", metav1.GetOptions{})
		if err != nil || o.Labels[kube.NoBackup] != "true" {
			t.Errorf("%s: %v, %v", name, o.Labels, err)
		}
	}
}

// Only the API server's answer proves that an object does not exist; a failing server proves nothing.
func TestFailedReadIsNotAbsence(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: meta}
	claim.Spec.VolumeName = "pv"
	of := volume.ClaimRef{Namespace: "ns", Name: "a", UID: "asked"}
	stored := []runtime.Object{
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}}, claim,
		&v1.Secret{ObjectMeta: meta, Data: map[string][]byte{"key": []byte("value")}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	}
	for name, read := range map[string]func(apiServer) (found bool, err error){
		"PV": func(a apiServer) (bool, error) {
			pv, found, err := a.readPV(t.Context(), "a")
			return found && pv.UID == "uid", err
		},
		"claim": func(a apiServer) (bool, error) {
			facts, err := a.readClaim(t.Context(), of)
			if err == nil && facts.Of != of {
				t.Errorf("read for %+v: %+v", of, facts)
			}
			return facts.Found && facts.UID == "uid" && facts.VolumeName == "pv", err
		},
		"Secret": func(a apiServer) (bool, error) {
			data, found, err := a.readSecret(t.Context(), volume.SecretRef{Namespace: "ns", Name: "a"})
			return found && data["key"] == "value", err
		},
		"StorageClass": func(a apiServer) (bool, error) {
			class, err := a.readClass(t.Context(), "a")
			return class != nil, err
		},
	} {
		if found, err := read(serverOf(fake.NewClientset(stored...))); !found || err != nil {
			t.Errorf("%s that exists: found %t, %v", name, found, err)
		}
		if found, err := read(serverOf(fake.NewClientset())); found || err != nil {
			t.Errorf("%s that does not exist: found %t, %v", name, found, err)
		}
		broken := fake.NewClientset(stored...)
		broken.PrependReactor("get", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("broken"))
		})
		if found, err := read(serverOf(broken)); found || !apierrors.IsInternalError(err) {
			t.Errorf("%s that cannot be read: found %t, %v", name, found, err)
		}
	}
}

// A node's own process deletes a volume only if it finds itself alone with its topology segments.
func TestListNodes(t *testing.T) {
	node := func(name, zone string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	}
	client := fake.NewClientset(node("a", "1"), node("b", "1"), node("c", "2"))
	a := serverOf(client)
	if names, err := a.listNodes(t.Context()); err == nil {
		t.Errorf("without a node of its own: %v", names)
	}
	a.node = &volume.Node{Name: "a", Segments: map[string]string{"zone": "1"}}
	if names, err := a.listNodes(t.Context()); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("in zone 1: %v, %v", names, err)
	}
	client.PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &v1.NodeList{}, apierrors.NewInternalError(errors.New("broken"))
	})
	if names, err := a.listNodes(t.Context()); err == nil {
		t.Errorf("not answered: %v", names)
	}
}

// A write is bound to the PV's UID and, with bound, to its version. Writes that protect use the background clients,
// and an answer that does not show the change is an error.
func TestPatchFinalizers(t *testing.T) {
	const finalizer = volume.Finalizer
	for name, c := range map[string]struct {
		add, drop []string
		bound     bool
		after     []string
		err       error
		slow      bool
		restored  bool
		fails     bool
	}{
		"removed as it was read":   {drop: []string{finalizer}, bound: true},
		"removed unchanged":        {drop: []string{finalizer}, after: []string{"another"}},
		"added":                    {add: []string{finalizer}, bound: true, after: []string{finalizer}, slow: true},
		"removed, and added again": {drop: []string{finalizer}, after: []string{finalizer}, restored: true, fails: true},
		"added, and removed again": {add: []string{finalizer}, slow: true, fails: true},
		"exchanged, not added":     {add: []string{finalizer}, drop: []string{"another"}, slow: true, fails: true},
		"refused":                  {drop: []string{finalizer}, err: errors.New("refused"), fails: true},
	} {
		var sent struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		slow := false
		clientThat := func(isSlow bool) *fake.Clientset {
			client := fake.NewClientset()
			client.PrependReactor("patch", "persistentvolumes", func(a k8stesting.Action) (bool, runtime.Object, error) {
				if err := json.Unmarshal(a.(k8stesting.PatchAction).GetPatch(), &sent); err != nil {
					t.Error(err)
				}
				slow = isSlow
				return true, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "11", Finalizers: c.after}}, c.err
			})
			return client
		}
		a := serverOf(clientThat(false))
		a.background = serverOf(clientThat(true)).clients
		after, err := a.patchFinalizers(t.Context(), released().PV, c.add, c.drop, c.bound)
		if (err != nil) != c.fails || errors.Is(err, ErrFinalizerRestored) != c.restored ||
			(after.ResourceVersion == "11") != (c.err == nil) {
			t.Errorf("%s: resourceVersion %q, %v", name, after.ResourceVersion, err)
		}
		if sent.Metadata.UID != "pv-uid" || (sent.Metadata.ResourceVersion == "10") != c.bound || slow != c.slow {
			t.Errorf("%s: sent %+v, slow %t", name, sent, slow)
		}
	}
}

func TestDeletePVHasUIDPrecondition(t *testing.T) {
	client := fake.NewClientset()
	var only *metav1.Preconditions
	client.PrependReactor("delete", "persistentvolumes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		only = a.(k8stesting.DeleteActionImpl).DeleteOptions.Preconditions
		return true, nil, nil
	})
	must.OK(t, serverOf(client).deletePV(t.Context(), released().PV))
	if only == nil || only.UID == nil || *only.UID != "pv-uid" {
		t.Errorf("preconditions %+v", only)
	}
}

// A VolumeAttachment of an inline volume names no PV.
func TestAttachedPV(t *testing.T) {
	o := &storagev1.VolumeAttachment{}
	if pv := attachedPV(o); pv != "" {
		t.Errorf("of an inline volume: %q", pv)
	}
	name := "pv"
	o.Spec.Source.PersistentVolumeName = &name
	if pv := attachedPV(o); pv != "pv" {
		t.Errorf("of a PV: %q", pv)
	}
}

// The cache keeps the PVs that the driver owns or that name a volume of it. A PV that ceases to be either is kept
// without its handle until its end.
func TestRecordPV(t *testing.T) {
	_, r := newWorld(t)
	for name, c := range map[string]struct {
		driver, provisioner string
		known, keep         bool
		handle              string
	}{
		"ours":                              {driver, driver, false, true, "vol-1"},
		"of another's, on a volume of ours": {driver, "other", false, true, "vol-1"},
		"migrated to us":                    {"", driver, false, true, ""},
		"another driver's":                  {"other", "other", false, false, ""},
		"another driver's, which was ours":  {"other", "other", true, true, ""},
	} {
		o := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv-uid", ResourceVersion: "10",
			Annotations: map[string]string{volume.AnnProvisionedBy: c.provisioner}}}
		if c.driver != "" {
			o.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: c.driver, VolumeHandle: "vol-1"}
		}
		pv, keep, err := kube.RecordSome(r.recordPV)(o, c.known)
		if err != nil || keep != c.keep {
			t.Errorf("%s: kept %t, %v", name, keep, err)
		} else if keep && (pv.Name != "pv" || pv.UID != "pv-uid" || pv.ResourceVersion != "10" || pv.Handle != c.handle) {
			t.Errorf("%s: %+v", name, pv)
		}
	}
	if _, keep, err := kube.RecordSome(r.recordPV)(&v1.Pod{}, true); keep || err == nil {
		t.Errorf("what is no PV: kept %t, %v", keep, err)
	}
}
