package admission

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// After a failed step, a release does nothing more.
func TestReleaseStopsAtFirstError(t *testing.T) {
	broken := errors.New("broken")
	for _, step := range []string{
		"get mutatingadmissionpolicies", "get mutatingwebhookconfigurations", "patch mutatingadmissionpolicies",
		"list leases", "list persistentvolumes", "patch persistentvolumes",
	} {
		client, r := releasing(Policy(volume.RoleOwner, driver), driversPV("a", driver, nil))
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

// lease is a Lease for leader election that was renewed at the time of instant, and earlier if it has ended.
func lease(name, label, holder string, ended bool) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(time.Unix(0, 0))
	if ended {
		renewed = metav1.NewMicroTime(time.Unix(-16, 0))
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "drivers", Name: name,
			Labels: map[string]string{objects.DriverLabel: label}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed,
			LeaseDurationSeconds: new(int32(15))},
	}
}

// The program that holds a driver's Lease may be an external-provisioner with the same finalizer.
func TestReleaseStopsAtHeldLease(t *testing.T) {
	name := objects.ElectionLeases(driver)
	for sentence, c := range map[string]struct {
		role  volume.Role
		asked string
		lease *coordinationv1.Lease
		stops bool
	}{
		"external-provisioner, listed": {volume.RoleOwner, allDrivers, lease(name[0], "", "stock-0", false), true},
		"external-provisioner, named":  {volume.RoleOwner, driver, lease(name[0], "", "stock-0", false), true},
		"external-provisioner, not listed": {volume.RoleUnknown, driver, lease(name[0], "", "stock-0", false),
			true},
		"a companion":                 {volume.RoleCompanion, allDrivers, lease(name[1], "", "stock-0_1", false), true},
		"csi-reclaimer of a node":     {volume.RoleCompanion, allDrivers, lease("of-a", driver, "stock-0", false), true},
		"the peer of a companion":     {volume.RoleCompanion, allDrivers, lease(name[0], "", "stock-0", false), false},
		"it has stopped":              {volume.RoleOwner, allDrivers, lease(name[0], driver, "", false), false},
		"it has ended":                {volume.RoleOwner, allDrivers, lease(name[0], driver, "stock-0", true), false},
		"of a driver that is no part": {volume.RoleOwner, allDrivers, lease("other", "other", "stock-0", false), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			pv := driversPV("a", driver, func(pv *v1.PersistentVolume) {
				pv.Finalizers = append(pv.Finalizers, volume.CompanionFinalizer)
			})
			given := []runtime.Object{pv, c.lease}
			if c.role != volume.RoleUnknown {
				given = append(given, Policy(c.role, driver))
			}
			client, r := releasing(given...)
			_, err := r.run(t.Context(), []string{c.asked})
			if errors.Is(err, ErrInUse) != c.stops || (err != nil) != c.stops {
				t.Fatal(err)
			}
			if on := slices.Contains(finalizersOf(t, client, "a"), volume.CompanionFinalizer); on != c.stops {
				t.Errorf("the finalizer is on: %v", on)
			}
			if !c.stops {
				return
			}
			for _, want := range []string{driver, "stock-0 holds Lease drivers/" + c.lease.Name, "--replicas=0"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
			for _, a := range client.Actions() {
				if a.GetVerb() == "patch" {
					t.Errorf("written: %+v", a)
				}
			}
		})
	}
}

// The finalizer of role owner is the peer's, also after an interrupted release.
func TestReleaseOfCompanionKeepsOwnersFinalizer(t *testing.T) {
	const other = "other.csi.example.com"
	both := func(pv *v1.PersistentVolume) {
		pv.DeletionTimestamp, pv.Finalizers = deleted, append(pv.Finalizers, volume.CompanionFinalizer)
	}
	client, r := releasing(Policy(volume.RoleCompanion, driver, other), Policy(volume.RoleOwner, other),
		driversPV("a", driver, both), driversPV("b", other, both))
	broken, fails := errors.New("broken"), true
	client.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, broken
	})
	if _, err := r.run(t.Context(), []string{allDrivers}); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	fails = false
	got, err := r.run(t.Context(), []string{allDrivers})
	if err != nil || got.PVs != 2 || !slices.Equal(got.Abandoned, []string{"b"}) || len(got.Left) > 0 ||
		!slices.Equal(got.Drivers, []string{driver, other}) {
		t.Errorf("released %+v, %v", got, err)
	}
	for name, kept := range map[string]bool{"a": true, "b": false} {
		on := finalizersOf(t, client, name)
		if slices.Contains(on, volume.CompanionFinalizer) || slices.Contains(on, volume.Finalizer) != kept {
			t.Errorf("PV %s has %q", name, on)
		}
	}
	if got, err := r.run(t.Context(), []string{allDrivers}); err != nil || len(got.Drivers) > 0 {
		t.Errorf("the record stays: %+v, %v", got, err)
	}
}

