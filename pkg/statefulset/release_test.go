package statefulset

import (
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// released returns a world with objects of each kind to release.
func released(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, Config{Settings: controllers.Settings{Workers: 2}})
	w.set("db", replicas(1), func(o *appsv1.StatefulSet) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.WokenAnnotation, "x")
	})
	w.set("web")
	own := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set-db"}
	foreign := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}
	kcm := own
	kcm.Controller = ptr.To(true)
	w.claim("data-db-0", marked("db/set-db/0/Delete"), owned(own, foreign))
	w.claim("data-db-1", marked("db/set-db/1/Delete"))
	w.claim("data-db-2", marked("db/set-db/2/Delete"), held)
	w.claim("data-db-3", marked("db/set-db/3/Delete"), func(o *v1.PersistentVolumeClaim) {
		o.DeletionTimestamp = ptr.To(metav1.Now())
	})
	w.claim("data-gone-0", marked("x"))
	w.claim("data-web-0", owned(kcm))
	return w
}

func TestReleaseRemovesAnnotationsAndKeepsClaims(t *testing.T) {
	w := released(t)
	out, err := w.Release(t.Context())
	if err != nil || out.Claims != 5 || out.Sets != 1 || len(out.Left) != 0 ||
		!slices.Equal(out.Condemned, []string{"ns/data-db-1"}) {
		t.Errorf("%+v, %v", out, err)
	}
	for key, o := range w.live {
		if _, left := o.Annotations[statefulset.MarkAnnotation]; left {
			t.Errorf("%s is marked", key)
		}
	}
	if owners := w.live["ns/data-db-0"].OwnerReferences; len(owners) != 1 || owners[0].Kind != "ConfigMap" {
		t.Errorf("owners %v", owners)
	}
	if owners := w.live["ns/data-web-0"].OwnerReferences; len(owners) != 1 {
		t.Errorf("an owner of kube-controller-manager is gone: %v", owners)
	}
	if _, left := w.sets["ns/db"].Annotations[statefulset.WokenAnnotation]; left || len(w.live) != 6 {
		t.Errorf("left: %v, %v", w.sets["ns/db"].Annotations, w.live)
	}
	if w.sets["ns/db"].Annotations == nil {
		t.Error("the annotations were replaced")
	}
	w.calls = nil
	if out, err := w.Release(t.Context()); err != nil || out.Claims+out.Sets != 0 {
		t.Errorf("again: %+v, %v", out, err)
	}
	w.expectCalls("list sets", "list claims")
}

func TestReleaseNamesRemainingObjects(t *testing.T) {
	refused := errors.New("refused")
	for sentence, c := range map[string]struct {
		call string
		err  error
		want []string
		// lists is the expected number of lists of claims.
		lists int
	}{
		"a claim is refused":  {"patch claim data-db-0", refused, []string{"claim ns/data-db-0"}, 1},
		"a set is refused":    {"patch set db", refused, []string{"StatefulSet ns/db"}, 1},
		"a claim changes":     {"patch claim data-db-0", kube.ErrChanged, []string{"claim ns/data-db-0"}, releaseTries},
		"a claim is gone":     {"patch claim data-db-0", kube.ErrGone, nil, 1},
		"a set is gone":       {"patch set db", kube.ErrGone, nil, 1},
		"claims are not read": {"list claims", refused, nil, 1},
		"sets are not read":   {"list sets", refused, nil, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := released(t)
			w.fail[c.call] = c.err
			out, err := w.Release(t.Context())
			if errors.Is(c.err, refused) != errors.Is(err, refused) {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(out.Left, c.want) {
				t.Errorf("left %q, want %q", out.Left, c.want)
			}
			lists := 0
			for _, call := range w.calls {
				if call == "list claims" {
					lists++
				}
			}
			if lists != c.lists {
				t.Errorf("%d lists, want %d", lists, c.lists)
			}
		})
	}
}
