package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// answering returns a client of an API server that answers every call with answer, and the received requests.
func answering(t *testing.T, answer metav1.Status) (corev1.CoreV1Interface, *[]string) {
	t.Helper()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent = append(sent, r.Method+" "+r.URL.Path+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		if answer.Code != 0 {
			answer.Kind, answer.APIVersion, answer.Status = "Status", "v1", metav1.StatusFailure
			w.WriteHeader(int(answer.Code))
			_ = json.NewEncoder(w).Encode(answer)
			return
		}
		finalizers := "[]"
		if strings.Contains(string(body), `"finalizers":["x"]`) {
			finalizers = `["x"]`
		}
		_, _ = w.Write([]byte(`{"metadata":{"name":"a","finalizers":` + finalizers + `}}`))
	}))
	t.Cleanup(server.Close)
	client, err := corev1.NewForConfig(&rest.Config{Host: server.URL, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return client, &sent
}

// writes are the writes to one object, by the request that they send.
var writes = map[string]func(context.Context, corev1.CoreV1Interface) error{
	`PATCH /api/v1/persistentvolumes/a {"metadata":{"finalizers":["x"],"uid":"u"}}`: patchPV(
		FinalizerPatch{Name: "a", UID: "u", Add: []string{"x"}}),
	`PATCH /api/v1/persistentvolumes/a {"metadata":{"$deleteFromPrimitiveList/finalizers":["x"],"resourceVersion":"7","uid":"u"}}`: patchPV(
		FinalizerPatch{Name: "a", UID: "u", ResourceVersion: "7", Remove: []string{"x"}}),
	`PATCH /api/v1/persistentvolumes/a {"metadata":{"$deleteFromPrimitiveList/finalizers":["y"],"finalizers":["x"],"uid":"u"}}`: patchPV(
		FinalizerPatch{Name: "a", UID: "u", Add: []string{"x"}, Remove: []string{"y"}}),
	`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/a {"metadata":{"$deleteFromPrimitiveList/finalizers":["x"],"uid":"u"}}`: patchClaim(
		FinalizerPatch{Name: "a", UID: "u", Remove: []string{"x"}}),
	`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/a {"metadata":{"annotations":{"k":"v"},"finalizers":["x"],"resourceVersion":"7","uid":"u"}}`: patchClaim(
		FinalizerPatch{Name: "a", UID: "u", ResourceVersion: "7", Add: []string{"x"},
			Annotations: map[string]*string{"k": ptr.To("v")}}),
	`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/a {"metadata":{"$deleteFromPrimitiveList/finalizers":["x"],"annotations":{"k":null},"uid":"u"}}`: patchClaim(
		FinalizerPatch{Name: "a", UID: "u", Remove: []string{"x"}, Annotations: map[string]*string{"k": nil}}),
	`PATCH /api/v1/namespaces/ns/pods/a {"metadata":{"uid":"u"},"spec":{"schedulingGates":[{"$patch":"delete","name":"g"}]}}`: removeGate,
	`PATCH /api/v1/namespaces/ns/pods/a {"metadata":{"$deleteFromPrimitiveList/finalizers":["x"],"resourceVersion":"7","uid":"u"}}`: patchPod(
		FinalizerPatch{Name: "a", UID: "u", ResourceVersion: "7", Remove: []string{"x"}}),
	`PATCH /api/v1/namespaces/ns/pods/a/status {"metadata":{"uid":"u"},"status":{"conditions":[{"type":"T","status":"True","lastProbeTime":null,"lastTransitionTime":null}]}}`: patchCondition(
		ConditionPatch{Name: "a", UID: "u", Condition: v1.PodCondition{Type: "T", Status: v1.ConditionTrue}}),
	`PATCH /api/v1/namespaces/ns/pods/a/status {"metadata":{"uid":"u"},"status":{"conditions":[{"$patch":"delete","type":"T"}]}}`: patchCondition(
		ConditionPatch{Name: "a", UID: "u", Condition: v1.PodCondition{Type: "T"}, Remove: true}),
	`DELETE /api/v1/namespaces/ns/pods/a {"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"}}`:                       forceDeletePod(""),
	`DELETE /api/v1/namespaces/ns/pods/a {"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"u","resourceVersion":"7"}}`: forceDeletePod("7"),
	`PATCH /api/v1/persistentvolumes/a {"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`: patchPolicy(
		PolicyPatch{Name: "a", UID: "u", ResourceVersion: "7", Policy: v1.PersistentVolumeReclaimDelete}),
	`DELETE /api/v1/persistentvolumes/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"}}`:                                          deletePV(""),
	`DELETE /api/v1/persistentvolumes/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"}}`:                    deletePV("7"),
	`DELETE /api/v1/namespaces/ns/persistentvolumeclaims/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u","resourceVersion":"7"}}`: deleteClaim("u", "7"),
	`DELETE /api/v1/namespaces/ns/pods/a {"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"}}`:                                         deletePod("u"),
	`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/a {"metadata":{"annotations":{"b":null,"x":"y"},"uid":"u"}}`: patchMetadata(
		MetadataPatch{Name: "a", UID: "u", Annotations: map[string]*string{"x": ptr.To("y"), "b": nil}}),
	`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/a {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"q"}],"resourceVersion":"7","uid":"u"}}`: patchMetadata(
		MetadataPatch{Name: "a", UID: "u", ResourceVersion: "7",
			Owners: &[]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "q"}}}),
	`PATCH /api/v1/namespaces/ns/persistentvolumeclaims/a {"metadata":{"ownerReferences":null,"resourceVersion":"7","uid":"u"}}`: patchMetadata(
		MetadataPatch{Name: "a", UID: "u", ResourceVersion: "7", Owners: new([]metav1.OwnerReference)}),
}

