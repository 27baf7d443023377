package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// watched serves lists and watches of claims and PVs over HTTP from a fake clientset, which has no REST client of its
// own.
type watched struct {
	client kubernetes.Interface
	// codecs have a scheme of their own, because the library writes to client-go's scheme whenever it is created.
	codecs serializer.CodecFactory

	mu sync.Mutex
	// begun has the watches that began before a list, so that no event is lost between the two.
	begun map[string]watch.Interface
}

func newWatched(t *testing.T, client kubernetes.Interface) rest.Interface {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion)
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &watched{client: client, codecs: serializer.NewCodecFactory(scheme), begun: map[string]watch.Interface{}}
	config := &rest.Config{APIPath: "/api", QPS: -1, ContentConfig: rest.ContentConfig{
		GroupVersion: &v1.SchemeGroupVersion, NegotiatedSerializer: w.codecs.WithoutConversion()}}
	core, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: w})
	if err != nil {
		t.Fatal(err)
	}
	return core
}

// RoundTrip answers a list or a watch.
func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := w.list
	if r.URL.Query().Get("watch") == "true" {
		answer = w.watch
	}
	body, err := answer(r.Context(), path.Base(r.URL.Path))
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: body}, nil
}

func (w *watched) begin(ctx context.Context, resource string) (watch.Interface, error) {
	if resource == "persistentvolumes" {
		return w.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	}
	return w.client.CoreV1().PersistentVolumeClaims("").Watch(ctx, metav1.ListOptions{})
}

func (w *watched) list(ctx context.Context, resource string) (io.ReadCloser, error) {
	events, err := w.begin(ctx, resource)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if before := w.begun[resource]; before != nil {
		before.Stop()
	}
	w.begun[resource] = events
	w.mu.Unlock()
	var list runtime.Object
	if resource == "persistentvolumes" {
		list, err = w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	} else {
		list, err = w.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	}
	if err != nil {
		return nil, err
	}
	text, err := w.encode(list)
	return io.NopCloser(bytes.NewReader(text)), err
}

// encode does not change the object, which others may share.
func (w *watched) encode(object runtime.Object) ([]byte, error) {
	return runtime.Encode(w.codecs.LegacyCodec(v1.SchemeGroupVersion), object.DeepCopyObject())
}

// watch streams the events since the last list until the request ends.
func (w *watched) watch(ctx context.Context, resource string) (io.ReadCloser, error) {
	w.mu.Lock()
	events := w.begun[resource]
	delete(w.begun, resource)
	w.mu.Unlock()
	if events == nil {
		var err error
		if events, err = w.begin(ctx, resource); err != nil {
			return nil, err
		}
	}
	read, write := io.Pipe()
	context.AfterFunc(ctx, func() { _ = write.CloseWithError(ctx.Err()) })
	go func() {
		defer events.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-events.ResultChan():
				if !open {
					_ = write.Close()
					return
				}
				raw, err := w.encode(e.Object)
				if err == nil {
					err = json.NewEncoder(write).Encode(metav1.WatchEvent{Type: string(e.Type),
						Object: runtime.RawExtension{Raw: raw}})
				}
				if err != nil {
					_ = write.CloseWithError(err)
					return
				}
			}
		}
	}()
	return read, nil
}
