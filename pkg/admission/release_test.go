package admission

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func TestRemovalFinalizers(t *testing.T) {
	const other = "kubernetes.io/pv-protection"
	of := func(driver string, finalizers ...string) *v1.PersistentVolume {
		pv := &v1.PersistentVolume{}
		pv.Finalizers = finalizers
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver}
		return pv
	}
	migrated := of("", volume.Finalizer)
	migrated.Spec.CSI, migrated.Annotations = nil, map[string]string{volume.AnnMigratedTo: "disk",
		volume.AnnProvisionedBy: "kubernetes.io/disk"}
	ofBoth := func(finalizers ...string) *v1.PersistentVolume {
		pv := of("disk", finalizers...)
		pv.Annotations = map[string]string{volume.AnnMigratedTo: "listed", volume.AnnProvisionedBy: "disk"}
		return pv
	}
	gone := removal{drivers: []string{"disk"}, listed: Drivers{volume.RoleCompanion: {"listed"}}}
	for name, c := range map[string]struct {
		pv   *v1.PersistentVolume
		want []string
	}{
		"not the finalizer of another, still listed driver": {ofBoth(volume.Finalizer, volume.CompanionFinalizer),
			[]string{volume.Finalizer}},
		"not while it is being deleted either": {func() *v1.PersistentVolume {
			pv := ofBoth(volume.CompanionFinalizer)
			pv.DeletionTimestamp = &metav1.Time{}
			return pv
		}(), nil},
		"the finalizers of both roles, and no others": {of("disk", other, volume.Finalizer, volume.CompanionFinalizer),
			[]string{volume.Finalizer, volume.CompanionFinalizer}},
		"none where there is none":              {of("disk", other), nil},
		"none of a driver that is not released": {of("file", volume.Finalizer), nil},
		"the finalizers of a migrated volume":   {migrated, []string{volume.Finalizer}},
		"none of a PV of no driver":             {&v1.PersistentVolume{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gone.finalizers(c.pv); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// listing is an object that lists drivers, with the annotation of the drivers that a release has removed from it.
func listing(released string, drivers ...string) driverList {
	l := driverList{parts: []listPart{{drivers: drivers}}}
	if released != "" {
		l.Annotations = map[string]string{releasedAnnotation: released}
	}
	return l
}

func TestListedExcept(t *testing.T) {
	all := []driverList{
		{parts: []listPart{{role: volume.RoleOwner, drivers: []string{"a", "b"}}}},
		{parts: []listPart{{role: volume.RoleOwner, drivers: []string{"c"}}, {role: volume.RoleCompanion,
			drivers: []string{"a", "d"}}}},
	}
	want := Drivers{volume.RoleOwner: {"b", "c"}, volume.RoleCompanion: {"d"}}
	if diff := cmp.Diff(want, listedExcept(all, []string{"a"})); diff != "" {
		t.Error(diff)
	}
}

func TestDriversToRemove(t *testing.T) {
	for name, c := range map[string]struct {
		of    []driverList
		asked []string
		want  []string
	}{
		"one by its name":    {[]driverList{listing("", "a", "b")}, []string{"a"}, []string{"a"}},
		"an unlisted driver": {[]driverList{listing("", "a", "b")}, []string{"c"}, []string{"c"}},
		"all that are listed": {[]driverList{listing("", "b", "a"), listing("", "c")},
			[]string{allDrivers}, []string{"a", "b", "c"}},
		"all that were when a release was cut off": {[]driverList{listing("a,b"), listing("", "c")}, []string{allDrivers},
			[]string{"a", "b", "c"}},
		"all, and one more": {[]driverList{listing("", "a", "b")}, []string{allDrivers, "c", "a"},
			[]string{"a", "b", "c"}},
		"the named drivers without any list": {nil, []string{allDrivers, "c"}, []string{"c"}},
		"none":                               {[]driverList{listing("", "a", "b")}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := driversToRemove(c.of, c.asked); !slices.Equal(got, c.want) {
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

// instant returns a clock on which waiting takes no time.
func instant() clock.Clock {
	return kubetest.EagerClock{FakeClock: testclock.NewFakeClock(time.Unix(0, 0))}
}

// driversPV is a PV of a driver, with its finalizer.
func driversPV(name, driver string, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	pv := bound()
	pv.Name, pv.UID, pv.ResourceVersion = name, types.UID("uid-of-"+name), "7"
	pv.Annotations[volume.AnnProvisionedBy], pv.Spec.CSI.Driver = driver, driver
	pv.Finalizers = append(pv.Finalizers, finalizer)
	if change != nil {
		change(pv)
	}
	return pv
}

// releasing returns a cluster with these objects, and its releaser.
func releasing(objects ...runtime.Object) (*fake.Clientset, *releaser) {
	client := fake.NewClientset(objects...)
	return client, newReleaser(kube.ClientsOf(client), instant())
}

// respond makes a cluster answer all calls of a kind alike.
func respond(client *fake.Clientset, verb, resource string, object runtime.Object, err error) {
	client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, object, err
	})
}

func finalizersOf(t *testing.T, client *fake.Clientset, name string) []string {
	t.Helper()
	pv, err := client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return pv.Finalizers
}

func TestRelease(t *testing.T) {
	const other = "other.csi.example.com"
	hooks := PVWebhooks(Service{}, Drivers{volume.RoleOwner: {other}, volume.RoleCompanion: {driver, other}})
	hooks.Webhooks[1].ClientConfig.CABundle = []byte("trusted")
	listing := Policy(volume.RoleOwner, driver, other)
	listing.UID, listing.ResourceVersion = "read", "7"
	client, r := releasing(
		listing, Policy(volume.RoleCompanion, other), hooks,
		driversPV("bound", driver, nil),
		driversPV("kept", driver, func(pv *v1.PersistentVolume) {
			pv.DeletionTimestamp, pv.Spec.PersistentVolumeReclaimPolicy = deleted, v1.PersistentVolumeReclaimRetain
		}),
		driversPV("unclaimed", driver, func(pv *v1.PersistentVolume) {
			pv.DeletionTimestamp, pv.Spec.ClaimRef = deleted, nil
		}),
		driversPV("going", driver, func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = deleted }),
		driversPV("another's", other, nil),
		driversPV("free", driver, func(pv *v1.PersistentVolume) { pv.Finalizers = nil }),
	)
	var patched []string
	client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patched = append(patched, action.GetResource().Resource)
		if patch, is := action.(clienttesting.PatchActionImpl); is && patch.Name == PolicyName {
			if strings.Contains(string(patch.Patch), "webhooks") {
				t.Errorf("a policy has no webhooks: %s", patch.Patch)
			}
			for _, want := range []string{`"uid":"read"`, `"resourceVersion":"7"`} {
				if !strings.Contains(string(patch.Patch), want) {
					t.Errorf("written %s, want it bound to what was read: %s", patch.Patch, want)
				}
			}
		}
		return false, nil, nil
	})
	got, err := r.run(t.Context(), []string{driver})
	if err != nil || got.PVs != 4 || !slices.Equal(got.Abandoned, []string{"going"}) || len(got.Left) > 0 ||
		!slices.Equal(got.Drivers, []string{driver}) {
		t.Errorf("released %+v, %v", got, err)
	}
	if len(patched) != 6 || patched[0] != "mutatingadmissionpolicies" || patched[1] != "mutatingwebhookconfigurations" {
		t.Errorf("written to %q, want the policy and the webhook before all PVs", patched)
	}
	for name, want := range map[string]bool{"bound": false, "another's": true} {
		if on := slices.Contains(finalizersOf(t, client, name), finalizer); on != want {
			t.Errorf("PV %s: the finalizer is on: %v, want %v", name, on, want)
		}
	}
	policy, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), PolicyName,
		metav1.GetOptions{})
	must(t, err)
	want := Policy(volume.RoleOwner, other)
	if diff := cmp.Diff(want.Spec, policy.Spec); diff != "" || len(policy.Annotations) > 0 {
		t.Errorf("the policy is another (-want +got):\n%s\nwith %v", diff, policy.Annotations)
	}
	left, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), WebhooksName,
		metav1.GetOptions{})
	must(t, err)
	hooks.Webhooks[1].MatchConditions = conditions(volume.RoleCompanion, []string{other})
	if diff := cmp.Diff(hooks.Webhooks, left.Webhooks); diff != "" {
		t.Errorf("the webhooks are others (-want +got):\n%s", diff)
	}
}

