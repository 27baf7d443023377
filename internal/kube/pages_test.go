package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// Each page has its own timeout.
func TestEachPage(t *testing.T) {
	next := map[string]string{"": "a", "a": "b", "b": ""}
	var asked []string
	read := func(ctx context.Context, o metav1.ListOptions) (string, error) {
		asked = append(asked, o.Continue)
		if ends, limited := ctx.Deadline(); !limited || time.Until(ends) > pageTimeout {
			t.Errorf("page %q may take until %v", o.Continue, ends)
		}
		if o.Limit != 7 {
			t.Errorf("page %q is asked for with %+v", o.Continue, o)
		}
		return next[o.Continue], nil
	}
	if err := EachPage(t.Context(), metav1.ListOptions{Limit: 7}, read); err != nil ||
		!slices.Equal(asked, []string{"", "a", "b"}) {
		t.Errorf("asked for %q, %v", asked, err)
	}
}

func TestEachPageEndsWithFirstError(t *testing.T) {
	broken := errors.New("expired")
	calls := 0
	err := EachPage(t.Context(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (string, error) {
		calls++
		if calls == 2 {
			return "", broken
		}
		return "more", nil
	})
	if !errors.Is(err, broken) || calls != 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestEach(t *testing.T) {
	broken := errors.New("expired")
	var fails error
	list := func(_ context.Context, o metav1.ListOptions) (*v1.PodList, error) {
		if o.Limit != userPage {
			t.Errorf("asked for a page with %+v", o)
		}
		if o.Continue != "" {
			return &v1.PodList{Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "b"}}}}, fails
		}
		return &v1.PodList{ListMeta: metav1.ListMeta{Continue: "more"},
			Items: []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}, nil
	}
	var names []string
	visit := func(o *v1.Pod) { names = append(names, o.Name) }
	if err := Each(t.Context(), "pods", metav1.ListOptions{}, list, visit); err != nil ||
		!slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("visited %q, %v", names, err)
	}
	fails = broken
	if err := Each(t.Context(), "pods", metav1.ListOptions{}, list, visit); !errors.Is(err, broken) ||
		err.Error() != "list pods: expired" {
		t.Errorf("without the second page: %v", err)
	}
	keep := func(o *v1.Pod) string { return o.Name }
	if all, err := ListAll(t.Context(), list, metav1.ListOptions{}, keep); !errors.Is(err, broken) || all != nil {
		t.Errorf("without the second page: %q, %v", all, err)
	}
}

// Users can make objects of some kinds as large as etcd stores them.
func TestPagesOfObjectsThatUsersCreateAreSmall(t *testing.T) {
	for example, want := range map[runtime.Object]int64{
		&v1.Pod{}: userPage, &v1.PersistentVolumeClaim{}: userPage, &appsv1.StatefulSet{}: userPage,
		&coordinationv1.Lease{}: userPage, &v1.PersistentVolume{}: pageSize, &v1.Node{}: pageSize,
	} {
		from := &source{example: example}
		if got := newReflector(from, store[any]{}).WatchListPageSize; got != want {
			t.Errorf("a reflector lists %d %T a page, want %d", got, example, want)
		}
		list := func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.Limit != want || o.ResourceVersion != "" || o.ResourceVersionMatch != "" {
				t.Errorf("a cache of %T lists with %+v", example, o)
			}
			return &metav1.List{}, nil
		}
		record := func(runtime.Object, bool) (string, bool, error) { return "", false, nil }
		c := newCache(Selection{}, calls{list: list}, "", example, record, OnChange[string](func(string, string) {}))
		must.OK(t, c.Load(t.Context()))
	}
}
