//go:build controlplane && unix

package watch

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/web/view"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m, nil)) }

// follow runs a Cluster with the rights of config until the test ends.
func follow(t *testing.T, config *rest.Config) *Cluster {
	t.Helper()
	c := must.Get(New(config, Config{}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	apiserver.Until(t.Context(), t, what, done)
}

func admin(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	client := must.Get(kubernetes.NewForConfig(apiserver.Shared.Admin()))(t)
	return client
}

func createPV(t *testing.T, name string) {
	t.Helper()
	pvs := admin(t).CoreV1().PersistentVolumes()
	o := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/keeps"}},
		Spec: v1.PersistentVolumeSpec{Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: "disk.csi.example.com", VolumeHandle: "vol-" + name}}}}
	must.Get(pvs.Create(t.Context(), o, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		ctx := context.Background()
		_, _ = pvs.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = pvs.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

func ids(ctx context.Context, c *Cluster) (all []string) {
	for _, row := range view.RowsOf(c.Facts(ctx)) {
		all = append(all, row.ID)
	}
	return all
}

func noRows(string) (view.Row, bool) { return view.Row{}, false }

func TestAPIServerRestart(t *testing.T) {
	createPV(t, "before")
	c := follow(t, apiserver.Shared.Admin())
	until(t, "all is read", func() bool { return c.State(t.Context()).Synced && c.State(t.Context()).Connected })
	until(t, "the PV has a row", func() bool { return slices.Contains(ids(t.Context(), c), "pv/before") })
	until(t, "the Leases of its driver are read", func() bool { return c.State(t.Context()).Synced })

	apiserver.Shared.APIServer.Kill()
	until(t, "the state says so", func() bool { return !c.State(t.Context()).Connected })
	state := c.State(t.Context())
	if state.Since == nil || state.Problem == "" || !state.Synced {
		t.Errorf("state is %+v", state)
	}
	// No other kind is unread: an unreachable API server does not refuse.
	if state.Partial || len(state.Unread) != 1 ||
		!strings.HasPrefix(state.Unread[0], "Leak reports: they are not read here") {
		t.Errorf("not read are %q", state.Unread)
	}
	if !slices.Contains(ids(t.Context(), c), "pv/before") {
		t.Error("the rows are gone with the API server")
	}

	must.OK(t, apiserver.Shared.APIServer.Restart(t.Context()))
	createPV(t, "after")
	until(t, "the state says that it is back", func() bool { return c.State(t.Context()).Connected })
	until(t, "a PV of later has a row", func() bool { return slices.Contains(ids(t.Context(), c), "pv/after") })
}

func TestForbiddenReadsAreReported(t *testing.T) {
	config := must.Get(apiserver.Shared.ConfigFor("viewer"))(t)
	roles := admin(t).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"list", "watch"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer"}}}
	t.Cleanup(func() {
		_ = roles.ClusterRoles().Delete(context.Background(), "viewer", metav1.DeleteOptions{})
		_ = roles.ClusterRoleBindings().Delete(context.Background(), "viewer", metav1.DeleteOptions{})
	})
	must.Get(roles.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}))(t)
	must.Get(roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	createPV(t, "readable")
	c := follow(t, config)
	until(t, "the PV has a row", func() bool { return slices.Contains(ids(t.Context(), c), "pv/readable") })
	until(t, "all was tried", func() bool { return c.State(t.Context()).Synced })
	state := c.State(t.Context())
	if !state.Connected || !state.Partial {
		t.Errorf("state is %+v", state)
	}
	for _, what := range []string{"Claims: ", "Pods: ", "Nodes: ", "VolumeAttachments: ", "CSIDrivers: ", "CSINodes: ",
		"StorageClasses: ", "The in-flight log (Leases): ", "Leases: "} {
		if !slices.ContainsFunc(state.Unread, func(text string) bool {
			return strings.HasPrefix(text, what) && strings.Contains(text, "forbidden") && strings.Contains(text, "not known")
		}) {
			t.Errorf("%q is not named: %q", what, state.Unread)
		}
	}
	// The right arrives later, and the page gets the nodes without a restart.
	role.Rules[0].Resources = append(role.Rules[0].Resources, "nodes")
	must.Get(roles.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	until(t, "nodes are read", func() bool {
		return !slices.ContainsFunc(c.State(t.Context()).Unread, func(text string) bool {
			return strings.HasPrefix(text, "Nodes: ")
		})
	})
}

func TestPageFollowsPV(t *testing.T) {
	createPV(t, "followed")
	c := follow(t, apiserver.Shared.Admin())
	until(t, "all is read", func() bool { return c.State(t.Context()).Synced })
	page := must.Get(c.Open(t.Context(), view.Ref{Kind: view.KindPV, Name: "followed"}))(t)
	defer page.Close()
	object, entries := page.Look(t.Context(), noRows)
	if !object.Exists || object.Explanation == nil || !strings.Contains(object.Explanation.Headline, "followed") {
		t.Fatalf("the PV is %+v", object)
	}
	if nodes := object.Graph.Nodes; len(nodes) != 2 || len(nodes[0].Finalizers) == 0 || len(entries) == 0 {
		t.Errorf("graph %+v, timeline %+v", object.Graph, entries)
	}
	var seen []string
	look := func(what, reason, text string) {
		t.Helper()
		until(t, what, func() bool {
			object, entries = page.Look(t.Context(), noRows)
			for _, entry := range entries {
				seen = append(seen, entry.Reason+" "+entry.Text)
			}
			return slices.ContainsFunc(seen, func(s string) bool {
				return strings.HasPrefix(s, reason) && strings.Contains(s, text)
			})
		})
	}
	pvs := admin(t).CoreV1().PersistentVolumes()
	pv := must.Get(pvs.Get(t.Context(), "followed", metav1.GetOptions{}))(t)
	event := &v1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "followed.", Namespace: metav1.NamespaceDefault},
		InvolvedObject: v1.ObjectReference{Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID}, Reason: "Noticed",
		Message: "a listener was notified", Type: v1.EventTypeNormal, LastTimestamp: metav1.Now(),
		Source: v1.EventSource{Component: "test"}}
	must.Get(admin(t).CoreV1().Events(metav1.NamespaceDefault).Create(t.Context(), event,
		metav1.CreateOptions{}))(t)
	look("the Event is in the timeline", "Noticed", "a listener was notified")
	must.OK(t, pvs.Delete(t.Context(), "followed", metav1.DeleteOptions{}))
	look("the deletion is in the timeline", "Terminating", "PV followed is terminating")
	must.Get(pvs.Patch(t.Context(), "followed", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}))(t)
	look("the end is in the timeline", "Removed", "PV followed is gone")
	if object.Exists || object.Explanation == nil {
		t.Errorf("what was seen last is not kept: %+v", object)
	}
}
