//go:build controlplane

package inflight

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// TestRealAPIServer uses the log with the rights of the stock external-provisioner's Role on a real API server, and
// checks the assumptions of the package's own store.
func TestRealAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cp := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{NoControllerManager: true})
	admin, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := cp.CreateNamespace(ctx, "inflight")
	if err != nil {
		t.Fatal(err)
	}
	w := &realWorld{t: t, ctx: ctx, admin: admin, leases: admin.CoordinationV1().Leases(namespace), namespace: namespace}
	if w.user, err = cp.ConfigFor("csi-provisioner"); err != nil {
		t.Fatal(err)
	}
	w.withoutRights()
	w.grant()
	w.lifetime()
	w.deleted()
	w.copied()
	w.full()
	w.chunks()
	w.updateOfNothing()
}

type realWorld struct {
	t         *testing.T
	ctx       context.Context
	admin     kubernetes.Interface
	leases    coordinationv1client.LeaseInterface
	namespace string
	user      *rest.Config
}

func (w *realWorld) settings(by string) Config {
	client, err := coordinationv1client.NewForConfig(w.user)
	if err != nil {
		w.t.Fatal(err)
	}
	return Config{Leases: client, Namespace: w.namespace, Name: logName, Driver: driver, Identity: by, CreateMissing: true}
}

