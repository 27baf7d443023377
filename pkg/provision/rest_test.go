package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restfake "k8s.io/client-go/rest/fake"
)

// watched serves lists and watches of claims and PVs over HTTP, from a fake clientset, which has no
// REST client of its own.
type watched struct {
	client kubernetes.Interface

	mu sync.Mutex
	// begun are the watches that began before a list, so that nothing is lost between the two.
	begun map[string]watch.Interface
}

func newWatched(client kubernetes.Interface) rest.Interface {
	w := &watched{client: client, begun: map[string]watch.Interface{}}
	return &restfake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(), GroupVersion: v1.SchemeGroupVersion, VersionedAPIPath: "/api/v1",
		Client: restfake.CreateHTTPClient(w.answer),
	}
}

func (w *watched) answer(r *http.Request) (*http.Response, error) {
	answer := w.list
	if r.URL.Query().Get("watch") == "true" {
		answer = w.watch
	}
	body, err := answer(r.Context(), path.Base(r.URL.Path))
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
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
	text, err := encode(list)
	return io.NopCloser(bytes.NewReader(text)), err
}

func encode(object runtime.Object) ([]byte, error) {
	return runtime.Encode(scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion), object)
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
				raw, err := encode(e.Object)
				if err == nil {
					err = json.NewEncoder(write).Encode(metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}})
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
