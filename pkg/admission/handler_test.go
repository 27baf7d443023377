package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// cluster is the content that a Reader finds.
type cluster struct {
	pods   map[string]*v1.Pod
	claims map[string]*v1.PersistentVolumeClaim
	fail   error
	// failing is the one claim that cannot be read.
	failing string
}

func (c cluster) Pod(_ context.Context, namespace, name string) (*v1.Pod, bool, error) {
	if c.fail != nil {
		return nil, false, c.fail
	}
	pod, found := c.pods[namespace+"/"+name]
	return pod, found, nil
}

func (c cluster) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, bool, error) {
	if until, bounded := ctx.Deadline(); !bounded || time.Until(until) > timeoutSeconds*time.Second {
		return nil, false, errors.New("a read that may take for ever")
	}
	if name == c.failing {
		return nil, false, errors.New("cannot be read")
	}
	if c.fail != nil {
		return nil, false, c.fail
	}
	claim, found := c.claims[namespace+"/"+name]
	return claim, found, nil
}

func request(resource, subresource string, object any) *admissionv1.AdmissionRequest {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &admissionv1.AdmissionRequest{
		UID: "review", Namespace: "ns", Name: "web-0", Object: runtime.RawExtension{Raw: raw},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource}, SubResource: subresource,
	}
}

// send posts a review like the API server.
func send(t *testing.T, h http.Handler, path string, of *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: of,
	})
	if err != nil {
		t.Fatal(err)
	}
	code, answer := post(h, http.MethodPost, path, "application/json; charset=utf-8", bytes.NewReader(body))
	if code != http.StatusOK {
		t.Fatalf("answered %d: %s", code, answer)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer, &review); err != nil {
		t.Fatal(err)
	}
	if review.Response == nil || review.Response.UID != "review" || review.Kind != "AdmissionReview" ||
		review.APIVersion != "admission.k8s.io/v1" {
		t.Fatalf("answered %s", answer)
	}
	return review.Response
}

func post(h http.Handler, method, path, contentType string, body io.Reader) (code int, answer []byte) {
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

func handler(c cluster) http.Handler {
	return Handler(func() Drivers { return known }, c)
}

func TestPVWebhook(t *testing.T) {
	h := handler(cluster{})
	for sentence, c := range pvCases {
		t.Run(sentence, func(t *testing.T) {
			pv := bound()
			c.change(pv)
			asked := request("persistentvolumes", "", pv)
			got := send(t, h, pathPVs, asked)
			if !got.Allowed || (got.Patch == nil) != (c.want == "") {
				t.Fatalf("allowed %v, patch %s, want %q", got.Allowed, got.Patch, c.want)
			}
			if c.want == "" {
				return
			}
			if got.PatchType == nil || *got.PatchType != admissionv1.PatchTypeJSONPatch {
				t.Fatalf("patch type %v", got.PatchType)
			}
			var ops []string
			for _, f := range strings.Fields(c.want) {
				ops = append(ops, `{"op":"add","path":"/metadata/finalizers/-","value":"`+f+`"}`)
			}
			want := `[` + strings.Join(ops, ",") + `]`
			if len(pv.Finalizers) == 0 { // no list to append to
				want = `[{"op":"add","path":"/metadata/finalizers","value":["` + strings.ReplaceAll(c.want, " ", `","`) + `"]}]`
			}
			if string(got.Patch) != want {
				t.Errorf("patch %s, want %s", got.Patch, want)
			}
		})
	}
	for sentence, other := range map[string]*admissionv1.AdmissionRequest{
		"its status":       request("persistentvolumes", "status", bound()),
		"another resource": request("persistentvolumeclaims", "", bound()),
	} {
		if got := send(t, h, pathPVs, other); !got.Allowed || got.Patch != nil {
			t.Errorf("%s: %+v", sentence, got)
		}
	}
}

func TestNewPodWebhooks(t *testing.T) {
	h := handler(cluster{})
	claim := []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}
	seconds := func(n int64) v1.PodSpec { return v1.PodSpec{TerminationGracePeriodSeconds: &n} }
	without := seconds(0)
	without.Volumes = claim
	const (
		first    = `{"op":"add","path":"/metadata/finalizers","value":["csi-reclaimer.io/running"]}`
		more     = `{"op":"add","path":"/metadata/finalizers/-","value":"csi-reclaimer.io/running"}`
		grace    = `{"op":"replace","path":"/spec/terminationGracePeriodSeconds","value":1}`
		gate     = `{"op":"add","path":"/spec/schedulingGates","value":[{"name":"csi-reclaimer.io/volume"}]}`
		moreGate = `{"op":"add","path":"/spec/schedulingGates/-","value":{"name":"csi-reclaimer.io/volume"}}`
	)
	for sentence, c := range map[string]struct {
		pod        v1.Pod
		hold, gate string
	}{
		"with a claim":    {v1.Pod{Spec: v1.PodSpec{Volumes: claim}}, "[" + first + "]", "[" + gate + "]"},
		"without a claim": {v1.Pod{Spec: seconds(30)}, "", ""},
		"with a claim and a finalizer": {v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"other"}},
			Spec: v1.PodSpec{Volumes: claim}}, "[" + more + "]", "[" + gate + "]"},
		"with a claim and a gate": {v1.Pod{Spec: v1.PodSpec{Volumes: claim,
			SchedulingGates: []v1.PodSchedulingGate{{Name: "other"}}}}, "[" + first + "]", "[" + moreGate + "]"},
		"with a claim and a node":    {v1.Pod{Spec: v1.PodSpec{Volumes: claim, NodeName: "a"}}, "[" + first + "]", ""},
		"without grace":              {v1.Pod{Spec: seconds(0)}, "[" + grace + "]", ""},
		"with a claim without grace": {v1.Pod{Spec: without}, "[" + first + "," + grace + "]", "[" + gate + "]"},
	} {
		asked := request("pods", "", c.pod)
		asked.Operation = admissionv1.Create
		for path, want := range map[string]string{pathPodHold: c.hold, pathPodGate: c.gate} {
			got := send(t, h, path, asked)
			if !got.Allowed || string(got.Patch) != want || (got.PatchType != nil) != (want != "") {
				t.Errorf("%s at %s: allowed %v, patch %s, want %s", sentence, path, got.Allowed, got.Patch, want)
			}
		}
	}
	changed := v1.Pod{Spec: without}
	update, status := request("pods", "", changed), request("pods", "status", changed)
	other := request("secrets", "", changed)
	update.Operation, status.Operation, other.Operation = admissionv1.Update, admissionv1.Create, admissionv1.Create
	broken := request("pods", "", "no pod")
	broken.Operation = admissionv1.Create
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: broken,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pathPodHold, pathPodGate} {
		for _, asked := range []*admissionv1.AdmissionRequest{update, status, other} {
			if got := send(t, h, path, asked); !got.Allowed || got.Patch != nil {
				t.Errorf("%s of %s %s at %s: %+v", asked.Operation, asked.Resource.Resource, asked.SubResource, path, got)
			}
		}
		code, _ := post(h, http.MethodPost, path, "application/json", bytes.NewReader(body))
		if code != http.StatusBadRequest {
			t.Errorf("what is no pod at %s: answered %d", path, code)
		}
	}
}