// A finished release of all drivers must not repeat itself: the finalizer may be another program's by then. The record
// of an unfinished one stays.
func TestFinishedReleaseIsForgotten(t *testing.T) {
	const other = "other.csi.example.com"
	broken := errors.New("broken")
	record := func(t *testing.T, client *fake.Clientset) string {
		t.Helper()
		policy, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), PolicyName,
			metav1.GetOptions{})
		must(t, err)
		return policy.Annotations[releasedAnnotation]
	}
	for sentence, c := range map[string]struct {
		asked []string
		// before and after are the record in the policy.
		before, after string
		spoil         func(*fake.Clientset)
	}{
		"all":                          {asked: []string{allDrivers}},
		"all, after an unfinished one": {asked: []string{allDrivers}, before: other},
		"all, and PVs cannot be read": {asked: []string{allDrivers}, before: other, after: driver + "," + other,
			spoil: func(client *fake.Clientset) { respond(client, "list", "persistentvolumes", nil, broken) }},
		"all, and a volume is in flight": {asked: []string{allDrivers}, after: driver, spoil: func(client *fake.Clientset) {
			must(t, client.Tracker().Add(inFlightLease(t, "ns", driver)))
		}},
		"all, and the finalizer comes back": {asked: []string{allDrivers}, after: driver,
			spoil: func(client *fake.Clientset) {
				respond(client, "patch", "persistentvolumes", driversPV("pvc-1", driver, nil), nil)
			}},
		"by its name":                           {asked: []string{driver}},
		"by its name, of an unfinished one":     {asked: []string{driver}, before: driver + "," + other, after: other},
		"by its name, beside an unfinished one": {asked: []string{driver}, before: other, after: other},
		"an unlisted one by its name":           {asked: []string{other}, before: other},
	} {
		t.Run(sentence, func(t *testing.T) {
			policy := Policy(volume.RoleOwner, driver)
			if c.before != "" {
				policy.Annotations = map[string]string{releasedAnnotation: c.before}
			}
			client, r := releasing(policy, driversPV("pvc-1", driver, nil))
			if c.spoil != nil {
				c.spoil(client)
			}
			if _, err := r.run(t.Context(), c.asked); err != nil && !errors.Is(err, broken) {
				t.Error(err)
			}
			if got := record(t, client); got != c.after {
				t.Errorf("the policy records %q, want %q", got, c.after)
			}
		})
	}
	// The driver goes to another program, and later the others are released.
	client, r := releasing(Policy(volume.RoleOwner, driver, other), driversPV("a", driver, nil))
	_, err := r.run(t.Context(), []string{driver})
	must(t, err)
	back := driversPV("a", driver, nil)
	must(t, client.Tracker().Update(v1.SchemeGroupVersion.WithResource("persistentvolumes"), back, ""))
	got, err := r.run(t.Context(), []string{allDrivers})
	if err != nil || !slices.Equal(got.Drivers, []string{other}) ||
		!slices.Contains(finalizersOf(t, client, "a"), finalizer) {
		t.Errorf("released %+v, %v", got, err)
	}
}