// answeringPod answers each patch with a pod that has these finalizers.
type answeringPod []string

func (f answeringPod) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*v1.Pod,
	error) {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: f}}, nil
}

// An admission policy that reverts the change makes the write a success without an effect.
func TestUndoneFinalizers(t *testing.T) {
	x, y, both := []string{"x"}, []string{"y"}, []string{"x", "y"}
	for sentence, c := range map[string]struct {
		add, remove, after []string
		undone             bool
	}{
		"added":                      {x, nil, both, false},
		"added, and removed again":   {x, nil, y, true},
		"one of two is added":        {both, nil, y, true},
		"removed":                    {nil, x, y, false},
		"removed, and added again":   {nil, x, both, true},
		"exchanged":                  {x, y, x, false},
		"added beside a removed one": {x, y, both, true},
	} {
		after, err := PatchFinalizers(t.Context(), answeringPod(c.after),
			FinalizerPatch{Name: "a", UID: "u", Add: c.add, Remove: c.remove})
		if errors.Is(err, ErrUndone) != c.undone || (err != nil) != c.undone || len(after.Finalizers) != len(c.after) {
			t.Errorf("%s: %v, %v", sentence, after, err)
		}
	}
}

func patchPV(p FinalizerPatch) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		_, err := PatchFinalizers(ctx, c.PersistentVolumes(), p)
		return err
	}
}

func patchClaim(p FinalizerPatch) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		_, err := PatchFinalizers(ctx, c.PersistentVolumeClaims("ns"), p)
		return err
	}
}

func patchPod(p FinalizerPatch) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		_, err := PatchFinalizers(ctx, c.Pods("ns"), p)
		return err
	}
}

func patchCondition(p ConditionPatch) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		return PatchPodCondition(ctx, c.Pods("ns"), p)
	}
}

func removeGate(ctx context.Context, c corev1.CoreV1Interface) error {
	_, err := RemovePodGate(ctx, c.Pods("ns"), "a", "u", "g")
	return err
}

func forceDeletePod(version string) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		return ForceDeletePod(ctx, c.Pods("ns"), "a", "u", version)
	}
}

func patchPolicy(p PolicyPatch) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		_, err := PatchPolicy(ctx, c.PersistentVolumes(), p)
		return err
	}
}

func patchMetadata(p MetadataPatch) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		_, err := PatchMetadata(ctx, c.PersistentVolumeClaims("ns"), p)
		return err
	}
}

func deleteClaim(uid types.UID, version string) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		return DeleteClaim(ctx, c.PersistentVolumeClaims("ns"), "a", uid, version)
	}
}

func deletePod(uid types.UID) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		return Delete(ctx, "pod", c.Pods("ns"), "a", uid, "")
	}
}

func deletePV(version string) func(context.Context, corev1.CoreV1Interface) error {
	return func(ctx context.Context, c corev1.CoreV1Interface) error {
		return Delete(ctx, "PV", c.PersistentVolumes(), "a", "u", version)
	}
}

