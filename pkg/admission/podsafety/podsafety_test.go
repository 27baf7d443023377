package podsafety

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func TestHoldOf(t *testing.T) {
	claim := v1.Volume{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
	ephemeral := v1.Volume{VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	mirror := metav1.ObjectMeta{Annotations: map[string]string{v1.MirrorPodAnnotationKey: ""}}
	for sentence, c := range map[string]struct {
		pod  v1.Pod
		want Changes
	}{
		"a claim":             {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{Hold: true}},
		"an ephemeral volume": {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{}, ephemeral}}}, Changes{Hold: true}},
		"no volume":           {v1.Pod{}, Changes{}},
		"other volumes":       {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{}}}}, Changes{}},
		"of a StatefulSet": {v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: ptr.To(true)}}}}, Changes{Hold: true}},
		"a mirror pod": {v1.Pod{ObjectMeta: mirror, Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{}},
		"held already": {v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{Finalizer}},
			Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{}},
		"another finalizer": {v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"other"}},
			Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{Hold: true}},
		"no grace": {v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0)}}, Changes{Grace: true}},
		"a second": {v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1)}}, Changes{}},
		"a claim, no grace": {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{claim},
			TerminationGracePeriodSeconds: ptr.To[int64](0)}}, Changes{Hold: true, Grace: true}},
		"a mirror pod, no grace": {v1.Pod{ObjectMeta: mirror, Spec: v1.PodSpec{Volumes: []v1.Volume{claim},
			TerminationGracePeriodSeconds: ptr.To[int64](0)}}, Changes{Grace: true}},
	} {
		if got := HoldOf(&c.pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}

func TestGateOf(t *testing.T) {
	claim := v1.Volume{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
	ephemeral := v1.Volume{VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	gates := func(names ...string) (all []v1.PodSchedulingGate) {
		for _, name := range names {
			all = append(all, v1.PodSchedulingGate{Name: name})
		}
		return all
	}
	for sentence, c := range map[string]struct {
		meta metav1.ObjectMeta
		spec v1.PodSpec
		want bool
	}{
		"a claim":             {spec: v1.PodSpec{Volumes: []v1.Volume{claim}}, want: true},
		"an ephemeral volume": {spec: v1.PodSpec{Volumes: []v1.Volume{{}, ephemeral}}, want: true},
		"no volume":           {},
		"other volumes":       {spec: v1.PodSpec{Volumes: []v1.Volume{{}}}},
		"a mirror pod": {meta: metav1.ObjectMeta{Annotations: map[string]string{v1.MirrorPodAnnotationKey: ""}},
			spec: v1.PodSpec{Volumes: []v1.Volume{claim}}},
		"a node":       {spec: v1.PodSpec{Volumes: []v1.Volume{claim}, NodeName: "a"}},
		"the gate":     {spec: v1.PodSpec{Volumes: []v1.Volume{claim}, SchedulingGates: gates("other", Gate)}},
		"another gate": {spec: v1.PodSpec{Volumes: []v1.Volume{claim}, SchedulingGates: gates("other")}, want: true},
	} {
		if got := GateOf(&v1.Pod{ObjectMeta: c.meta, Spec: c.spec}); got != (Changes{Gate: c.want}) {
			t.Errorf("%s: %+v, want gate %v", sentence, got, c.want)
		}
	}
}

// The removal ends with the first error.
func TestRemovalOrder(t *testing.T) {
	const (
		policy, webhook, binding = "mutatingadmissionpolicybinding", "mutatingwebhookconfiguration",
			"validatingadmissionpolicybinding"
	)
	of := map[string]struct {
		remove func(context.Context, *rest.Config) ([]string, error)
		all    []string
	}{
		"the hold": {RemoveAdmission, []string{policy + "/" + Name, webhook + "/" + Name, binding + "/" + StaysName}},
		"the gate": {RemoveGateAdmission, []string{binding + "/" + GateRequiredName, policy + "/" + GateName,
			webhook + "/" + GateName, binding + "/" + GateStaysName, binding + "/" + LockStaysName}},
	}
	for what, c := range of {
		for sentence, status := range map[string]int{"exists": 200, "does not exist": 404, "may not be deleted": 403} {
			for n, name := range c.all {
				asked, deleted, err := removeWith(t, c.remove, name, status)
				wantAsked, wantDeleted := c.all, c.all
				switch status {
				case http.StatusNotFound:
					wantDeleted = slices.Concat(c.all[:n], c.all[n+1:])
				case http.StatusForbidden:
					wantAsked, wantDeleted = c.all[:n+1], c.all[:n]
				}
				if !slices.Equal(asked, wantAsked) || !slices.Equal(deleted, wantDeleted) {
					t.Errorf("%s, %s %s: deleted %q after %q, want %q after %q", what, name, sentence, deleted, asked, wantDeleted,
						wantAsked)
				}
				if (err == nil) != (status != http.StatusForbidden) ||
					err != nil && !strings.Contains(err.Error(), "delete "+name) {
					t.Errorf("%s, %s %s: %v", what, name, sentence, err)
				}
			}
		}
	}
}

func TestRemovalNeedsClient(t *testing.T) {
	config := &rest.Config{Host: "localhost", TLSClientConfig: rest.TLSClientConfig{CAFile: "none"}}
	for _, remove := range []func(context.Context, *rest.Config) ([]string, error){RemoveAdmission, RemoveGateAdmission} {
		if _, err := remove(t.Context(), config); err == nil || !strings.Contains(err.Error(), "create an HTTP client") {
			t.Error(err)
		}
	}
}

// removeWith returns the objects that an API server was asked to delete, and the deleted ones, if it answers with the
// status for one of them.
func removeWith(t *testing.T, remove func(context.Context, *rest.Config) ([]string, error), name string,
	status int) (asked, deleted []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/admissionregistration.k8s.io/v1/"), "/")
		what := strings.TrimSuffix(kind, "s") + "/" + object
		if r.Method != http.MethodDelete {
			t.Errorf("%s %s", r.Method, what)
		}
		asked = append(asked, what)
		w.Header().Set("Content-Type", "application/json")
		if what == name {
			w.WriteHeader(status)
		}
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1"}`))
	}))
	defer server.Close()
	deleted, err = remove(t.Context(), &rest.Config{Host: server.URL})
	return asked, deleted, err
}