// The record of drivers is written only to the object as it was read.
func TestForgetFailsOnChange(t *testing.T) {
	policy := Policy(volume.RoleOwner, driver)
	policy.Annotations = map[string]string{releasedAnnotation: driver}
	for _, verb := range []string{"get", "patch"} {
		client, r := releasing(policy)
		respond(client, verb, "mutatingadmissionpolicies", nil,
			apierrors.NewConflict(schema.GroupResource{}, PolicyName, errors.New("changed")))
		if err := r.lists.forget(t.Context(), []string{driver}); !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// Nothing repairs a forged Lease, so the error has the way out.
func TestUnreadableLeaseIsNamed(t *testing.T) {
	_, r := releasing(Policy(volume.RoleOwner, driver), driversPV("pvc-1", driver, nil),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "log-0",
			Labels: map[string]string{inflight.LabelLog: "true"}}})
	_, err := r.run(t.Context(), []string{driver})
	if err == nil || !strings.Contains(err.Error(), "Lease tenant/log-0") ||
		!strings.Contains(err.Error(), inflight.IfForged) {
		t.Error(err)
	}
}

// The Lease with the lists of topologies has no entries.
func TestUnusableTopologiesDoNotStopRelease(t *testing.T) {
	_, r := releasing(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "log-topology",
		Labels: map[string]string{inflight.LabelLog: "true"}}})
	if err := r.readLog(t.Context(), []string{driver}); err != nil {
		t.Error(err)
	}
}

// While the in-flight log is unknown, nothing is released.
func TestVolumeInFlightKeepsFinalizer(t *testing.T) {
	client, r := releasing(driversPV("pvc-1", driver, nil), driversPV("pvc-2", driver, nil))
	r.inFlight = []inflight.Located{{Entry: inflight.Entry{Volume: "pvc-1"}, Location: inflight.Location{Driver: driver}}}
	names, err := r.pass(t.Context(), removal{drivers: []string{driver}})
	if err != nil || !slices.Equal(names, []string{"pvc-2"}) {
		t.Errorf("released %q, %v", names, err)
	}
	if !slices.Contains(finalizersOf(t, client, "pvc-1"), finalizer) {
		t.Error("the finalizer of a PV was removed whose volume is in flight")
	}
	for sentence, spoil := range map[string]func(*fake.Clientset){
		"a shard of the driver is of a later version": func(client *fake.Clientset) {
			lease := inFlightLease(t, "ns", driver)
			lease.Annotations[inflight.LabelLog] = strings.Replace(lease.Annotations[inflight.LabelLog], `"version":1`,
				`"version":9`, 1)
			must(t, client.Tracker().Add(lease))
		},
		"the Leases may not be listed": func(client *fake.Clientset) {
			respond(client, "list", "leases", nil, errors.New("forbidden"))
		},
		"a shard cannot be read": func(client *fake.Clientset) {
			_, err := client.CoordinationV1().Leases("ns").Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "log-0", Labels: map[string]string{inflight.LabelLog: "true"}}},
				metav1.CreateOptions{})
			must(t, err)
		},
	} {
		client, r := releasing(Policy(volume.RoleOwner, driver), driversPV("pvc-1", driver, nil))
		spoil(client)
		if got, err := r.run(t.Context(), []string{driver}); err == nil || got.PVs != 0 ||
			!slices.Contains(finalizersOf(t, client, "pvc-1"), finalizer) {
			t.Errorf("%s: released %+v, %v", sentence, got, err)
		}
	}
}

