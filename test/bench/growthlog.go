//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

const (
	// doubtNamespaces share the claims in doubt, because a namespace may have only a share of the in-flight log.
	doubtNamespaces = 10
	// doubtFor is more than the minute after which an entry counts as old.
	doubtFor = 70 * time.Second
	// healthy is the number of claims that are provisioned beside the log.
	healthy = 50
)

func logGrowth() growth {
	return growth{name: "log", sizes: []int{10, 100, 1_000}, run: growLog,
		load: "50 claims that 16 users' connections make at once, beside %d claims in 10 namespaces whose volumes have " +
			"been in the in-flight log for over a minute, because the driver answers Unavailable for them.",
		costs: []cost{{"put_kib", "KiB", "All PUTs to the Leases of the in-flight log, for each of the 50 volumes.", 1}}}
}

func growLog(ctx context.Context, s *session, at measures) (err error) {
	p, err := s.env.startProxy(s.env.kubeconf[report.Ours], toLog)
	if err != nil {
		return err
	}
	defer p.close()
	s.env.kubeconf[report.Ours] = p.kubeconfig
	var namespaces []string
	for range doubtNamespaces {
		namespace, err := s.env.cluster.CreateNamespace(ctx, "doubt")
		if err != nil {
			return err
		}
		namespaces = append(namespaces, namespace)
	}
	program, err := s.env.start(ctx, subject.Ours())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	doubt := &doubt{session: s, namespaces: namespaces}
	return at(func(n int) ([]float64, error) {
		if err := doubt.grow(ctx, n); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, program.LogTail(10))
		}
		p.take()
		if _, err := s.env.bindClaims(ctx, healthy, nil); err != nil {
			return nil, err
		}
		_, bodies := p.take()
		sent := 0
		for _, body := range bodies {
			sent += len(body)
		}
		return []float64{float64(sent) / healthy / 1024}, nil
	})
}

// doubt has claims in the in-flight log whose volumes the driver does not answer for.
type doubt struct {
	*session
	namespaces []string
	claims     int
	rules      []faults.Rule
}

func unavailable(volume string) faults.Rule {
	return faults.Rule{Method: "CreateVolume", VolumeName: volume, Action: faults.Fail, Code: "Unavailable"}
}

// grow has there be n entries, all of them older than doubtFor.
func (d *doubt) grow(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := d.env.driver.SetFaults(ctx, faults.Plan{Rules: []faults.Rule{unavailable("*")}}); err != nil {
		return err
	}
	made := make([]*v1.PersistentVolumeClaim, n-d.claims)
	err := d.env.each(ctx, len(made), func(ctx context.Context, client kubernetes.Interface, i int) (err error) {
		of := d.namespaces[i%len(d.namespaces)]
		made[i], err = client.CoreV1().PersistentVolumeClaims(of).Create(ctx, newClaim("doubt", d.claims+i),
			metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	d.claims = n
	for _, claim := range made {
		d.rules = append(d.rules, unavailable("pvc-"+string(claim.UID)))
	}
	for {
		entries, err := objects.InFlight(ctx, d.env.users[0], d.env.namespace, driverName)
		if err != nil {
			return err
		}
		if len(entries) >= n {
			break
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %d entries of the in-flight log: %w; there are %d", n, err, len(entries))
		}
	}
	if err := d.env.driver.SetFaults(ctx, faults.Plan{Rules: d.rules}); err != nil {
		return err
	}
	return pause(ctx, doubtFor)
}
