package singlenode

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

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
