// Package commandline runs commands of kubectl-reclaim in tests, with the input of a person, against a server with the
// test's objects.
package commandline

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// Root creates the command whose subcommands are tested. isTerminal reports whether a stream is a terminal.
type Root func(streams genericiooptions.IOStreams, isTerminal func(any) bool) *cobra.Command

// Typing is the input of a person. Before is called before the first read.
type Typing struct {
	Text   io.Reader
	Before func()
}

func (r *Typing) Read(p []byte) (int, error) {
	if r.Before != nil {
		r.Before()
		r.Before = nil
	}
	return r.Text.Read(p)
}

// Person returns the input of a person who types an answer in a terminal. change, if it is set, changes the server,
// which mu guards, before the answer. Without an answer, the input is no terminal.
func Person[S any](answer string, server S, mu sync.Locker, change func(S)) *Typing {
	if answer == "" {
		return &Typing{}
	}
	return &Typing{Text: strings.NewReader(answer), Before: func() {
		mu.Lock()
		defer mu.Unlock()
		if change != nil {
			change(server)
		}
	}}
}

func noTerminal(any) bool { return false }

// Discard returns a command without output.
func (r Root) Discard() *cobra.Command {
	return r(genericiooptions.NewTestIOStreamsDiscard(), noTerminal)
}

// Run runs a command line and returns its output.
func (r Root) Run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := r(streams, noTerminal)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// In runs a command line with this input and returns all of its output.
func (r Root) In(t *testing.T, input string, args ...string) (said string, err error) {
	t.Helper()
	streams, stdin, out, errOut := genericiooptions.NewTestIOStreams()
	stdin.WriteString(input)
	cmd := r(streams, noTerminal)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String() + errOut.String(), err
}

// Against runs a command line against a server, as Command does, and returns all of its output.
func (r Root) Against(t *testing.T, server http.Handler, typed *Typing, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := r.Command(t, &out, server, typed, args...).ExecuteContext(t.Context())
	return out.String(), err
}

// ClusterContext is the current context of Kubeconfig.
const ClusterContext = "prod-eu"

// Kubeconfig returns the flag with a kubeconfig file whose current context is a server.
func Kubeconfig(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := api.Config{CurrentContext: ClusterContext,
		Contexts: map[string]*api.Context{ClusterContext: {Cluster: "served"}},
		Clusters: map[string]*api.Cluster{"served": {Server: server}}}
	must.OK(t, clientcmd.WriteToFile(config, file))
	return "--kubeconfig=" + file
}

// Command returns a command line against a server, in namespace shop, with typed as input. The input is a terminal if
// typed has a text.
func (r Root) Command(t *testing.T, out io.Writer, handler http.Handler, typed *Typing, args ...string) *cobra.Command {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	cmd := r(genericiooptions.IOStreams{In: typed, Out: out, ErrOut: out}, func(any) bool { return typed.Text != nil })
	cmd.SetArgs(append(args, Kubeconfig(t, server.URL), "--namespace=shop"))
	return cmd
}

// listKinds are the kinds of lists, by resource.
var listKinds = map[string]string{"persistentvolumes": "PersistentVolumeList", "pods": "PodList", "nodes": "NodeList",
	"persistentvolumeclaims": "PersistentVolumeClaimList", "volumeattachments": "VolumeAttachmentList",
	"csidrivers": "CSIDriverList", "csinodes": "CSINodeList", "storageclasses": "StorageClassList",
	"leases": "LeaseList", "namespaces": "NamespaceList", "nodefences": "NodeFenceList", "events": "EventList",
	"statefulsets": "StatefulSetList", "fencepolicies": "FencePolicyList"}

// Server serves GETs and paged lists of objects, and records the requests. A watch lasts until the client ends
// it.
type Server struct {
	objects map[string][]runtime.Object
	// Forbidden are resources that may not be read, and Unserved resources that the API server does not have.
	Forbidden, Unserved []string

	mu       sync.Mutex
	requests []string
}

// Add adds objects of a resource.
func (s *Server) Add(resource string, all ...runtime.Object) {
	if s.objects == nil {
		s.objects = map[string][]runtime.Object{}
	}
	s.objects[resource] = append(s.objects[resource], all...)
}

// place is the target of a path: a resource, its namespace if it has one, and the object unless it is a list.
type place struct{ version, resource, namespace, name string }

func placeOf(path string) (p place) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		p.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		p.version, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return p
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		p.namespace, parts = parts[1], parts[2:]
	}
	if p.resource = parts[0]; len(parts) > 1 {
		p.name = parts[1]
	}
	return p
}

// Requests returns the requests so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, query := placeOf(r.URL.Path), r.URL.Query()
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/version":
		Answer(w, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
	case slices.Contains(s.Unserved, p.resource):
		http.NotFound(w, r)
	case listKinds[p.resource] == "":
		Refuse(w, http.StatusNotFound)
	case slices.Contains(s.Forbidden, p.resource):
		Refuse(w, http.StatusForbidden)
	case query.Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case p.name != "":
		s.get(w, p)
	default:
		s.list(w, p, query)
	}
}

// chosen returns the objects of a place, and of a field selector for a name.
func (s *Server) chosen(p place, query url.Values) (all []runtime.Object) {
	name, selects := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	for _, o := range s.objects[p.resource] {
		about, _ := meta.Accessor(o)
		if (p.namespace == "" || about.GetNamespace() == p.namespace) && (!selects || about.GetName() == name) &&
			query.Get("labelSelector") == "" && !strings.Contains(query.Get("fieldSelector"), "involvedObject") {
			all = append(all, o)
		}
	}
	return all
}

