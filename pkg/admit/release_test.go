package admit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

func TestWhichFinalizersGoWithADriver(t *testing.T) {
	const other = "kubernetes.io/pv-protection"
	of := func(driver string, finalizers ...string) *v1.PersistentVolume {
		pv := &v1.PersistentVolume{}
		pv.Finalizers = finalizers
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver}
		return pv
	}
	migrated := of("", reclaim.Finalizer)
	migrated.Spec.CSI, migrated.Annotations = nil, map[string]string{annMigratedTo: "disk", annProvisionedBy: "kubernetes.io/disk"}
	for name, c := range map[string]struct {
		pv   *v1.PersistentVolume
		want []string
	}{
		"those of either role, and nobody else's": {of("disk", other, reclaim.Finalizer, reclaim.CompanionFinalizer), []string{reclaim.Finalizer, reclaim.CompanionFinalizer}},
		"none where there is none":                {of("disk", other), nil},
		"none of a driver that is not released":   {of("file", reclaim.Finalizer), nil},
		"those of a volume that was migrated":     {migrated, []string{reclaim.Finalizer}},
		"none of a PV of no driver":               {&v1.PersistentVolume{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := releasable(c.pv, []string{"disk"}); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestWhichDriversAreReleased(t *testing.T) {
	listed := Parameters("ns", map[string]string{"b": finalizer, "a": finalizer})
	cutOff := Parameters("ns", nil)
	cutOff.Annotations = map[string]string{releasedAnnotation: "a,b"}
	for name, c := range map[string]struct {
		of    *v1.ConfigMap
		asked []string
		want  []string
	}{
		"one by its name":                            {listed, []string{"a"}, []string{"a"}},
		"one that is not listed":                     {listed, []string{"c"}, []string{"c"}},
		"all that are listed":                        {listed, []string{AllDrivers}, []string{"a", "b"}},
		"all that were when a release was cut off":   {cutOff, []string{AllDrivers}, []string{"a", "b"}},
		"all, and one more":                          {listed, []string{AllDrivers, "c", "a"}, []string{"a", "b", "c"}},
		"without the ConfigMap those that are named": {&v1.ConfigMap{}, []string{AllDrivers, "c"}, []string{"c"}},
		"none": {listed, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unlisted(c.of, c.asked); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// instant is a clock on which waiting takes no time.
type instant struct{ *testclock.FakeClock }

func (c instant) After(d time.Duration) <-chan time.Time {
	after := c.FakeClock.After(d)
	c.Step(d)
	return after
}

var _ clock.Clock = instant{}

// driversPV is a PV of a driver, with its finalizer.
func driversPV(name, driver string, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	pv := bound()
	pv.Name, pv.UID, pv.ResourceVersion = name, types.UID("uid-of-"+name), "7"
	pv.Annotations[annProvisionedBy], pv.Spec.CSI.Driver = driver, driver
	pv.Finalizers = append(pv.Finalizers, finalizer)
	if change != nil {
		change(pv)
	}
	return pv
}

// releasing returns a cluster with these objects, and what releases drivers in it.
func releasing(objects ...runtime.Object) (*fake.Clientset, *releaser) {
	client := fake.NewClientset(objects...)
	return client, newReleaser(kube.Clients{Core: client.CoreV1()}, "ns", instant{testclock.NewFakeClock(time.Unix(0, 0))})
}

func finalizersOf(t *testing.T, client *fake.Clientset, name string) []string {
	t.Helper()
	pv, err := client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return pv.Finalizers
}

func TestDriversAreReleased(t *testing.T) {
	const other = "other.csi.example.com"
	client, r := releasing(
		Parameters("ns", map[string]string{driver: finalizer, other: finalizer}),
		driversPV("bound", driver, nil),
		driversPV("kept", driver, func(pv *v1.PersistentVolume) {
			pv.DeletionTimestamp, pv.Spec.PersistentVolumeReclaimPolicy = deleted, v1.PersistentVolumeReclaimRetain
		}),
		driversPV("unclaimed", driver, func(pv *v1.PersistentVolume) { pv.DeletionTimestamp, pv.Spec.ClaimRef = deleted, nil }),
		driversPV("going", driver, func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = deleted }),
		driversPV("another's", other, nil),
		driversPV("free", driver, func(pv *v1.PersistentVolume) { pv.Finalizers = nil }),
	)
	var patched []string
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patched = append(patched, action.GetResource().Resource)
		return false, nil, nil
	})
	got, err := r.run(t.Context(), []string{driver})
	if err != nil || got.PVs != 4 || !slices.Equal(got.Abandoned, []string{"going"}) || len(got.Left) > 0 || !slices.Equal(got.Drivers, []string{driver}) {
		t.Errorf("released %+v, %v", got, err)
	}
	if len(patched) != 5 || patched[0] != "configmaps" {
		t.Errorf("written to %q, want the ConfigMap before all PVs", patched)
	}
	for name, want := range map[string]bool{"bound": false, "another's": true} {
		if on := slices.Contains(finalizersOf(t, client, name), finalizer); on != want {
			t.Errorf("PV %s: the finalizer is on: %v, want %v", name, on, want)
		}
	}
	listed, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), PolicyName, metav1.GetOptions{})
	must(t, err)
	if len(listed.Data) != 1 || listed.Data[other] != finalizer || listed.Annotations[releasedAnnotation] != driver {
		t.Errorf("listed are %v, with %v", listed.Data, listed.Annotations)
	}
}

// TestAFinalizerThatComesBackIsTakenOffAgain, as long as an API server may need to learn that the key is gone, and no longer.
func TestAFinalizerThatComesBackIsTakenOffAgain(t *testing.T) {
	for sentence, c := range map[string]struct {
		// back says after which looks it is there again.
		back func(look int) bool
		left []string
		pvs  int
		// looks is how often it is looked for: until it stayed away twice.
		looks int
	}{
		"never":                    {func(int) bool { return false }, nil, 1, 3},
		"once":                     {func(look int) bool { return look == 1 }, nil, 1, 4},
		"after it had stayed away": {func(look int) bool { return look == 2 }, nil, 1, 5},
		"for ever":                 {func(int) bool { return true }, []string{"a"}, 0, 1 + int(learnWithin/settle)},
	} {
		t.Run(sentence, func(t *testing.T) {
			pv := driversPV("a", driver, nil)
			client, r := releasing(pv)
			looks := 0
			client.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				if looks > 0 && c.back(looks) {
					must(t, client.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, pv, ""))
				}
				looks++
				return false, nil, nil
			})
			got, err := r.run(t.Context(), []string{driver})
			if err != nil || got.PVs != c.pvs || !slices.Equal(got.Left, c.left) {
				t.Errorf("released %+v, %v", got, err)
			}
			if looks != c.looks {
				t.Errorf("looked %d times, want %d", looks, c.looks)
			}
			if c.left == nil && slices.Contains(finalizersOf(t, client, "a"), finalizer) {
				t.Error("the finalizer is on")
			}
		})
	}
}