// inFlightLease is a shard of a driver's in-flight log with an entry for the volume pvc-1.
func inFlightLease(t *testing.T, namespace, driver string) *coordinationv1.Lease {
	t.Helper()
	entry, err := os.ReadFile("../provision/inflight/testdata/least-v1.json")
	must(t, err)
	for n := range inflight.Shards {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("log-%d", n), UID: "u", Labels: map[string]string{inflight.LabelLog: "true"},
			Annotations: map[string]string{
				inflight.LabelLog:                  `{"version":1,"uid":"u","driver":"` + driver + `"}`,
				"in-flight.csi-reclaimer.io/pvc-1": string(entry),
			},
		}}
		if _, problems := inflight.Locate([]coordinationv1.Lease{*lease}, nil); len(problems) == 0 {
			return lease
		}
	}
	t.Fatal("no shard is that of the entry")
	return nil
}

// Volumes of drivers that are not released are neither reported, nor do they end the release.
func TestVolumesInFlightAreReported(t *testing.T) {
	foreign := inFlightLease(t, "broken", "another")
	foreign.UID = "a copy"
	client, r := releasing(driversPV("pvc-1", driver, nil), driversPV("pvc-2", driver, nil),
		inFlightLease(t, "ns", driver), inFlightLease(t, "others", "another"), foreign)
	got, err := r.run(t.Context(), []string{driver})
	if err != nil || got.PVs != 1 || len(got.InFlight) != 1 || got.InFlight[0].Volume != "pvc-1" ||
		got.InFlight[0].Driver != driver {
		t.Errorf("released %+v, %v", got, err)
	}
	if !slices.Contains(finalizersOf(t, client, "pvc-1"), finalizer) {
		t.Error("the finalizer of a PV was removed whose volume is in flight")
	}
}

// The removal is repeated for as long as an API server may need to observe the removal of the driver, and no longer.
func TestRestoredFinalizerIsRemovedAgain(t *testing.T) {
	for sentence, c := range map[string]struct {
		// back reports after which lists the finalizer is there again.
		back func(look int) bool
		left []string
		pvs  int
		// looks is the expected number of lists, until the finalizer stayed away twice.
		looks int
	}{
		"never":                    {func(int) bool { return false }, nil, 1, 3},
		"once":                     {func(look int) bool { return look == 1 }, nil, 1, 4},
		"after it had stayed away": {func(look int) bool { return look == 2 }, nil, 1, 5},
		"for ever": {func(int) bool { return true }, []string{"a"}, 0,
			1 + int(propagationTimeout/quietPeriod)},
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

// The writes of many PVs take longer than API servers need. No finalizer has come back then.
func TestLongFirstPassIsNoReturn(t *testing.T) {
	client, r := releasing(driversPV("a", driver, nil),
		driversPV("going", driver, func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = deleted }))
	client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.clock.Sleep(2 * propagationTimeout)
		return false, nil, nil
	})
	got, err := r.run(t.Context(), []string{driver})
	if err != nil || got.PVs != 2 || len(got.Left) > 0 || !slices.Equal(got.Abandoned, []string{"going"}) {
		t.Errorf("released %+v, %v", got, err)
	}
}

// Each write is bound to the state that was read.
func TestReleaseAfterConflicts(t *testing.T) {
	client, r := releasing(Policy(volume.RoleOwner, driver), driversPV("a", driver, nil), driversPV("gone", driver, nil))
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
		case patch.Name == "a" &&
			string(patch.Patch) != `{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+finalizer+`"],"resourceVersion":"7","uid":"uid-of-a"}}`:
			t.Errorf("written %s", patch.Patch)
		}
		return false, nil, nil
	})
	got, err := r.run(t.Context(), []string{allDrivers})
	if err != nil || got.PVs != 2 || len(got.Left) > 0 || !slices.Equal(got.Drivers, []string{driver}) {
		t.Errorf("released %+v, %v", got, err)
	}
	if on := slices.Contains(finalizersOf(t, client, "a"), finalizer); on || refused["a"] != 2 ||
		refused[PolicyName] != 3 { // the last write forgets the drivers
		t.Errorf("the finalizer is on: %v, after %v tries", on, refused)
	}
}
