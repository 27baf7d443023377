package kube

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// namesOf receives the names of the objects that a Cache shows.
type namesOf chan string

func (n namesOf) Added(name string)           { n <- "+" + name }
func (n namesOf) Updated(_, name string)      { n <- "=" + name }
func (n namesOf) Deleted(name string, _ bool) { n <- "-" + name }

func TestTypedCacheFollowsFakeClientset(t *testing.T) {
	pv := func(name string) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	client, seen := fake.NewClientset(pv("listed")), make(namesOf, 10)
	cache := NewTypedCache(client.CoreV1().PersistentVolumes(), "persistentvolumes", &v1.PersistentVolume{},
		RecordAll(func(pv *v1.PersistentVolume) string { return pv.Name }), seen)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); cache.Run(ctx) }()
	got := []string{<-seen}
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, pv("created"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got = append(got, <-seen)
	must.OK(t, client.CoreV1().PersistentVolumes().Delete(ctx, "created", metav1.DeleteOptions{}))
	got = append(got, <-seen)
	if want := []string{"+listed", "+created", "-created"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	cancel()
	<-ended
}
