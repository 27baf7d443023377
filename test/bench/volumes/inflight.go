//go:build unix

package volumes

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
)

const (
	// entryKey begins the annotation of an entry of the in-flight log.
	entryKey = "in-flight.csi-reclaimer.io/"
	// nodeKey and zoneKey are the topology keys of each node.
	nodeKey, zoneKey = "topology." + session.DriverName + "/node", "topology.kubernetes.io/zone"
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

func InFlight() []session.Family {
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
	return []session.Family{{Name: "in_flight", Plane: session.Working, Uncosted: true, Run: measureInFlight,
		Figures: figures}}
}

func measureInFlight(ctx context.Context, s *session.Session) (err error) {
	// Nodes and driver stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	puts, err := s.Env.StartProxy(s.Env.Kubeconf[report.Ours], session.ToLog)
	if err != nil {
		return err
	}
	defer puts.Close()
	s.Env.Kubeconf[report.Ours] = puts.Kubeconfig
	names := nodeNames(5000)
	if err := placeDriver(ctx, s.Env, names[0]); err != nil {
		return err
	}
	made := 0
	for _, n := range segments() {
		if err := makeNodes(ctx, s.Env, names[made:n]); err != nil {
			return err
		}
		made = n
		for range s.Runs {
			if err := inFlightPuts(ctx, s, puts, fmt.Sprint(n), s.Size(500, 100)); err != nil {
				return err
			}
		}
	}
	return nil
}

// inFlightPuts has csi-reclaimer create and delete n volumes, and records its PUT requests.
func inFlightPuts(ctx context.Context, s *session.Session, puts *session.Proxy, segments string, n int) error {
	// At the default of 10 seconds a driver that is short of processor time would miss deadlines, and be asked again.
	ours := subject.Ours("--timeout=" + session.Patience.String())
	err := s.WithSubject(ctx, ours, func(ctx context.Context, _ subject.Running) error {
		puts.Take()
		_, err := s.Round(ctx, n, session.PVFirst, false)
		return err
	})
	if err != nil {
		return err
	}
	_, bodies := puts.Take()
	all, err := writtenIn(bodies)
	if err != nil {
		return err
	}
	if len(all.entries) < n {
		return fmt.Errorf("%d entries were written for %d volumes", len(all.entries), n)
	}
	s.Record(inFlightEntry+segments, report.Ours, report.Median(all.entries))
	s.Record(inFlightPut+segments, report.Ours, report.Median(all.puts))
	s.Record(inFlightVolume+segments, report.Ours, all.total/float64(n))
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
func makeNodes(ctx context.Context, env *session.Environment, names []string) error {
	err := env.Each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		of := metav1.ObjectMeta{Name: names[i], Labels: map[string]string{nodeKey: names[i], zoneKey: zoneOf(names[i])}}
		if _, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: of}, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: names[i]},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: session.DriverName, NodeID: names[i], TopologyKeys: []string{nodeKey, zoneKey}}}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make %d nodes: %w", len(names), err)
	}
	return nil
}

// placeDriver replaces the driver by a driver with volumes on one node.
func placeDriver(ctx context.Context, env *session.Environment, node string) error {
	if err := env.Driver.Stop(); err != nil {
		return err
	}
	var err error
	env.Driver, err = mockdriver.Start(ctx, mockdriver.Options{Binary: env.Programs.Driver, Name: session.DriverName,
		Args: []string{"--state-dir=", fmt.Sprintf("--place=%s=%s,%s=%s", nodeKey, node, zoneKey, zoneOf(node))},
		Faults: faults.Plan{Rules: []faults.Rule{
			{Method: "CreateVolume", Action: faults.Delay, Delay: faults.Duration(creating)}}}})
	if err != nil {
		return err
	}
	env.Calls = ledger.NewTail(env.Driver.LedgerPath())
	return nil
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
