package leadership

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// server records the requests that reach it by method and path, and answers 404.
func server(t *testing.T) (config *rest.Config, requests func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, r.Method+" "+r.URL.Path)
		mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// body is a request's body that records whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestTransportSendsNoRefusedWrites(t *testing.T) {
	for method, writes := range map[string]bool{
		"": false, "GET": false, "HEAD": false, "OPTIONS": false, "POST": true, "PUT": true, "PATCH": true, "DELETE": true,
		"UNKNOWN": true,
	} {
		for _, with := range []*body{nil, {Reader: strings.NewReader("x")}} {
			request := must.Get(http.NewRequestWithContext(t.Context(), method, "https://server/api/v1/nodes", nil))(t)
			if request.Method = method; with != nil {
				request.Body = with
			}
			sent := false
			next := roundTripper(func(*http.Request) (*http.Response, error) {
				sent = true
				return &http.Response{Body: http.NoBody}, nil
			})
			response, err := Transport(newTerm(0))(next).RoundTrip(request)
			if err == nil {
				err = response.Body.Close()
			}
			if sent == writes || errors.Is(err, ErrExpired) != writes {
				t.Errorf("%q: sent %t, %v", method, sent, err)
			}
			if writes && with != nil && !with.closed {
				t.Errorf("%q: the body stays open", method)
			}
		}
	}
}

func TestTransportRefusesWritesWithoutLease(t *testing.T) {
	for sentence, test := range map[string]struct {
		holder  Holder
		refuses bool
	}{
		"no leader election":     {nil, false},
		"the lease is held":      {newTerm(time.Second), false},
		"the lease ran out":      {newTerm(0), true},
		"the lease was released": {newTerm(-time.Second), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			config, requests := server(t)
			config.Wrap(Transport(test.holder))
			client := must.Get(kubernetes.NewForConfig(config))(t)
			pvs, ctx := client.CoreV1().PersistentVolumes(), t.Context()
			var errs []error
			_, err := pvs.Create(ctx, &v1.PersistentVolume{}, metav1.CreateOptions{})
			errs = append(errs, err)
			_, err = pvs.Update(ctx, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
			errs = append(errs, err)
			_, err = pvs.Patch(ctx, "a", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			errs = append(errs, err, pvs.Delete(ctx, "a", metav1.DeleteOptions{}))
			for _, err := range errs {
				if errors.Is(err, ErrExpired) != test.refuses {
					t.Errorf("a write: %v", err)
				}
			}
			if got := len(requests()); got != 4 && !test.refuses || got != 0 && test.refuses {
				t.Errorf("%d of 4 writes were sent: %v", got, requests())
			}
			// Requests that store nothing are always sent.
			if _, err := pvs.Get(ctx, "a", metav1.GetOptions{}); errors.Is(err, ErrExpired) {
				t.Error(err)
			}
			for _, path := range []string{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				"/apis/authentication.k8s.io/v1/tokenreviews"} {
				if err := client.RESTClient().Post().AbsPath(path).Body([]byte(`{}`)).Do(ctx).Error(); errors.Is(err, ErrExpired) {
					t.Errorf("%s: %v", path, err)
				}
			}
			posts := slices.DeleteFunc(requests(), func(r string) bool { return !strings.Contains(r, "reviews") })
			if len(posts) != 2 {
				t.Errorf("of the questions there came %v", posts)
			}
		})
	}
}

func TestRecorderDropsEventsWithoutLease(t *testing.T) {
	for _, test := range []struct {
		holder Holder
		want   int
	}{{nil, 3}, {newTerm(1), 3}, {newTerm(0), 0}} {
		fake := record.NewFakeRecorder(3)
		events, pv := Recorder(test.holder, fake), &v1.PersistentVolume{}
		events.Event(pv, v1.EventTypeNormal, "A", "a")
		events.Eventf(pv, v1.EventTypeNormal, "A", "a")
		events.AnnotatedEventf(pv, nil, v1.EventTypeNormal, "A", "a")
		if got := len(fake.Events); got != test.want {
			t.Errorf("holder %v: %d Events, want %d", test.holder, got, test.want)
		}
	}
}