// TestWhatChangesMeanwhileIsReleasedAllTheSame, and bound to what was read.
func TestWhatChangesMeanwhileIsReleasedAllTheSame(t *testing.T) {
	client, r := releasing(Parameters("ns", map[string]string{driver: finalizer}), driversPV("a", driver, nil), driversPV("gone", driver, nil))
	refused := map[string]int{}
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch, is := action.(clienttesting.PatchActionImpl)
		if !is {
			t.Fatalf("a patch is %T", action)
		}
		about := schema.GroupResource{Resource: patch.GetResource().Resource}
		refused[patch.Name]++
		switch {
		case patch.Name == "gone":
			must(t, client.Tracker().Delete(patch.GetResource(), "", "gone"))
			return true, nil, apierrors.NewNotFound(about, patch.Name)
		case refused[patch.Name] == 1:
			return true, nil, apierrors.NewConflict(about, patch.Name, errors.New("changed"))
		case patch.Name == "a" && string(patch.Patch) != `{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+finalizer+`"],"resourceVersion":"7","uid":"uid-of-a"}}`:
			t.Errorf("written %s", patch.Patch)
		}
		return false, nil, nil
	})
	got, err := r.run(t.Context(), []string{AllDrivers})
	if err != nil || got.PVs != 2 || len(got.Left) > 0 || !slices.Equal(got.Drivers, []string{driver}) {
		t.Errorf("released %+v, %v", got, err)
	}
	if on := slices.Contains(finalizersOf(t, client, "a"), finalizer); on || refused["a"] != 2 || refused[PolicyName] != 2 {
		t.Errorf("the finalizer is on: %v, after %v tries", on, refused)
	}
}

// TestAReleaseThatFailsSaysSo, and begins with nothing that it has not done before.
func TestAReleaseThatFailsSaysSo(t *testing.T) {
	broken := errors.New("broken")
	for _, step := range []string{"get configmaps", "patch configmaps", "list persistentvolumes", "patch persistentvolumes"} {
		client, r := releasing(Parameters("ns", map[string]string{driver: finalizer}), driversPV("a", driver, nil))
		var did []string
		client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			did = append(did, action.GetVerb()+" "+action.GetResource().Resource)
			return did[len(did)-1] == step, nil, broken
		})
		if _, err := r.run(t.Context(), []string{driver}); !errors.Is(err, broken) || did[len(did)-1] != step {
			t.Errorf("%s fails: %v after %q", step, err, did)
		}
	}
}

// TestAnAPIServerThatDoesNotAnswerEndsARelease.
func TestAnAPIServerThatDoesNotAnswerEndsARelease(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	clients, err := kube.NewClients(&rest.Config{Host: server.URL})
	must(t, err)
	r := newReleaser(clients, "ns", clock.RealClock{})
	if r.timeout != callTimeout {
		t.Errorf("a call may take %v", r.timeout)
	}
	r.timeout = 50 * time.Millisecond
	pv := driversPV("a", driver, nil)
	for what, call := range map[string]func() error{
		"the ConfigMap":   func() error { _, err := r.unlist(t.Context(), []string{driver}); return err },
		"the list of PVs": func() error { _, err := r.pass(t.Context(), []string{driver}); return err },
		"a PV":            func() error { return r.bare(t.Context(), pv, []string{finalizer}) },
	} {
		if err := call(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
