package provision

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestUnfitHandleForm: the driver's id of a migrated volume may differ from the handle of its PersistentVolume, so it
// is no proof that the PersistentVolume names another volume.
func TestUnfitHandleForm(t *testing.T) {
	t.Parallel()
	unfit := plainOrders{spoil: func() error { return errors.New("too small") }}
	for migrated, want := range map[bool]bool{false: true, true: false} {
		r := &run{Controller: &Controller{requests: unfit}, track: &track{}}
		reply, err := r.judge(inflight.Request{Migrated: migrated}, &csi.Volume{VolumeId: "projects/p/zones/z/disks/d"})
		if err == nil || !reply.Unfit || reply.InPVForm != want {
			t.Errorf("migrated %v: %+v, %v; want the form %v", migrated, reply, err, want)
		}
	}
}

// copiedLog is a log whose Lease was replaced by a copy.
type copiedLog struct{ Log }

func (copiedLog) Confirm(context.Context, string) error     { return inflight.ErrUnreadable }
func (copiedLog) Put(context.Context, inflight.Entry) error { return inflight.ErrUnreadable }

// TestUnreadableLogHasItsReason: a log that turns unreadable while its entry is open is no failed request.
func TestUnreadableLogHasItsReason(t *testing.T) {
	t.Parallel()
	r := &run{Controller: &Controller{log: copiedLog{}, cfg: Config{Clock: clock.RealClock{}}}, track: &track{}}
	r.track.entry.Requests = make([]inflight.Request, 1)
	for name, step := range map[string]func(context.Context) error{
		"ConfirmEntry": r.confirmEntry, "MarkDiscarding": r.markDiscarding, "NoteVersion": r.noteVersion,
	} {
		if reason := reasonOf(step(t.Context())); reason != provision.ReasonLogUnreadable {
			t.Errorf("%s: reason %s", name, reason)
		}
	}
}

func TestChangedIsCalledForCapacityChanges(t *testing.T) {
	for name, c := range map[string]struct {
		fails errclass.Class
		want  bool
	}{
		"a volume is made":         {errclass.Done, true},
		"there is no room":         {errclass.Exhausted, true},
		"a wrong parameter is not": {errclass.Refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.fails != errclass.Done {
				w.failing(false, class(c.fails))
			}
			var told, strange atomic.Int32
			p := w.start(Config{Changed: func(class string, at []map[string]string) {
				told.Add(1)
				if class != "fast" || len(at) > 0 {
					strange.Add(1)
				}
			}})
			w.makeClaim()
			w.wait("the driver has answered", func() bool { return w.count("close entry") > 0 })
			p.stop()
			if (told.Load() > 0) != c.want || strange.Load() > 0 {
				t.Errorf("told %d times, %d of them strange", told.Load(), strange.Load())
			}
		})
	}
}

// TestFinishOnlyNeedsNoRightsToProvision: a role that does not provision may list neither claims nor classes, but
// finishes the entries in flight, and reads a claim whose Secret is gone.
func TestFinishOnlyNeedsNoRightsToProvision(t *testing.T) {
	w := newWorld(t)
	var forbidden atomic.Bool
	w.client.PrependReactor("list", "storageclasses", func(k8stesting.Action) (bool, runtime.Object, error) {
		return forbidden.Load(), nil, errors.New("forbidden")
	})
	w.madeUnseen().stop()
	w.failing(false, nil)
	forbidden.Store(true)
	p := w.start(Config{FinishOnly: true})
	w.wait("it has its PV", w.provisioned)
	var rights []string
	for _, right := range p.provisioner.Permissions() {
		rights = append(rights, right.Verb+" "+right.Resource)
	}
	want := []string{"list persistentvolumes", "watch persistentvolumes", "get persistentvolumes",
		"create persistentvolumes", "create events", "patch events", "get persistentvolumeclaims"}
	if !slices.Equal(rights, want) {
		t.Errorf("it asks for %q, want %q", rights, want)
	}
}

// TestPermissionsOfLog: the list is complete for a program that writes its RBAC from it.
func TestPermissionsOfLog(t *testing.T) {
	client := fake.NewClientset()
	log := must.Get(inflight.New(inflight.Config{Leases: client.CoordinationV1(), Namespace: "ns", Name: "log",
		Driver: driverName, CreateMissing: true}))(t)
	for _, finishOnly := range []bool{false, true} {
		p := must.Get(NewForClient(client, driverName, &process{}, plainOrders{},
			Config{Log: log, FinishOnly: finishOnly}))(t)
		var verbs []string
		for _, right := range p.Permissions() {
			if right.Resource == "leases" && right.Namespace == "ns" {
				verbs = append(verbs, right.Verb)
			}
		}
		if want := []string{"get", "update", "create"}; !slices.Equal(verbs, want) {
			t.Errorf("finish only %t: Leases: %q, want %q", finishOnly, verbs, want)
		}
	}
}

// TestPatchIsNotMissingBesideUpdate uses the permissions of the stock external-provisioner, and fewer.
func TestPatchIsNotMissingBesideUpdate(t *testing.T) {
	for name, c := range map[string]struct{ denied, want []string }{
		"all is granted":    {nil, nil},
		"no patch":          {[]string{"patch"}, nil},
		"no update":         {[]string{"update"}, []string{"update"}},
		"neither":           {[]string{"patch", "update"}, []string{"patch", "update"}},
		"no patch, no list": {[]string{"patch", "list"}, []string{"list"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.client.PrependReactor("create", "selfsubjectaccessreviews", func(a k8stesting.Action) (bool, runtime.Object,
				error) {
				create, _ := a.(k8stesting.CreateAction)
				review, ok := create.GetObject().(*authorizationv1.SelfSubjectAccessReview)
				if !ok {
					t.Errorf("a review of %T", create.GetObject())
					return false, nil, nil
				}
				asked := review.Spec.ResourceAttributes
				review.Status.Allowed = asked.Resource != "persistentvolumeclaims" || !slices.Contains(c.denied, asked.Verb)
				return true, review, nil
			})
			missing, err := w.make(Config{}).provisioner.MissingPermissions(t.Context())
			w.must(err)
			var verbs []string
			for _, p := range missing {
				verbs = append(verbs, p.Verb)
			}
			slices.Sort(verbs)
			if !slices.Equal(verbs, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("missing %q, want %q", verbs, c.want)
			}
		})
	}
}
