package pvc

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// reading is a Protector of the claims and pods of a client.
func reading(client *fake.Clientset, ended TerminatedPods) kind {
	return kind{&Protector{cfg: Config{TerminatedPods: ended}, cluster: apiServer{client.CoreV1()}}}
}

func stored(namespace, name string, finalizers ...string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID("uid-of-" + name), Finalizers: finalizers}}
}

// userOf is a pod on a node that names a claim.
func userOf(claim *v1.PersistentVolumeClaim, phase v1.PodPhase) *v1.Pod {
	pod := apiPod()
	pod.Namespace, pod.Name, pod.UID, pod.Status.Phase = claim.Namespace, "user-of-"+claim.Name, "", phase
	pod.Spec.Volumes = []v1.Volume{{Name: "v",
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
	return pod
}

// The use of each claim is read in all namespaces, before and during its deletion.
func TestListOfClaims(t *testing.T) {
	idle, used, ended, bare := stored("a", "idle", Finalizer), stored("b", "used", Finalizer, "other"),
		stored("b", "ended", Finalizer), stored("a", "bare")
	going := stored("c", "going", Finalizer)
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	client := fake.NewClientset(idle, used, ended, bare, going,
		userOf(used, v1.PodRunning), userOf(ended, v1.PodFailed), userOf(going, v1.PodRunning))
	drop, inUse := inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused), inuse.Later(inuse.ReasonInUse)
	heldEnded := inuse.Decision{Reason: inuse.ReasonInUseEnded, Timed: true, Detail: "Pod user-of-ended."}
	for sentence, c := range map[string]struct {
		setting TerminatedPods
		ended   inuse.Decision
		// need is the same decision while Kubernetes' own controller may hold the claim.
		need inuse.Decision
	}{
		"pods that have ended do not hold": {ReleaseTerminated, drop, inuse.Later(inuse.ReasonLeftToBuiltIn)},
		"pods that have ended hold":        {HoldTerminated, heldEnded, heldEnded},
	} {
		t.Run(sentence, func(t *testing.T) {
			all := must.Get(reading(client, c.setting).List(t.Context()))(t)
			got := map[string]inuse.Held{}
			for _, h := range all {
				got[h.Key()] = h
			}
			want := map[string]inuse.Decision{"a/idle": drop, "a/bare": drop, "b/ended": c.ended}
			for _, name := range []string{"used", "going"} {
				d := inUse
				d.Detail = "Pod user-of-" + name + "."
				want[map[string]string{"used": "b/", "going": "c/"}[name]+name] = d
			}
			if len(got) != len(want) {
				t.Errorf("read %d claims, want %d", len(got), len(want))
			}
			for key, d := range want {
				h, need := got[key], d
				if key == "b/ended" {
					need = c.need
				}
				if h.IfDeleted != d || h.Need != need || h.Protected != (key != "a/bare") || h.ByOthers != (key == "b/used") ||
					h.Terminating != (key == "c/going") {
					t.Errorf("%s: %+v, want %+v", key, h, d)
				}
			}
		})
	}
}

// A pod that begins to use a claim between the two lists must be seen.
func TestPodsAreListedAfterClaims(t *testing.T) {
	claim := stored("a", "data", Finalizer)
	client := fake.NewClientset(claim)
	var read []string
	client.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		read = append(read, action.GetResource().Resource)
		if read[len(read)-1] == "persistentvolumeclaims" {
			if err := client.Tracker().Add(userOf(claim, v1.PodRunning)); err != nil {
				t.Error(err)
			}
		}
		return false, nil, nil
	})
	all, err := reading(client, ReleaseTerminated).List(t.Context())
	if err != nil || len(all) != 1 || all[0].IfDeleted.Action != inuse.Wait {
		t.Errorf("%+v, %v", all, err)
	}
	if !slices.Equal(read, []string{"persistentvolumeclaims", "pods"}) {
		t.Errorf("read %q", read)
	}
}

// A missing pod would count as no use.
func TestListFailsAsAWhole(t *testing.T) {
	broken := errors.New("expired")
	for _, fails := range []string{"persistentvolumeclaims", "pods"} {
		client := fake.NewClientset(stored("a", "data", Finalizer))
		client.PrependReactor("list", fails, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, broken
		})
		all, err := reading(client, ReleaseTerminated).List(context.WithoutCancel(t.Context()))
		if !errors.Is(err, broken) || all != nil {
			t.Errorf("%s: %+v, %v", fails, all, err)
		}
	}
}
