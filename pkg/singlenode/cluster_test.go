package singlenode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func serverAt(t *testing.T, config *rest.Config) apiServer {
	t.Helper()
	clients := must.Get(kube.NewClients(config))(t)
	fences := must.Get(client.New(config))(t)
	return apiServer{clients, fences}
}

// answeredBy returns a client whose server answers all calls with answer.
func answeredBy(t *testing.T, answer http.HandlerFunc) apiServer {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return serverAt(t, &rest.Config{Host: server.URL})
}

// The 404 of a proxy that cannot find the API server is no evidence.
func TestNotFoundOnlyFromAPIServer(t *testing.T) {
	kubetest.Absence(t, func(config *rest.Config, fails bool) {
		a := serverAt(t, config)
		for what, read := range map[string]func() (found bool, err error){
			"claim":        func() (bool, error) { _, found, err := a.readClaim(t.Context(), "ns", "data"); return found, err },
			"pod":          func() (bool, error) { _, found, err := a.readPod(t.Context(), "ns", "db-0"); return found, err },
			"StorageClass": func() (bool, error) { _, found, err := a.readClass(t.Context(), "fast"); return found, err },
			"PV":           func() (bool, error) { _, found, err := a.readVolume(t.Context(), "pv"); return found, err },
			"NodeFence":    func() (bool, error) { f, err := a.readFence(t.Context(), "node-1", "pod"); return f.InForce, err },
			"node":         func() (bool, error) { node, err := a.readNode(t.Context(), "node-1"); return node.Found, err },
		} {
			if found, err := read(); found || (err != nil) != fails {
				t.Errorf("%s: found %v, error %v", what, found, err)
			}
		}
		want := map[bool]singlenode.Mode{false: singlenode.ModeOff, true: singlenode.ModeUnknown}[fails]
		if mode, err := a.readMode(t.Context(), "ns"); mode != want || (err != nil) != fails {
			t.Errorf("namespace: mode %v, error %v", mode, err)
		}
	})
}

// A namespace that does not exist asks for nothing.
func TestReadMode(t *testing.T) {
	const labeled = `"metadata":{"labels":{"` + singlenode.Label + `":"`
	for sentence, c := range map[string]struct {
		code int
		body string
		want singlenode.Mode
	}{
		"asks for all locks":  {http.StatusOK, labeled + singlenode.AllValue + `"}}`, singlenode.ModeAll},
		"asks for some locks": {http.StatusOK, labeled + singlenode.SelectedValue + `"}}`, singlenode.ModeSelected},
		"asks for no locks":   {http.StatusOK, `"metadata":{}`, singlenode.ModeOff},
		"does not exist": {http.StatusNotFound,
			`"status":"Failure","reason":"NotFound","code":404,"details":{"name":"ns","kind":"namespaces"}`, singlenode.ModeOff},
	} {
		a := answeredBy(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			kind := map[int]string{http.StatusOK: "Namespace", http.StatusNotFound: "Status"}[c.code]
			_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1",%s}`, kind, c.body)
		})
		if mode, err := a.readMode(t.Context(), "ns"); mode != c.want || err != nil {
			t.Errorf("a namespace that %s: mode %v, %v", sentence, mode, err)
		}
	}
}

