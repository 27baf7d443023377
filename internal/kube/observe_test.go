package kube

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// refusing is a network whose first connections are refused.
type refusing struct {
	http.RoundTripper
	left atomic.Int64
}

func (r *refusing) RoundTrip(q *http.Request) (*http.Response, error) {
	if r.left.Add(-1) >= 0 {
		return nil, syscall.ECONNREFUSED
	}
	return r.RoundTripper.RoundTrip(q)
}

// observed returns a source that asks a server, whose first connections are refused, and the outcomes of its requests.
func observed(
	t *testing.T, handler http.HandlerFunc, refused int64, retry time.Duration,
) (*source, chan error) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	clients, err := NewClients(&rest.Config{Host: server.URL, WrapTransport: func(to http.RoundTripper) http.RoundTripper {
		r := &refusing{RoundTripper: to}
		r.left.Store(refused)
		return r
	}})
	if err != nil {
		t.Fatal(err)
	}
	cache := NewCache(clients.Storage.RESTClient(), "csidrivers", &storagev1.CSIDriver{},
		func(runtime.Object, bool) (string, bool, error) { return "", true, nil }, nothing{})
	outcomes := make(chan error, 100)
	cache.Observe(func(err error) { outcomes <- err }, retry)
	return cache.source, outcomes
}

func noDrivers(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"kind":"CSIDriverList","apiVersion":"storage.k8s.io/v1","items":[]}`))
}

func TestAnswerIsReportedAndReturned(t *testing.T) {
	from, outcomes := observed(t, http.NotFound, 0, time.Hour)
	if _, err := from.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the reflector gets %v", err)
	}
	if err := <-outcomes; !apierrors.IsNotFound(err) {
		t.Errorf("reported is %v", err)
	}
}

func TestUnansweredRequestIsRepeated(t *testing.T) {
	from, outcomes := observed(t, noDrivers, 3, time.Millisecond)
	if _, err := from.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := <-outcomes; err == nil {
			t.Errorf("request %d: no failure is reported", i)
		}
	}
	if err := <-outcomes; err != nil {
		t.Errorf("reported last is %v", err)
	}
}

func TestNoRepetitionWithoutRetry(t *testing.T) {
	from, outcomes := observed(t, noDrivers, 1, 0)
	if _, err := from.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("no error")
	}
	if err := <-outcomes; err == nil {
		t.Error("no error is reported")
	}
}

func TestRetriesEndWithContext(t *testing.T) {
	from, outcomes := observed(t, noDrivers, 1, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := from.WatchWithContext(ctx, metav1.ListOptions{})
		ended <- err
	}()
	if err := <-outcomes; err == nil {
		t.Error("no failure is reported")
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(time.Minute):
		t.Fatal("it has not ended")
	}
}

// Some program accepts connections in front of an unavailable API server.
func TestWatchWithoutAnswerFails(t *testing.T) {
	from, outcomes := observed(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, 0)
	if _, err := from.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("no error")
	}
	if err := <-outcomes; err == nil {
		t.Error("no error is reported")
	}
}

// A watch without changes sends bookmarks.
func TestWordsOfWatchAreReported(t *testing.T) {
	cache := NewCache(noServer, "persistentvolumes", &v1.PersistentVolume{}, recordText, nothing{})
	var reports []error
	cache.Observe(func(err error) { reports = append(reports, err) }, 0)
	to := store[string]{cache}
	must.OK(t, to.Replace(nil, "1"))
	must.OK(t, to.Add(pv("a", "2", "x")))
	must.OK(t, to.Update(pv("a", "3", "y")))
	must.OK(t, to.Delete(pv("a", "4", "y")))
	must.OK(t, to.Bookmark("5"))
	if len(reports) != 5 || errors.Join(reports...) != nil {
		t.Errorf("reported are %v", reports)
	}
}