// The list may still have the driver.
func TestReleaseFailsIfListCannotBeReread(t *testing.T) {
	client, r := releasing(Policy(volume.RoleOwner, driver), driversPV("a", driver, nil))
	broken, changed := errors.New("broken"), false
	client.PrependReactor("*", "mutatingadmissionpolicies", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() == "patch" {
			changed = true
			return true, nil, apierrors.NewConflict(schema.GroupResource{}, PolicyName, errors.New("changed"))
		}
		return changed, nil, broken
	})
	if _, err := r.run(t.Context(), []string{driver}); !errors.Is(err, broken) ||
		!slices.Contains(finalizersOf(t, client, "a"), finalizer) {
		t.Errorf("released in spite of a policy that may list the driver: %v", err)
	}
}

func TestReleaseFailsWithoutAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/persistentvolumes") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PersistentVolumeList","apiVersion":"v1","items":[]}`))
	}))
	t.Cleanup(server.Close)
	for what, config := range map[string]*rest.Config{
		"refuses": {Host: server.URL}, "has no address": {Host: "http://:x"},
	} {
		if _, err := Release(t.Context(), config, []string{driver}); err == nil {
			t.Errorf("an API server that %s: released", what)
		}
		if err := WaitUntilRemoved(t.Context(), config, []string{driver}); err == nil {
			t.Errorf("an API server that %s: no finalizer comes back", what)
		}
	}
}

func TestReleaseCallsHaveTimeouts(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	clients, err := kube.NewClients(&rest.Config{Host: server.URL})
	must(t, err)
	r := newReleaser(clients, clock.RealClock{})
	if r.timeout != callTimeout || r.lists.timeout != callTimeout {
		t.Errorf("a call may take %v, or %v", r.timeout, r.lists.timeout)
	}
	r.timeout, r.lists.timeout = 50*time.Millisecond, 50*time.Millisecond
	pv := driversPV("a", driver, nil)
	for what, call := range map[string]func() error{
		"a policy":     func() error { _, err := r.lists.readPolicy(t.Context(), volume.RoleOwner); return err },
		"the webhooks": func() error { _, err := r.lists.readWebhooks(t.Context()); return err },
		"the list of drivers": func() error {
			return r.lists.write(t.Context(), driverList{patch: func(ctx context.Context, body []byte) error {
				_, err := clients.Admission.MutatingAdmissionPolicies().Patch(ctx, PolicyName, types.StrategicMergePatchType, body,
					metav1.PatchOptions{})
				return err
			}}, []string{driver}, nil)
		},
		"a PV": func() error { return r.removeFinalizers(t.Context(), pv, []string{finalizer}) },
	} {
		if err := call(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A release with an unknown list of drivers releases nothing.
func TestForeignListIsNotChanged(t *testing.T) {
	foreign := Policy(volume.RoleOwner, driver)
	foreign.Spec.MatchConditions[4].Expression = "true"
	hooks := PVWebhooks(Service{}, Drivers{volume.RoleCompanion: {driver}})
	hooks.Webhooks[0].MatchConditions = nil
	for _, object := range []runtime.Object{foreign, hooks} {
		client, r := releasing(object, driversPV("a", driver, nil))
		if _, err := r.run(t.Context(), []string{driver}); !errors.Is(err, errUnknownCondition) {
			t.Errorf("%T: %v", object, err)
		}
		if !slices.Contains(finalizersOf(t, client, "a"), finalizer) {
			t.Errorf("%T: the finalizer is removed", object)
		}
	}
}

// A dry run shows whether the finalizer still comes back.
func TestWaitUntilRemoved(t *testing.T) {
	last := int(quietPeriod / probeInterval)
	end := int(propagationTimeout / probeInterval)
	for sentence, c := range map[string]struct {
		pvs []runtime.Object
		// back reports at which tries the finalizer comes back.
		back  func(try int) bool
		tries int
		want  error
	}{
		"at once": {[]runtime.Object{driversPV("a", driver, nil)}, func(int) bool { return false },
			1 + int(quietPeriod/probeInterval), nil},
		"after three tries": {[]runtime.Object{driversPV("a", driver, nil)},
			func(try int) bool { return try < 3 }, 3 + int(quietPeriod/probeInterval), nil},
		"and again": {[]runtime.Object{driversPV("a", driver, nil)},
			func(try int) bool { return try == 4 }, 5 + int(quietPeriod/probeInterval), nil},
		"and at the last try": {[]runtime.Object{driversPV("a", driver, nil)},
			func(try int) bool { return try == last }, 1 + 2*last, nil},
		"shortly before the end": {[]runtime.Object{driversPV("a", driver, nil)},
			func(try int) bool { return try < end }, end + last, nil},
		"a changed object shows none": {[]runtime.Object{driversPV("changed", driver, nil)},
			func(int) bool { return true }, 1, nil},
		"never": {[]runtime.Object{driversPV("a", driver, nil)}, func(int) bool { return true },
			1 + int(propagationTimeout/probeInterval), reclaim.ErrFinalizerRestored},
		"no PV can show it": {[]runtime.Object{driversPV("a", driver,
			func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil })}, func(int) bool { return true }, 0, nil},
		"the only PV is another's": {[]runtime.Object{driversPV("a", "another", nil)}, func(int) bool { return true }, 0,
			nil},
		"another driver of the only PV is still listed": {[]runtime.Object{driversPV("a", driver,
			func(pv *v1.PersistentVolume) { pv.Annotations = map[string]string{volume.AnnMigratedTo: "listed"} })},
			func(int) bool { return true }, 0, nil},
		"a deleted object shows none": {[]runtime.Object{driversPV("gone", driver, nil)}, func(int) bool { return true }, 1,
			nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset(c.pvs...)
			tries := 0
			client.PrependReactor("patch", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patch, is := action.(clienttesting.PatchActionImpl)
				if !is || !slices.Equal(patch.PatchOptions.DryRun, []string{metav1.DryRunAll}) {
					t.Errorf("no dry run: %+v", action)
				}
				tries++
				if patch.Name == "changed" {
					must(t, client.Tracker().Delete(patch.GetResource(), "", "changed"))
					return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumes"}, "changed", nil)
				}
				if patch.Name == "gone" {
					must(t, client.Tracker().Delete(patch.GetResource(), "", "gone"))
					return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumes"}, "gone")
				}
				return true, driversPV("a", driver, func(pv *v1.PersistentVolume) {
					if !c.back(tries - 1) {
						pv.Finalizers = nil
					}
				}), nil
			})
			clock := instant()
			err := waitUntilRemoved(t.Context(), kube.Clients{Core: client.CoreV1()},
				removal{drivers: []string{driver}, listed: Drivers{volume.RoleOwner: {"listed"}}}, clock)
			if !errors.Is(err, c.want) || tries != c.tries {
				t.Errorf("%v after %d tries, want %v after %d", err, tries, c.want, c.tries)
			}
			if took := clock.Now().Sub(time.Unix(0, 0)); tries < 2 && took > 0 {
				t.Errorf("waited %v for what nothing shows", took)
			}
			lists := 0
			for _, a := range client.Actions() {
				if a.GetVerb() == "list" {
					lists++
				}
			}
			if lists > 2 {
				t.Errorf("listed all PVs %d times", lists)
			}
		})
	}
}

// Without a try, it is unknown whether the finalizer comes back.
func TestWaitUntilRemovedFails(t *testing.T) {
	broken := errors.New("broken")
	for _, verb := range []string{"list", "patch"} {
		client := fake.NewClientset(driversPV("a", driver, nil))
		respond(client, verb, "persistentvolumes", nil, broken)
		err := waitUntilRemoved(t.Context(), kube.Clients{Core: client.CoreV1()}, removal{drivers: []string{driver}},
			instant())
		if !errors.Is(err, broken) {
			t.Errorf("%s fails: %v", verb, err)
		}
	}
}
