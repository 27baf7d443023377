package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// apiServer answers requests for PVs like an API server, and records them.
type apiServer struct {
	events chan string

	mu    sync.Mutex
	asked []string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case query.Get("watch") != "":
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case name := <-s.events:
				fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", pv(name))
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/persistentvolumes"):
		fmt.Fprintf(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"resourceVersion":%q},"items":[]}`,
			query.Get("resourceVersion"))
	default:
		fmt.Fprint(w, pv("a"))
	}
}

func pv(name string) string {
	data, err := json.Marshal(v1.PersistentVolume{TypeMeta: metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// count returns how often the server was asked for something that begins so.
func (s *apiServer) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.asked {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// stand is a client before a proxy before a server.
type stand struct {
	*apiServer
	t       *testing.T
	proxy   *Proxy
	client  kubernetes.Interface
	crashes chan struct{}
	atCrash func()
	// dial is how the client connects, nil for TCP.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func newStand(t *testing.T, rules ...Rule) *stand {
	t.Helper()
	s := emptyStand(t)
	server := httptest.NewServer(s.apiServer)
	t.Cleanup(server.Close)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	s.begin(listener, &rest.Config{Host: server.URL}, rules...)
	return s
}

// inBubble runs a test with connections that are no sockets, in a synctest bubble: after synctest.Wait all requests
// have come as far as they get.
func inBubble(t *testing.T, test func(t *testing.T, s *stand), rules ...Rule) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := emptyStand(t)
		const buffer = 1 << 16
		beforeServer, beforeProxy := bufconn.Listen(buffer), bufconn.Listen(buffer)
		server := httptest.NewUnstartedServer(s.apiServer)
		_ = server.Listener.Close()
		server.Listener = beforeServer
		server.Start()
		t.Cleanup(server.Close)
		s.dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return beforeProxy.DialContext(ctx) }
		s.begin(beforeProxy, &rest.Config{Host: "http://server",
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return beforeServer.DialContext(ctx) }}, rules...)
		test(t, s)
	})
}

func emptyStand(t *testing.T) *stand {
	return &stand{t: t, apiServer: &apiServer{events: make(chan string, 10)}, crashes: make(chan struct{}, 10),
		atCrash: func() {}}
}

// begin starts the proxy on a listener, before the server.
func (s *stand) begin(listener net.Listener, server *rest.Config, rules ...Rule) {
	s.t.Helper()
	t := s.t
	var err error
	s.proxy, err = start(listener, server, Options{Crash: func() { s.atCrash(); s.crashes <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	must.OK(t, s.proxy.SetRules(rules...))
	s.client = s.newClient()
}

func (s *stand) newClient() kubernetes.Interface {
	s.t.Helper()
	config := s.proxy.Config()
	config.Dial = s.dial
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(httpClient.CloseIdleConnections)
	return client
}

// patience is far above the time of an answer on a busy machine.
const patience = time.Minute

func (s *stand) patch() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, err := s.client.CoreV1().PersistentVolumes().Patch(ctx, "a", types.MergePatchType, []byte(`{}`),
		metav1.PatchOptions{})
	return err
}

func (s *stand) get() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, err := s.client.CoreV1().PersistentVolumes().Get(ctx, "a", metav1.GetOptions{})
	return err
}

func (s *stand) watch() watch.Interface {
	s.t.Helper()
	w, err := s.client.CoreV1().PersistentVolumes().Watch(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Stop)
	return w
}
