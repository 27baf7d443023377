package objects

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestFailedWaitReportsLastState(t *testing.T) {
	type look struct {
		state string // of the object; it is gone where that is empty
		err   error
	}
	for name, c := range map[string]struct {
		looks []look
		want  string
	}{
		"an object that stays as it was": {looks: []look{{state: "Pending"}, {state: "Pending"}},
			want: "last seen: Pending"},
		"an object that goes":  {looks: []look{{state: "Pending"}, {}}, want: "last seen: gone"},
		"an unreadable object": {looks: []look{{err: errors.New("refused")}}, want: "last seen: refused"},
		"an object that becomes unreadable": {looks: []look{{state: "Pending"}, {err: errors.New("refused")}},
			want: "last seen: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			get := func(context.Context) (*string, error) {
				if len(c.looks) == 0 {
					cancel()
					return nil, ctx.Err() // as a client answers then; it says nothing of the object
				}
				now := c.looks[0]
				c.looks = c.looks[1:]
				if now.err != nil || now.state == "" {
					return nil, now.err
				}
				return &now.state, nil
			}
			describe := func(state *string) string {
				if state == nil {
					return "gone"
				}
				return *state
			}
			bound := func(state *string) bool { return state != nil && *state == "Bound" }
			err := wait(ctx, "claim to be bound", source[string]{get: get}, bound, describe)
			if !errors.Is(err, context.Canceled) || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestWaitEndsWithCondition(t *testing.T) {
	looks := 0
	get := func(context.Context) (*int, error) {
		if looks++; looks == 1 {
			return nil, errors.New("no API server yet")
		}
		return &looks, nil
	}
	err := wait(t.Context(), "the third look", source[int]{get: get}, func(n *int) bool { return *n == 3 },
		func(*int) string { return "" })
	if err != nil || looks != 3 {
		t.Errorf("got %v after %d looks", err, looks)
	}
}

// In TestWaitSeesEachState a PV has the wanted state between two other states, and is then replaced by another PV of
// its name.
func TestWaitSeesEachState(t *testing.T) {
	state := func(uid types.UID, phase v1.PersistentVolumePhase) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: uid},
			Status: v1.PersistentVolumeStatus{Phase: phase}}
	}
	for name, want := range map[string]func(*v1.PersistentVolume) bool{
		"for a moment": func(pv *v1.PersistentVolume) bool { return pv != nil && pv.Status.Phase == v1.VolumeReleased },
		"replaced":     func(pv *v1.PersistentVolume) bool { return pv == nil },
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(state("first", v1.VolumeBound))
			events := watch.NewFakeWithChanSize(4, false)
			client.PrependWatchReactor("persistentvolumes", clienttesting.DefaultWatchReactor(events, nil))
			events.Modify(state("first", v1.VolumeBound))
			events.Modify(state("first", v1.VolumeReleased))
			events.Modify(state("first", v1.VolumeFailed))
			events.Modify(state("second", v1.VolumeBound))
			vol := &Volume{maker: Maker{Client: client}, Name: "pv", PVUID: "first"}
			if err := vol.WaitPV(t.Context(), name, want); err != nil {
				t.Error(err)
			}
			gets := 0
			for _, a := range client.Actions() {
				if a.GetVerb() == "get" {
					gets++
				}
			}
			if gets != 2 {
				t.Errorf("%d GETs, want one before the watch and one within it", gets)
			}
		})
	}
}

// TestWaitSurvivesEndOfWatch ends each watch at once, as a restarting API server does.
func TestWaitSurvivesEndOfWatch(t *testing.T) {
	client := fake.NewClientset()
	watches := 0
	client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		if watches++; watches == 3 {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid"}}
			if err := client.Tracker().Add(pod); err != nil {
				t.Error(err)
			}
		}
		ended := watch.NewFakeWithChanSize(1, false)
		ended.Error(&metav1.Status{Reason: metav1.StatusReasonExpired})
		ended.Stop()
		return true, ended, nil
	})
	pod := &Pod{maker: Maker{Client: client, Namespace: "ns"}, Name: "pod", UID: "uid"}
	if err := pod.Wait(t.Context(), "there", func(now *v1.Pod) bool { return now != nil }); err != nil || watches != 3 {
		t.Errorf("%v after %d watches", err, watches)
	}
}
