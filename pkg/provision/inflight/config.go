package inflight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
)

// Config says where a log is and who writes it. Leases, Namespace, Name and Driver are required.
type Config struct {
	// Leases is the client. Its requests should end by themselves; they are ended here after 15 seconds.
	Leases coordinationv1client.LeasesGetter
	// Namespace is the one of the Leases.
	Namespace string
	// Name is the base name: the shards are Name-0, Name-1 and so on, and chunks are in Name-topology. One driver's
	// processes share it, and with a process on each node, one node's.
	Name string
	// Driver is the CSI driver's name. A shard of another driver is read-only.
	Driver string
	// Identity is noted in the shards for people, for example the pod's name.
	Identity string
	// CreateMissing creates the shards that do not exist. Without it only what other processes left is
	// finished: Put fails with ErrNoShard where there is none.
	CreateMissing bool
	// Shards is the number of Leases of a new log, 1 to the constant of that name, which is the default. A log of
	// one node needs one. An existing log keeps its number.
	Shards int
	// Owner returns the owner of the Lease of a log of one shard. The Lease has this owner while it holds no entries,
	// so that garbage collection removes it with the owner, and none while it holds some. Nil: owners are left as
	// they are. Owner is called when the log is taken over, and when its Lease is created anew. It may return nil
	// where the owner is not known.
	Owner func(context.Context) *metav1.OwnerReference
	// RemoveDelay is how long a removal waits for other writes of its shard. Default 500 ms.
	RemoveDelay time.Duration
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
	// Lease is the leader election's: nothing is written unless time is left, and a write ends with it. Nil for
	// none: then only the epoch keeps earlier processes from writing.
	Lease interface{ Left() time.Duration }
}

// Validate says what is missing or wrong.
func (c Config) Validate() error {
	var errs []error
	if c.Leases == nil {
		errs = append(errs, errors.New("in-flight log: Leases is required"))
	}
	for _, field := range []struct{ name, value string }{{"Namespace", c.Namespace}, {"Name", c.Name},
		{"Driver", c.Driver}} {
		if field.value == "" {
			errs = append(errs, fmt.Errorf("in-flight log: %s is required", field.name))
		}
	}
	if problems := validation.NameIsDNSSubdomain(c.topology(), false); c.Name != "" && len(problems) > 0 {
		errs = append(errs, fmt.Errorf("in-flight log: Name %q: %s", c.Name, problems[0]))
	}
	if c.Shards < 0 || c.Shards > Shards {
		errs = append(errs, fmt.Errorf("in-flight log: Shards is not between 1 and %d", Shards))
	}
	if c.RemoveDelay < 0 {
		errs = append(errs, errors.New("in-flight log: RemoveDelay is negative"))
	}
	return errors.Join(errs...)
}

func (c Config) shard(number int) string { return fmt.Sprintf("%s-%d", c.Name, number) }

func (c Config) withDefaults() Config {
	if c.Shards == 0 {
		c.Shards = Shards
	}
	if c.RemoveDelay == 0 {
		c.RemoveDelay = 500 * time.Millisecond
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}
