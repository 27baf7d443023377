//go:build unix

package singlenode

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// stored returns the history of the namespace with each stored version of its pods and claims, after its watches have
// ended. A restarted API server shows a watch no version from before its start, and the watches of pods and claims can
// miss different ones.
func (env *environment) stored(seen []change) []change {
	env.T.Helper()
	var others []change
	var first uint64
	for _, c := range seen {
		switch c.object.(type) {
		case *v1.Namespace:
			if first == 0 {
				first = c.number
			}
		case *v1.Pod, *v1.PersistentVolumeClaim:
			continue
		}
		others = append(others, c)
	}
	list, err := env.Client.CoreV1().Pods(env.Namespace).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	last, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	env.Must(err)
	states := make([]state, last-first+1)
	var reading errgroup.Group
	reading.SetLimit(fixture.Concurrency)
	for i := range states {
		reading.Go(func() (err error) {
			states[i], err = env.stateAt(first + uint64(i))
			return err
		})
	}
	env.Must(reading.Wait())
	return inOrder(append(others, changesOf(first, states)...))
}

// state has the pods and claims of the namespace at one time.
type state map[types.UID]metav1.Object

// stateAt reads the stored state at a resourceVersion, which etcd keeps for some minutes.
func (env *environment) stateAt(number uint64) (state, error) {
	at := metav1.ListOptions{ResourceVersion: strconv.FormatUint(number, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	pods, err := env.Client.CoreV1().Pods(env.Namespace).List(env.Ctx, at)
	if err != nil {
		return nil, err
	}
	claims, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).List(env.Ctx, at)
	if err != nil {
		return nil, err
	}
	all := state{}
	for _, list := range []runtime.Object{pods, claims} {
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			o, err := meta.Accessor(item)
			if err == nil {
				all[o.GetUID()] = o
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// changesOf returns the differences between consecutive states. first is the number of the first state.
func changesOf(first uint64, states []state) (changes []change) {
	before := state{}
	for i, now := range states {
		number := first + uint64(i)
		for _, uid := range slices.Sorted(maps.Keys(before)) {
			if now[uid] == nil {
				changes = append(changes, change{number: number, object: before[uid], deleted: true})
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(now)) {
			if was := before[uid]; was == nil || numberOf(was) != numberOf(now[uid]) {
				changes = append(changes, change{number: number, object: now[uid]})
			}
		}
		before = now
	}
	return changes
}

// TestStoredChanges creates, changes and deletes objects.
func TestStoredChanges(t *testing.T) {
	t.Parallel()
	at := func(uid types.UID, number string) *v1.Pod {
		pod := podVersion(uid)
		pod.ResourceVersion = number
		return pod
	}
	var got []string
	for _, c := range changesOf(7, []state{
		{}, {"a": at("a", "8")}, {"a": at("a", "8"), "b": at("b", "9")}, {"a": at("a", "10"), "b": at("b", "9")},
		{"a": at("a", "10"), "b": at("b", "9")}, {"b": at("b", "9")},
	}) {
		text := strconv.FormatUint(c.number, 10) + " " + c.object.GetName() + " " + c.object.GetResourceVersion()
		if c.deleted {
			text += " deleted"
		}
		got = append(got, text)
	}
	if want := []string{"8 a 8", "9 b 9", "10 a 10", "12 a 10 deleted"}; !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
}