func (s *Server) list(w http.ResponseWriter, p place, query url.Values) {
	all := s.chosen(p, query)
	from, _ := strconv.Atoi(query.Get("continue"))
	to, next := len(all), ""
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		next = strconv.Itoa(to)
	}
	Answer(w, map[string]any{"kind": listKinds[p.resource], "apiVersion": p.version, "items": all[from:to],
		"metadata": map[string]string{"resourceVersion": "9", "continue": next}})
}

func (s *Server) get(w http.ResponseWriter, p place) {
	for _, o := range s.chosen(place{resource: p.resource, namespace: p.namespace}, nil) {
		if about, _ := meta.Accessor(o); about.GetName() == p.name {
			text, _ := json.Marshal(o)
			var fields map[string]any
			_ = json.Unmarshal(text, &fields)
			fields["kind"], fields["apiVersion"] = strings.TrimSuffix(listKinds[p.resource], "List"), p.version
			Answer(w, fields)
			return
		}
	}
	Refuse(w, http.StatusNotFound)
}

// Gets returns the requests for single objects of a resource.
func (s *Server) Gets(resource string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if p := placeOf(strings.TrimPrefix(request, "GET ")); p.resource == resource && p.name != "" {
			all = append(all, request)
		}
	}
	return all
}

const (
	// Driver is the driver of all PVs.
	Driver = "disk.csi.example.com"
	// LongPVName is the name of a PV of SomethingWaits.
	LongPVName = "pvc-8a5c0f1e-6f0e-4a55-9c5e-2f2d6f7b8a01"
)

// Since returns a time that is a little longer ago than d.
func Since(d time.Duration) *metav1.Time {
	at := metav1.NewTime(time.Now().Add(-d - time.Second))
	return &at
}

// BoundPV is a PV of Driver and the claim to which it is bound.
func BoundPV(name, namespace, claim string) (*v1.PersistentVolume, *v1.PersistentVolumeClaim) {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name),
		ResourceVersion: "1", Finalizers: []string{volume.Finalizer},
		Annotations: map[string]string{volume.AnnProvisionedBy: Driver}},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef: &v1.ObjectReference{Namespace: namespace, Name: claim, UID: types.UID("uid-" + claim)},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: Driver,
				VolumeHandle: "vol-" + name}}},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
	return pv, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: claim,
		UID: types.UID("uid-" + claim), ResourceVersion: "1", CreationTimestamp: *Since(48 * time.Hour)},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: name}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
}

// SomethingWaits is a cluster in which an object of each kind waits: in namespace shop the PV of data-db-0, which was
// deleted while bound, the claim new, the pod db-0 and the lock of data; in no namespace the fence of node n1.
func SomethingWaits(t *testing.T) *Server {
	t.Helper()
	s := &Server{}
	s.Add("csidrivers", &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: Driver}})
	pv, claim := BoundPV(LongPVName, "shop", "data-db-0")
	pv.DeletionTimestamp = Since(3 * time.Hour)
	settled, itsClaim := BoundPV("settled", "shop", "settled")
	s.Add("persistentvolumes", pv, settled)
	pending := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new", UID: "uid-new",
		ResourceVersion: "1", CreationTimestamp: *Since(11 * time.Minute)},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast")}, Status: v1.PersistentVolumeClaimStatus{
			Phase: v1.ClaimPending}}
	locked := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid-data",
		ResourceVersion: "1", Annotations: map[string]string{singlenode.LockAnnotation: "uid-web web"},
		Finalizers: []string{singlenode.Finalizer}}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "settled"},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	s.Add("persistentvolumeclaims", claim, itsClaim, pending, locked)
	s.Add("namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop",
		Labels: map[string]string{singlenode.Label: "all"}}})
	uses := func(name, claim, node string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
			ResourceVersion: "1", CreationTimestamp: *Since(20 * time.Minute), Finalizers: []string{objects.RunningFinalizer}},
			Spec: v1.PodSpec{NodeName: node, Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
			Status: v1.PodStatus{Phase: v1.PodRunning}}
	}
	db, web, next := uses("db-0", "data-db-0", "n1"), uses("web", "data", "n2"), uses("web-next", "data", "")
	db.DeletionTimestamp, db.DeletionGracePeriodSeconds = Since(10*time.Minute), ptr.To[int64](0)
	next.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: objects.VolumeGate}}
	next.Status.Phase = v1.PodPending
	s.Add("pods", db, web, next)
	for name, ready := range map[string]v1.ConditionStatus{"n1": v1.ConditionUnknown, "n2": v1.ConditionTrue} {
		s.Add("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
				{Type: v1.NodeReady, Status: ready, LastTransitionTime: *Since(15 * time.Minute)}}}})
	}
	s.Add("nodefences", &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-fence",
		ResourceVersion:   "1",
		CreationTimestamp: *Since(time.Minute)}, Spec: v1alpha1.NodeFenceSpec{Reason: "it is dead"}})
	s.Add("leases", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "csi-reclaimer", Name: "volume-guard"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("guard-0"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))}})
	return s
}

// Answer answers a request with an object.
func Answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

// Refuse answers a request with an error.
func Refuse(w http.ResponseWriter, code int) {
	reasons := map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: "refused"})
}