func TestPodBindingWebhook(t *testing.T) {
	const refused = "PVC (data) is in scheduled for deletion state"
	there := cluster{
		pods:   map[string]*v1.Pod{"ns/web-0": pod()},
		claims: map[string]*v1.PersistentVolumeClaim{"ns/data": terminating("data")},
	}
	binding := request("pods", "binding", v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"},
		Target: v1.ObjectReference{Name: "node"}})
	legacy := request("bindings", "", v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"},
		Target: v1.ObjectReference{Name: "node"}})
	legacy.Name = "" // the API server sends it so: the path names no pod
	elsewhere := request("bindings", "", v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}})
	elsewhere.Resource.Group = "example.com"
	later := request("bindings", "", v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}})
	later.Resource.Version = "v2"
	unscheduled := pod()
	unscheduled.Spec.NodeName = ""
	nameless := pod()
	nameless.Namespace = "" // the API server sends it so
	with := func(change func(*cluster)) cluster { c := there; change(&c); return c }
	cases := map[string]struct {
		at      cluster
		request *admissionv1.AdmissionRequest
		refused string
		warned  bool
	}{
		"a pod is bound whose claim is being deleted": {there, binding, refused, false},
		"a pod is bound by the legacy resource":       {there, legacy, refused, false},
		"a pod that is gone is bound by it":           {with(func(c *cluster) { c.pods = nil }), legacy, "", false},
		"a resource of the name in another group":     {there, elsewhere, "", false},
		"a resource of the name in another version":   {there, later, "", false},
		"a pod is made on a node whose claim is":      {there, request("pods", "", nameless), refused, false},
		"a pod is made without a node":                {there, request("pods", "", unscheduled), "", false},
		"a pod is bound that is gone":                 {with(func(c *cluster) { c.pods = nil }), binding, "", false},
		"its claims are gone": {with(func(c *cluster) { c.claims = nil }), binding, "",
			false},
		"another subresource": {there, request("pods", "status", nameless), "", false},
		"another resource":    {there, request("deployments", "", nameless), "", false},
		"nothing can be read": {with(func(c *cluster) { c.fail = errors.New("timeout") }),
			binding, "", true},
		"no claim can be read": {with(func(c *cluster) { c.fail = errors.New("timeout") }),
			request("pods", "", nameless), "", true},
		"a claim is being deleted and another cannot be read": {with(func(c *cluster) { c.failing = "web-0-cache" }),
			binding, refused, false},
		"the claim that is being deleted cannot be read": {with(func(c *cluster) { c.failing = "data" }), binding, "",
			true},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			for range 5 { // claims are read in random order
				got := send(t, handler(c.at), pathPods, c.request)
				if got.Allowed != (c.refused == "") || (len(got.Warnings) > 0) != c.warned {
					t.Fatalf("allowed %v, warnings %q", got.Allowed, got.Warnings)
				}
				if c.refused != "" && (got.Result == nil || got.Result.Message != c.refused ||
					got.Result.Code != http.StatusForbidden) {
					t.Fatalf("refused by %+v, want %q", got.Result, c.refused)
				}
			}
		})
	}
}