// An admission policy may revert a change in the same write.
func TestRevertedWriteFails(t *testing.T) {
	lock := singlenode.Ask{Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7",
		Lock: singlenode.Lock{UID: "p", Name: "db-0"}}
	free := lock
	free.Lock = singlenode.Lock{}
	const ours, other = `{"csi-reclaimer.io/used-by":"p db-0"}`, `{"csi-reclaimer.io/used-by":"q db-1"}`
	const finalizer = `["csi-reclaimer.io/single-node"]`
	for sentence, c := range map[string]struct {
		ask                     singlenode.Ask
		annotations, finalizers string
		undone                  bool
	}{
		"it is locked":             {lock, ours, finalizer, false},
		"the annotation is gone":   {lock, `{}`, finalizer, true},
		"the finalizer is gone":    {lock, ours, `[]`, true},
		"another pod has the lock": {lock, other, finalizer, true},
		"it is free":               {free, `{}`, `[]`, false},
		"the annotation is left":   {free, ours, `[]`, true},
		"the finalizer is left":    {free, `{}`, finalizer, true},
		"no value is left":         {free, `{"csi-reclaimer.io/used-by":""}`, `[]`, true},
		"others' are no matter":    {free, `{"other":"x"}`, `["kubernetes.io/pvc-protection"]`, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			a := answeredBy(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data",`+
					`"annotations":%s,"finalizers":%s}}`, c.annotations, c.finalizers)
			})
			if _, err := a.patchClaim(t.Context(), c.ask); errors.Is(err, kube.ErrUndone) != c.undone || err != nil != c.undone {
				t.Error(err)
			}
		})
	}
	for gates, undone := range map[string]bool{`[]`: false, `[{"name":"other"}]`: false,
		`[{"name":"csi-reclaimer.io/volume"}]`: true} {
		a := answeredBy(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"kind":"Pod","apiVersion":"v1","spec":{"schedulingGates":%s}}`, gates)
		})
		ask := singlenode.Ask{Namespace: "ns", Name: "db-0", UID: "p"}
		if err := a.patchGate(t.Context(), ask); errors.Is(err, kube.ErrUndone) != undone || err != nil != undone {
			t.Errorf("gates %s: %v", gates, err)
		}
	}
	refusing := answeredBy(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	if _, err := refusing.patchClaim(t.Context(), lock); err == nil || errors.Is(err, kube.ErrUndone) {
		t.Error(err)
	}
	if err := refusing.patchGate(t.Context(), lock); err == nil || errors.Is(err, kube.ErrUndone) {
		t.Error(err)
	}
}

func TestPermissions(t *testing.T) {
	reads := []string{"get namespaces", "get persistentvolumeclaims", "get persistentvolumes", "get pods",
		"get storageclasses"}
	for _, kind := range []string{"namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods",
		"storageclasses"} {
		reads = append(reads, "list "+kind, "watch "+kind)
	}
	writes := []string{"patch persistentvolumeclaims", "patch pods"}
	recorder := record.NewFakeRecorder(1)
	for sentence, c := range map[string]struct {
		cfg  Config
		want []string
	}{
		"by default": {Config{}, slices.Concat(reads, writes)},
		"with Events": {Config{Settings: controllers.Settings{Events: recorder}},
			slices.Concat(reads, writes, []string{"create events", "patch events"})},
		"with fences that are no evidence": {Config{WatchFences: true},
			slices.Concat(reads, writes, []string{"list nodefences", "watch nodefences"})},
		"with fences": {Config{Fences: true},
			slices.Concat(reads, writes, []string{"get nodefences", "list nodefences", "watch nodefences", "get nodes"})},
		"a dry run": {Config{Settings: controllers.Settings{Events: recorder, DryRun: true}}, reads},
	} {
		var got []string
		for _, p := range c.cfg.permissions() {
			got = append(got, p.Verb+" "+p.Resource)
			if p.Without == "" || p.Verb != "get" && p.Unsafe != slices.Contains([]string{"list", "watch"}, p.Verb) {
				t.Errorf("%s: %s of %s: %q, unsafe %v", sentence, p.Verb, p.Resource, p.Without, p.Unsafe)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	for _, cfg := range []Config{{UnmountGrace: -1}, {Settings: controllers.Settings{Workers: -1}}} {
		if _, err := New(&rest.Config{Host: "localhost"}, cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no cluster is taken")
	}
}

// The kind NodeFence may not be installed.
func TestNodeFencesAreOptional(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, cfg := range []Config{{}, {WatchFences: true}, {Fences: true}} {
		c := must.Get(New(&rest.Config{Host: "localhost"}, cfg))(t)
		_, none := c.observer.fences.(nodefence.None)
		watched := strings.Contains(fmt.Sprint(c.WaitSynced(gone)), "nodefences")
		if none == cfg.Fences || watched != (cfg.Fences || cfg.WatchFences) {
			t.Errorf("%+v: NodeFences are evidence: %t, and watched: %t", cfg, !none, watched)
		}
	}
}

// The API server refuses the write if another object has the name. Both parts of a lock are in one write.
func TestWritePreconditions(t *testing.T) {
	const lockedNow = `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data",` +
		`"annotations":{"csi-reclaimer.io/used-by":"p db-0"},"finalizers":["csi-reclaimer.io/single-node"]}}`
	const freeNow = `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"data"}}`
	lock := singlenode.Ask{Namespace: "ns", Name: "data", UID: "u", ResourceVersion: "7",
		Lock: singlenode.Lock{UID: "p", Name: "db-0"}}
	free := lock
	free.Lock = singlenode.Lock{}
	gate := singlenode.Ask{Namespace: "ns", Name: "db-0", UID: "p"}
	patchClaim := func(a apiServer, ask singlenode.Ask) error { _, err := a.patchClaim(t.Context(), ask); return err }
	patchGate := func(a apiServer, ask singlenode.Ask) error { return a.patchGate(t.Context(), ask) }
	for sentence, c := range map[string]struct {
		ask          singlenode.Ask
		write        func(apiServer, singlenode.Ask) error
		answer, sent string
	}{
		"a lock is taken": {lock, patchClaim, lockedNow, `{"metadata":{"annotations":` +
			`{"csi-reclaimer.io/used-by":"p db-0"},"finalizers":["csi-reclaimer.io/single-node"],` +
			`"resourceVersion":"7","uid":"u"}}`},
		"a lock is freed": {free, patchClaim, freeNow, `{"metadata":{"$deleteFromPrimitiveList/finalizers":` +
			`["csi-reclaimer.io/single-node"],"annotations":{"csi-reclaimer.io/used-by":null},` +
			`"resourceVersion":"7","uid":"u"}}`},
		"a gate is removed": {gate, patchGate, `{"kind":"Pod","apiVersion":"v1"}`, `{"metadata":{"uid":"p"},` +
			`"spec":{"schedulingGates":[{"$patch":"delete","name":"csi-reclaimer.io/volume"}]}}`},
	} {
		t.Run(sentence, func(t *testing.T) {
			var sent []byte
			a := answeredBy(t, func(w http.ResponseWriter, r *http.Request) {
				sent, _ = io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.answer)
			})
			if err := c.write(a, c.ask); err != nil || string(sent) != c.sent {
				t.Errorf("sent %s, %v", sent, err)
			}
		})
	}
}

