//go:build unix

package growth

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
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
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

func growLog(ctx context.Context, s *session.Session, at measures) (err error) {
	p, err := s.Env.StartProxy(s.Env.Kubeconf[report.Ours], session.ToLog)
	if err != nil {
		return err
	}
	defer p.Close()
	s.Env.Kubeconf[report.Ours] = p.Kubeconfig
	var namespaces []string
	for range doubtNamespaces {
		namespace, err := s.Env.Cluster.CreateNamespace(ctx, "doubt")
		if err != nil {
			return err
		}
		namespaces = append(namespaces, namespace)
	}
	program, err := s.Env.Start(ctx, subject.Ours())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	doubt := &doubt{Session: s, namespaces: namespaces}
	return at(func(n int) ([]float64, error) {
		if err := doubt.grow(ctx, n); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, program.LogTail(10))
		}
		p.Take()
		if _, err := s.Env.BindClaims(ctx, healthy, nil); err != nil {
			return nil, err
		}
		_, bodies := p.Take()
		sent := 0
		for _, body := range bodies {
			sent += len(body)
		}
		return []float64{float64(sent) / healthy / 1024}, nil
	})
}

// doubt has claims in the in-flight log whose volumes the driver does not answer for.
type doubt struct {
	*session.Session
	namespaces []string
	claims     int
	rules      []faults.Rule
}

func unavailable(volume string) faults.Rule {
	return faults.Rule{Method: "CreateVolume", VolumeName: volume, Action: faults.Fail, Code: "Unavailable"}
}

// grow has there be n entries, all of them older than doubtFor.
func (d *doubt) grow(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	if err := d.Env.Driver.SetFaults(ctx, faults.Plan{Rules: []faults.Rule{unavailable("*")}}); err != nil {
		return err
	}
	made := make([]*v1.PersistentVolumeClaim, n-d.claims)
	err := d.Env.Each(ctx, len(made), func(ctx context.Context, client kubernetes.Interface, i int) (err error) {
		of := d.namespaces[i%len(d.namespaces)]
		made[i], err = client.CoreV1().PersistentVolumeClaims(of).Create(ctx, session.NewClaim("doubt", d.claims+i),
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
	err = session.Until(ctx, 100*time.Millisecond, "the in-flight log has all entries", func() (bool, error) {
		entries, err := objects.InFlight(ctx, d.Env.Users[0], d.Env.Namespace, session.DriverName)
		return len(entries) >= n, err
	})
	if err != nil {
		return err
	}
	if err := d.Env.Driver.SetFaults(ctx, faults.Plan{Rules: d.rules}); err != nil {
		return err
	}
	return session.Pause(ctx, doubtFor)
}
