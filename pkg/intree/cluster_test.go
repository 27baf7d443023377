package intree

import (
	"encoding/json"
	"errors"
	"testing"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// TestAgainstRealAPIServers covers these calls with real API servers.

func serverOf(c *fake.Clientset) apiServer {
	return apiServer{kube.Clients{Core: c.CoreV1(), Storage: c.StorageV1()}}
}

// Each write of a session is bound to the UID and resourceVersion that were read.
func TestWritePreconditions(t *testing.T) {
	ask := intree.Ask{Name: "pv", UID: "pv-uid", ResourceVersion: "10", Policy: volume.PolicyDelete,
		Remove: []string{intree.Finalizer}}
	var uid, version string
	client := fake.NewClientset()
	client.PrependReactor("patch", "persistentvolumes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		var sent struct {
			Metadata struct{ UID, ResourceVersion string }
		}
		err := json.Unmarshal(a.(k8stesting.PatchAction).GetPatch(), &sent)
		uid, version = sent.Metadata.UID, sent.Metadata.ResourceVersion
		return true, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "11"}}, err
	})
	client.PrependReactor("delete", "persistentvolumes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		only := a.(k8stesting.DeleteActionImpl).DeleteOptions.Preconditions
		uid, version = string(*only.UID), ""
		if only.ResourceVersion != nil {
			version = *only.ResourceVersion
		}
		return true, nil, nil
	})
	for _, call := range []intree.Call{intree.PatchFinalizers, intree.PatchPolicy, intree.DeletePV} {
		ask.Call, uid, version = call, "", ""
		c := calls{cluster: serverOf(client)}
		reply, err := c.make(t.Context(), ask)
		if err != nil || reply.Outcome != session.Succeeded || uid != "pv-uid" || version != "10" {
			t.Errorf("call %d: bound to %q and %q: %+v, %v", call, uid, version, reply, err)
		}
		if call != intree.DeletePV && reply.PV.ResourceVersion != "11" {
			t.Errorf("call %d: answered with %+v", call, reply.PV)
		}
	}
}

// A patch is judged by the finalizers of the returned object.
func TestRestoredFinalizerIsAnError(t *testing.T) {
	const finalizer = intree.Finalizer
	for name, c := range map[string]struct {
		add, remove, after []string
		err                error
		restored, fails    bool
	}{
		"added":          {add: []string{finalizer}, after: []string{"another", finalizer}},
		"removed":        {remove: []string{finalizer}, after: []string{"another"}},
		"added, undone":  {add: []string{finalizer}, restored: true, fails: true},
		"removed, again": {remove: []string{finalizer}, after: []string{finalizer}, restored: true, fails: true},
		"refused":        {remove: []string{finalizer}, err: errors.New("refused"), fails: true},
	} {
		client := fake.NewClientset()
		client.PrependReactor("patch", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Finalizers: c.after}}, c.err
		})
		after, err := serverOf(client).patchFinalizers(t.Context(), intree.PV{Name: "pv", UID: "pv-uid"},
			c.add, c.remove)
		if (err != nil) != c.fails || errors.Is(err, kube.ErrUndone) != c.restored ||
			(after == nil) != c.fails {
			t.Errorf("%s: %v, %v", name, after, err)
		}
	}
}

// Attachments of any of a volume's PVs count, on all pages, and a failed list returns no count.
func TestCountAttachmentsReadsAllPages(t *testing.T) {
	page := func(next string, pvs ...string) *storagev1.VolumeAttachmentList {
		list := &storagev1.VolumeAttachmentList{ListMeta: metav1.ListMeta{Continue: next}}
		for _, pv := range pvs {
			a := storagev1.VolumeAttachment{}
			if pv != "" {
				a.Spec.Source.PersistentVolumeName = &pv
			}
			list.Items = append(list.Items, a)
		}
		return list
	}
	pages := []*storagev1.VolumeAttachmentList{page("more", "pv", "other", ""), page("", "twin", "pv")}
	var failure error
	client := fake.NewClientset()
	client.PrependReactor("list", "volumeattachments", func(k8stesting.Action) (bool, runtime.Object, error) {
		next := pages[0]
		pages = append(pages[1:], next)
		return true, next, failure
	})
	if n, err := serverOf(client).countAttachments(t.Context(), []string{"pv", "twin"}); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	failure = apierrors.NewInternalError(errors.New("broken"))
	if n, err := serverOf(client).countAttachments(t.Context(), []string{"pv"}); err == nil {
		t.Errorf("%d although nothing was answered", n)
	}
}

// The twin is created from the PV itself, regardless of later reads.
func TestTwinIsCreatedFromThePV(t *testing.T) {
	o, other := original(), original()
	other.Name, other.UID = "other", "other"
	client := fake.NewClientset(o, other)
	c := calls{cluster: serverOf(client)}
	for _, ask := range []intree.Ask{
		{Call: intree.GetPV, Action: intree.ReadPV, Name: o.Name},
		{Call: intree.GetPV, Action: intree.ReadSiblings, Name: other.Name},
		{Call: intree.CreatePV, Action: intree.CreateTwin},
	} {
		if reply, err := c.make(t.Context(), ask); err != nil || reply.Outcome != session.Succeeded {
			t.Fatalf("%+v: %+v, %v", ask, reply, err)
		}
	}
	if twin, err := serverOf(client).readPV(t.Context(), volume.TwinName(o.Name)); twin == nil || err != nil {
		t.Errorf("the twin: %v, %v", twin, err)
	}
}