// grant creates the rule on Leases of deploy/kubernetes/rbac.yaml of kubernetes-csi/external-provisioner.
func (w *realWorld) grant() {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "external-provisioner-cfg"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "watch", "list", "delete", "update", "create"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "csi-provisioner"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	if _, err := w.admin.RbacV1().Roles(w.namespace).Create(w.ctx, role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.admin.RbacV1().RoleBindings(w.namespace).Create(w.ctx, binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	reader, err := kubernetes.NewForConfig(w.user)
	if err != nil {
		w.t.Fatal(err)
	}
	for w.ctx.Err() == nil { // the authorizer lags a little
		if _, err = reader.CoordinationV1().Leases(w.namespace).List(w.ctx, metav1.ListOptions{}); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatal(err)
}

func (w *realWorld) withoutRights() {
	p := prepare(w.t, w.settings("nobody"))
	err := p.TakeOver(w.ctx)
	if wantError(w.t, err, ErrForbidden); !apierrors.IsForbidden(err) {
		w.t.Error(err)
	}
}

func (w *realWorld) list() ([]Entry, []Problem) {
	list, err := w.leases.List(w.ctx, metav1.ListOptions{LabelSelector: LabelLog + "=true"})
	if err != nil {
		w.t.Fatal(err)
	}
	return decoded(list.Items)
}

// lifetime covers take-over, put, replace, remove, restart and supersede.
func (w *realWorld) lifetime() {
	t := w.t
	old := start(t, w.settings("old"))
	full := fullEntry()
	if err := old.put(full); err != nil {
		t.Fatal(err)
	}
	v := volumes(3, 3)
	old.mustPut(v[0], strings.Repeat("long.", 40)+"name")
	old.Remove(v[0])
	w.until("the removal is confirmed", func() bool { return old.state(v[0]) == Absent })
	if err := old.confirm(full.Volume); err != nil {
		t.Error(err)
	}
	next := start(t, w.settings("new"))
	if e, problems := w.list(); len(e) != 2 || len(problems) > 0 || len(next.Entries()) != 2 {
		t.Errorf("stored %v and %v, read %v", names(e), problems, names(next.Entries()))
	}
	if e, state := next.Get(full.Volume); state != Open || e.Epoch != 1 || len(e.Requests) != 2 {
		t.Errorf("%v %+v", state, e)
	}
	wantError(t, old.put(entry(v[1])), ErrSuperseded)
	<-old.ended
	wantError(t, old.err, ErrSuperseded)
	next.mustPut(v[1])
	next.stop()
}

// deleted checks that a deleted Lease is written anew with another UID, and likewise a removed entry, but not a settled
// one.
func (w *realWorld) deleted() {
	t, v := w.t, volumes(3, 2)
	p := start(t, w.settings("deleted"))
	defer p.stop()
	if err := w.leases.Delete(w.ctx, shardName(3), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.mustPut(v[0])
	p.mustConfirm(v[1])
	edit := func(change func(*coordinationv1.Lease)) {
		lease := w.get(shardName(3))
		change(lease)
		if _, err := w.leases.Update(w.ctx, lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	edit(settle(v[1]))
	wantError(t, p.confirm(v[1]), ErrSettled)
	w.until("it is removed", func() bool { return p.state(v[1]) == Absent })
	edit(unstore(v[0]))
	p.mustConfirm(v[0])
	if got := w.get(shardName(3)).Annotations; got[annotationKey(v[0])] == "" || len(got) != 2 {
		t.Errorf("the Lease has %v", got)
	}
}

// copied checks that a Lease created from another one's annotations gets another UID.
func (w *realWorld) copied() {
	t := w.t
	lease := w.get(shardName(3))
	if err := w.leases.Delete(w.ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	copied := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: lease.Name, UID: lease.UID, Labels: lease.Labels, Annotations: lease.Annotations,
	}}
	if _, err := w.leases.Create(w.ctx, copied, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := start(t, w.settings("copied"))
	p.wantProblem("", ErrCopy)
	wantError(t, p.put(entry(volumes(3, 1)[0])), ErrUnreadable)
	p.stop()
	if err := w.leases.Delete(w.ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// full checks that the API server accepts writes within ErrFull's limit, and refuses larger ones as Invalid.
func (w *realWorld) full() {
	t, v := w.t, volumes(3, 60)
	p := start(t, w.settings("full"))
	defer p.stop()
	n := 0
	for ; n < len(v); n++ {
		e := entry(v[n])
		e.Claim.Namespace, e.Requests[0].PV.Spec.StorageClassName = v[n], v[n]
		e.Requests[0].Create.Parameters = map[string]string{"x": noise(v[n], 6<<10)}
		if err := p.put(e); err != nil {
			wantError(t, err, ErrFull)
			break
		}
	}
	lease := w.get(shardName(3))
	if got := size(lease.Annotations); n == len(v) || got > room-reserve || got < room-reserve-8<<10 {
		t.Errorf("%d entries of 6 KiB fit, %d bytes", n, got)
	}
	free := validation.TotalAnnotationSizeLimitB - size(lease.Annotations) - len("example.com/note")
	lease.Annotations["example.com/note"] = strings.Repeat("x", free+1)
	if _, err := w.leases.Update(w.ctx, lease, metav1.UpdateOptions{}); judge(err) != outcomeRefused ||
		!apierrors.IsInvalid(err) {
		t.Errorf("one byte beyond the limit: %v", err)
	}
	lease.Annotations["example.com/note"] = strings.Repeat("x", free)
	if _, err := w.leases.Update(w.ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	p.Remove(v[0])
	wantError(t, p.put(entry(v[n])), ErrFull)
	w.until("a removal is written beside an annotation that fills the shard",
		func() bool { return p.state(v[0]) == Absent })
}

// chunks checks that chunks have a Lease of their own, which is recreated after a deletion and read by the next
// process.
func (w *realWorld) chunks() {
	t, places := w.t, nodes(5000)
	p := start(t, w.settings("chunks"))
	p.mustPutEntry(onNodes("pvc-many-1", places, 7))
	stored, epoch := w.get(topologyName), p.own.Epoch
	if n := len((view{lease: stored}).with(chunkPrefix)); n < 5 || look(stored, driver).meta.Epoch != epoch {
		t.Errorf("%d chunks, %s", n, stored.Annotations[annMeta])
	}
	if n := size(w.get(shardName(shardOf("pvc-many-1", Shards))).Annotations); n > size(stored.Annotations)/2 {
		t.Errorf("the shard has %d bytes", n)
	}
	if err := w.leases.Delete(w.ctx, topologyName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.mustPutEntry(onNodes("pvc-many-2", places[:4000], 7))
	next := start(t, w.settings("after chunks"))
	defer next.stop()
	for _, volume := range []string{"pvc-many-1", "pvc-many-2"} {
		next.wantState(volume, Open)
	}
	if _, problems := w.list(); len(problems) > 0 {
		t.Error(problems)
	}
	wantError(t, p.put(onNodes("pvc-many-3", places[:3000], 7)), ErrSuperseded)
	if got := look(w.get(topologyName), driver).meta; got.Epoch != epoch+1 {
		t.Errorf("its epoch is %d", got.Epoch)
	}
}

// updateOfNothing checks that an update with UID and resourceVersion does not create a deleted Lease, although the API
// server allows updates to create Leases.
func (w *realWorld) updateOfNothing() {
	t := w.t
	lease := w.get(shardName(5))
	if err := w.leases.Delete(w.ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.leases.Update(w.ctx, lease, metav1.UpdateOptions{})
	if judge(err) != outcomeConflict {
		t.Errorf("an update of a Lease that is gone: %v, want Conflict", err)
	}
	if _, err := w.leases.Get(w.ctx, lease.Name, metav1.GetOptions{}); !absent(err, lease.Name) {
		t.Errorf("after it: %v, want NotFound", err)
	}
	_, err = w.admin.CoordinationV1().Leases("missing").Create(w.ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease.Name}}, metav1.CreateOptions{})
	if err == nil || absent(err, lease.Name) {
		t.Errorf("in a namespace that is missing: %v", err)
	}
}

func (w *realWorld) get(name string) *coordinationv1.Lease {
	lease, err := w.leases.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return lease
}

func (w *realWorld) until(what string, is func() bool) {
	w.t.Helper()
	for !is() {
		if w.ctx.Err() != nil {
			w.t.Fatal(errors.New(what + ": not in time"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