func TestWritePreconditions(t *testing.T) {
	for want, write := range writes {
		client, sent := answering(t, metav1.Status{})
		if err := write(t.Context(), client); err != nil || len(*sent) != 1 || (*sent)[0] != want && (*sent)[0] != want+"\n" {
			t.Errorf("%v, sent %q\nwant %q", err, *sent, want)
		}
	}
}

func TestUnboundWritesAreNotSent(t *testing.T) {
	finalizers := []string{"x"}
	for what, write := range map[string]func(context.Context, corev1.CoreV1Interface) error{
		"a PV without UID":                 patchPV(FinalizerPatch{Name: "a", Add: finalizers}),
		"no finalizer of a PV":             patchPV(FinalizerPatch{Name: "a", UID: "u"}),
		"a claim without UID":              patchClaim(FinalizerPatch{Name: "a", Remove: finalizers}),
		"a condition without a type":       patchCondition(ConditionPatch{Name: "a", UID: "u"}),
		"a condition of a pod without UID": patchCondition(ConditionPatch{Name: "a", Condition: v1.PodCondition{Type: "T"}}),
		"no finalizer of a claim":          patchClaim(FinalizerPatch{Name: "a", UID: "u"}),
		"a policy without UID":             patchPolicy(PolicyPatch{Name: "a", ResourceVersion: "7", Policy: "Delete"}),
		"a policy, despite changes":        patchPolicy(PolicyPatch{Name: "a", UID: "u", Policy: "Delete"}),
		"annotations without UID": patchMetadata(MetadataPatch{Name: "a",
			Annotations: map[string]*string{"x": nil}}),
		"no annotations": patchMetadata(MetadataPatch{Name: "a", UID: "u", ResourceVersion: "7"}),
		"owners, despite changes": patchMetadata(MetadataPatch{Name: "a", UID: "u",
			Owners: new([]metav1.OwnerReference)}),
		"deletion of a claim without UID":      deleteClaim("", "7"),
		"deletion of a claim, despite changes": deleteClaim("u", ""),
		"deletion of a pod without UID":        deletePod(""),
		"no policy":                            patchPolicy(PolicyPatch{Name: "a", UID: "u", ResourceVersion: "7"}),
	} {
		client, sent := answering(t, metav1.Status{})
		if err := write(t.Context(), client); err == nil || len(*sent) > 0 {
			t.Errorf("%s: %v, sent %q", what, err, *sent)
		}
	}
}

func TestMeaningOfAnswers(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, details *metav1.StatusDetails) metav1.Status {
		return metav1.Status{Code: code, Reason: reason, Details: details}
	}
	named := func(name string) metav1.Status {
		return status(404, metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: name})
	}
	about := func(code int32, reason metav1.StatusReason, field string) metav1.Status {
		return status(code, reason,
			&metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.name"}, {Field: field}}})
	}
	const invalid, forbidden = metav1.StatusReasonInvalid, metav1.StatusReasonForbidden
	other := errors.New("neither")
	for name, c := range map[string]struct {
		answer metav1.Status
		// patch and deletion are the meanings of the answer for both.
		patch, deletion error
	}{
		"there is none":                 {named("a"), ErrGone, ErrGone},
		"there is none of another name": {named("b"), other, other},
		"nothing is found":              {status(404, metav1.StatusReasonNotFound, nil), other, other},
		"it has changed":                {status(409, metav1.StatusReasonConflict, nil), ErrChanged, ErrChanged},
		"another has its name":          {about(422, invalid, "metadata.uid"), ErrGone, other},
		"it is terminating":             {about(422, invalid, "metadata.finalizers"), ErrChanged, other},
		"another field is wrong":        {about(422, invalid, "spec"), other, other},
		"nothing is named":              {status(422, invalid, nil), other, other},
		"a policy names the UID":        {about(403, forbidden, "metadata.uid"), other, other},
		"one names its finalizers":      {about(403, forbidden, "metadata.finalizers"), other, other},
		"something went wrong":          {status(500, metav1.StatusReasonInternalError, nil), other, other},
	} {
		t.Run(name, func(t *testing.T) {
			for what, write := range writes {
				client, _ := answering(t, c.answer)
				want := c.patch
				if what[0] == 'D' {
					want = c.deletion
				}
				err := write(t.Context(), client)
				gone, changed := errors.Is(err, ErrGone), errors.Is(err, ErrChanged)
				if err == nil || gone != errors.Is(want, ErrGone) || changed != errors.Is(want, ErrChanged) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
		})
	}
	if concerns(errors.New("connection refused"), "metadata.uid") {
		t.Error("an error that is no answer names a field")
	}
}
