//go:build unix

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
)

const (
	// entryKey begins the annotation of an entry of the in-flight log.
	entryKey = "in-flight.csi-reclaimer.io/"
	// nodeKey and zoneKey are the topology keys of each node.
	nodeKey, zoneKey = "topology." + driverName + "/node", "topology.kubernetes.io/zone"
	// creating is how long the driver takes for a volume, any number at once.
	creating = 100 * time.Millisecond

	// The beginnings of figures' names; a number of segments follows.
	inFlightEntry, inFlightPut = "in_flight_entry_bytes_", "in_flight_put_bytes_"
	inFlightVolume             = "in_flight_bytes_per_volume_"

	// wholeEntries has the bytes for each volume at 3 segments, measured with the same load, of a log whose entries hold
	// all topologies without compression.
	wholeEntries = 6400
)

// segments are the numbers of topology segments, one for each node.
func segments() []int { return []int{3, 100, 1000, 5000} }

func inFlightFamilies() []family {
	const load = "500 claims (--quick: 100) that 16 users' connections make at once, and that are deleted once all are " +
		"Bound; the driver takes 100 ms for CreateVolume, any number at once, and has 5 minutes for a call; %s. " +
		"csi-reclaimer's requests pass a proxy that keeps the bodies of its PUTs to the Leases of the in-flight log. "
	var figures []report.Figure
	for _, n := range segments() {
		at := fmt.Sprintf(load, fmt.Sprintf("%d nodes, each with a topology segment of two keys", n))
		end := fmt.Sprint(n)
		figures = append(figures,
			report.Figure{Name: inFlightEntry + end, Unit: "bytes", Load: at + "Median of the entries: key and value."},
			report.Figure{Name: inFlightPut + end, Unit: "bytes", Load: at + "Median of the PUTs."},
			report.Figure{Name: inFlightVolume + end, Unit: "bytes", Load: at + "All PUTs, for each volume. At most " +
				"twice the bytes that whole entries, without compression, take at 3 segments.",
				Goals: []report.Goal{report.AtMost(2 * wholeEntries)}})
	}
	return []family{{name: "in_flight", plane: working, uncosted: true, run: measureInFlight, figures: figures}}
}

func measureInFlight(ctx context.Context, s *session) (err error) {
	// Nodes and driver stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.closeEnvironment()) }()
	puts, err := s.env.keepPuts()
	if err != nil {
		return err
	}
	defer puts.server.Close()
	names := nodeNames(5000)
	if err := s.env.placeDriver(ctx, names[0]); err != nil {
		return err
	}
	made := 0
	for _, n := range segments() {
		if err := s.env.makeNodes(ctx, names[made:n]); err != nil {
			return err
		}
		made = n
		for range s.Runs {
			if err := s.inFlight(ctx, puts, fmt.Sprint(n), s.size(500, 100)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inFlight has csi-reclaimer create and delete n volumes, and records its PUT requests.
func (s *session) inFlight(ctx context.Context, puts *puts, segments string, n int) error {
	// At the default of 10 seconds a driver that is short of processor time would miss deadlines, and be asked again.
	ours := subject.Ours("--timeout=" + patience.String())
	err := s.withSubject(ctx, ours, func(ctx context.Context, _ subject.Running) error {
		puts.take()
		_, err := s.round(ctx, n, pvFirst, false)
		return err
	})
	if err != nil {
		return err
	}
	all, err := writtenIn(puts.take())
	if err != nil {
		return err
	}
	if len(all.entries) < n {
		return fmt.Errorf("%d entries were written for %d volumes", len(all.entries), n)
	}
	s.record(inFlightEntry+segments, report.Ours, report.Median(all.entries))
	s.record(inFlightPut+segments, report.Ours, report.Median(all.puts))
	s.record(inFlightVolume+segments, report.Ours, all.total/float64(n))
	return nil
}

// nodeNames returns names like EC2's, always the same.
func nodeNames(n int) (names []string) {
	r, seen := rand.New(rand.NewPCG(1, 2)), map[string]bool{}
	for len(names) < n {
		name := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", r.IntN(4), r.IntN(256), r.IntN(256))
		if !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	return names
}

// zoneOf returns the zone of a node.
func zoneOf(node string) string {
	return "eu-central-1" + string("abc"[crc32.ChecksumIEEE([]byte(node))%3])
}

// makeNodes makes nodes with the driver, each with a topology segment of its own.
func (env *environment) makeNodes(ctx context.Context, names []string) error {
	err := env.each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		of := metav1.ObjectMeta{Name: names[i], Labels: map[string]string{nodeKey: names[i], zoneKey: zoneOf(names[i])}}
		if _, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: of}, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: names[i]},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: driverName, NodeID: names[i], TopologyKeys: []string{nodeKey, zoneKey}}}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make %d nodes: %w", len(names), err)
	}
	return nil
}

// placeDriver replaces the driver by a driver with volumes on one node.
func (env *environment) placeDriver(ctx context.Context, node string) error {
	if err := env.driver.Stop(); err != nil {
		return err
	}
	var err error
	env.driver, err = mockdriver.Start(ctx, mockdriver.Options{Binary: env.programs.driver, Name: driverName,
		Args: []string{"--state-dir=", fmt.Sprintf("--place=%s=%s,%s=%s", nodeKey, node, zoneKey, zoneOf(node))},
		Faults: faults.Plan{Rules: []faults.Rule{
			{Method: "CreateVolume", Action: faults.Delay, Delay: faults.Duration(creating)}}}})
	if err != nil {
		return err
	}
	env.calls = ledger.NewTail(env.driver.LedgerPath())
	return nil
}

// puts are the bodies of PUTs that write the in-flight log.
type puts struct {
	server *httptest.Server

	mu     sync.Mutex
	bodies [][]byte
}

// keepPuts has ours ask the API server through a proxy from now on.
func (env *environment) keepPuts() (*puts, error) {
	config, err := clientcmd.BuildConfigFromFlags("", env.kubeconf[report.Ours])
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &puts{}
	pass := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(path.Base(r.URL.Path), "-in-flight-") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			p.mu.Lock()
			p.bodies = append(p.bodies, body)
			p.mu.Unlock()
		}
		pass.ServeHTTP(w, r)
	}))
	// The proxy has the credentials.
	env.kubeconf[report.Ours], err = env.cluster.Kubeconfig(&rest.Config{Host: p.server.URL})
	if err != nil {
		p.server.Close()
		return nil, err
	}
	return p, nil
}

// take returns the bodies since it was called last.
func (p *puts) take() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	bodies := p.bodies
	p.bodies = nil
	return bodies
}

// written is in bytes: of each entry when it was first written, of each PUT, and of all PUTs.
type written struct {
	entries, puts []float64
	total         float64
}

func writtenIn(bodies [][]byte) (all written, err error) {
	seen := map[string]bool{}
	for _, body := range bodies {
		var lease coordinationv1.Lease
		if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, &lease); err != nil {
			return all, fmt.Errorf("read what was PUT: %w", err)
		}
		all.puts = append(all.puts, float64(len(body)))
		all.total += float64(len(body))
		for key, value := range lease.Annotations {
			if strings.HasPrefix(key, entryKey) && !seen[key] {
				seen[key] = true
				all.entries = append(all.entries, float64(len(key)+len(value)))
			}
		}
	}
	return all, nil
}