func TestMalformedReviews(t *testing.T) {
	good := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"version":"v1","resource":"persistentvolumes"},"object":{}}}`
	cases := map[string]struct {
		method, kind, body string
		want               int
	}{
		"a review":       {http.MethodPost, "application/json", good, http.StatusOK},
		"a visit":        {http.MethodGet, "application/json", good, http.StatusMethodNotAllowed},
		"another format": {http.MethodPost, "application/yaml", good, http.StatusUnsupportedMediaType},
		"no format":      {http.MethodPost, "", good, http.StatusUnsupportedMediaType},
		"a format with a parameter of no value": {http.MethodPost, "application/json; charset", good,
			http.StatusUnsupportedMediaType},
		"a name that is no text": {http.MethodPost, "application/json", strings.Replace(good, `"uid"`, `"name":7,"uid"`, 1),
			http.StatusBadRequest},
		"a review and more": {http.MethodPost, "application/json", good + "]", http.StatusBadRequest},
		"nothing":           {http.MethodPost, "application/json", "", http.StatusBadRequest},
		"no JSON":           {http.MethodPost, "application/json", "]", http.StatusBadRequest},
		"another kind": {http.MethodPost, "application/json",
			strings.Replace(good, "AdmissionReview", "Review", 1), http.StatusBadRequest},
		"another version": {http.MethodPost, "application/json",
			strings.Replace(good, "io/v1", "io/v1beta1", 1), http.StatusBadRequest},
		"no request": {http.MethodPost, "application/json",
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		"no UID": {http.MethodPost, "application/json", strings.Replace(good, `"u"`, `""`, 1),
			http.StatusBadRequest},
		"no object": {http.MethodPost, "application/json", strings.Replace(good, `,"object":{}`, "", 1),
			http.StatusBadRequest},
		"an object of another shape": {http.MethodPost, "application/json",
			strings.Replace(good, `"object":{}`, `"object":{"spec":7}`, 1), http.StatusBadRequest},
		"more than any review can be": {http.MethodPost, "application/json", good + strings.Repeat(" ", maxBody),
			http.StatusRequestEntityTooLarge},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			if code, answer := post(handler(cluster{}), c.method, pathPVs, c.kind, strings.NewReader(c.body)); code != c.want {
				t.Errorf("answered %d, want %d: %s", code, c.want, answer)
			}
		})
	}
	for resource, object := range map[string]string{"pods": `{"spec":7}`, "bindings": `{"target":7}`} {
		body := strings.NewReplacer("persistentvolumes", resource, `"object":{}`, `"object":`+object).Replace(good)
		if code, answer := post(handler(cluster{}), http.MethodPost, pathPods, "application/json",
			strings.NewReader(body)); code != http.StatusBadRequest {
			t.Errorf("one of %s of another shape: answered %d: %s", resource, code, answer)
		}
	}
	if code, _ := post(handler(cluster{}), http.MethodPost, pathPVs, "application/json",
		iotest.ErrReader(io.ErrUnexpectedEOF)); code != http.StatusInternalServerError {
		t.Errorf("a request that is cut off: %d", code)
	}
	if code, _ := post(handler(cluster{}), http.MethodPost, "/", "application/json",
		strings.NewReader(good)); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
}

// FuzzReview sends bodies of any shape: the webhooks must not panic, and must send a readable answer.
func FuzzReview(f *testing.F) {
	for _, seed := range []*admissionv1.AdmissionRequest{
		request("persistentvolumes", "", bound()), request("pods", "", pod()),
		request("pods", "binding", v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}),
		request("bindings", "", v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}}),
	} {
		body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1",
			Kind: "AdmissionReview"}, Request: seed})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	h := handler(cluster{pods: map[string]*v1.Pod{"ns/web-0": pod()},
		claims: map[string]*v1.PersistentVolumeClaim{"ns/data": terminating("data")}})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{pathPVs, pathPods, pathPodHold, pathPodGate} {
			code, answer := post(h, http.MethodPost, path, "application/json", bytes.NewReader(body))
			var review admissionv1.AdmissionReview
			if code == http.StatusOK && (json.Unmarshal(answer, &review) != nil || review.Response == nil ||
				review.Response.UID == "") {
				t.Errorf("answered %s", answer)
			}
			if code != http.StatusOK && code != http.StatusBadRequest {
				t.Errorf("answered %d: %s", code, answer)
			}
		}
	})
}