// A pod on an unread page would write beside another, so a list is complete or fails.
func TestListsAreComplete(t *testing.T) {
	pods := func(a apiServer) (names []string, err error) {
		err = a.eachPod(t.Context(), "ns", func(o *v1.Pod) { names = append(names, o.Name) })
		return names, err
	}
	claims := func(a apiServer) (names []string, err error) {
		err = a.eachClaim(t.Context(), "ns", func(c *claim) { names = append(names, c.Name) })
		return names, err
	}
	for sentence, c := range map[string]struct {
		list func(apiServer) ([]string, error)
		kind string
		// last is the status of the second page.
		last int
		want []string
	}{
		"pods":                                 {pods, "PodList", http.StatusOK, []string{"a", "b", "c"}},
		"claims":                               {claims, "PersistentVolumeClaimList", http.StatusOK, []string{"a", "b", "c"}},
		"the second page of pods is refused":   {pods, "PodList", http.StatusForbidden, nil},
		"the second page of claims is refused": {claims, "PersistentVolumeClaimList", http.StatusForbidden, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			a := answeredBy(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				page := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: c.kind}}
				names := []string{"a", "b"}
				if r.URL.Query().Get("continue") == "" {
					page.Continue = "next"
				} else {
					w.WriteHeader(c.last)
					names = []string{"c"}
				}
				for _, name := range names {
					page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
				_ = json.NewEncoder(w).Encode(page)
			})
			got, err := c.list(a)
			if (err == nil) != (c.last == http.StatusOK) || err == nil && !slices.Equal(got, c.want) {
				t.Error(fmt.Sprint(got), err)
			}
		})
	}
}
