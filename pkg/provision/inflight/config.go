// Package inflight is the write-ahead log of provisioning. It holds one [Entry] for each volume whose CreateVolume may
// have been called and whose outcome is not settled. The API server confirms an entry before the driver is called, so a
// process that starts later knows every volume that may exist without a PersistentVolume.
//
// The log is stored in annotations of eight Leases in the driver's namespace, its shards, or in a single Lease for a
// node. The volume's name selects the shard. Entries that stay in doubt move to a second Lease of their shard. Long
// lists of topologies, which entries share, are in one more Lease. The rights of the stock external-provisioner's Role
// suffice: get, create and update on leases.
//
// All writes are updates with the resourceVersion that was read. A process that starts to lead writes an epoch, higher
// than any before, into each shard. The writes of earlier processes fail from then on, and those processes learn that
// they are superseded.
//
// The take-over creates a missing shard before the shard's first entry, because the epoch in it keeps earlier processes
// from writing. The only Lease of a node's log is owned by the Node while it is empty, so garbage collection may remove
// it at any time. The process that creates it anew then goes on, and any other process finds a foreign epoch in it.
//
// No unreadable content is dropped. An entry that cannot be decoded blocks its volume's name. A shard is read-only, and
// blocks the names that belong to it, if it is a copy (restored from a backup, applied in another namespace), another
// driver's, or of an unknown version. [Log.Problems] lists these entries and shards.
//
// The exported methods are safe for concurrent use.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package inflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config configures the location of a log and its writer. Leases, Namespace, Name and Driver are required.
type Config struct {
	// Leases is the client, without a limit of requests: claims wait for it. Its requests should have a timeout of their
	// own; the log ends them after 15 seconds.
	Leases coordinationv1client.LeasesGetter
	// Namespace is the namespace of the Leases.
	Namespace string
	// Name is the base name: the shards are Name-0, Name-1 and so on, and chunks are in Name-topology. All processes of
	// one driver share it, or one node's processes if each node runs one.
	Name string
	// Node is the node of a log of one node, whose Name and Namespace no other node uses. Default the whole cluster.
	Node *volume.Node
	// Driver is the CSI driver's name; a shard of another driver is read-only.
	Driver string
	// Identity is written to the shards for human readers, for example the pod's name.
	Identity string
	// CreateMissing allows the log to create missing shards. Otherwise only existing entries are finished, and Put fails
	// with ErrNoShard if the shard does not exist.
	CreateMissing bool
	// Shards is the number of Leases of a new log, from 1 to the constant Shards, which is the default. A log of one node
	// needs one, and an existing log keeps its number.
	Shards int
	// Owner returns the owner reference for the Lease of a log with one shard. The Lease has this owner only while it
	// holds no entries, so that garbage collection removes an empty Lease together with the owner. If Owner is nil, owner
	// references are not changed. Owner is called at a take-over and when the Lease is created anew, and may return nil if
	// the owner is unknown.
	Owner func(context.Context) *metav1.OwnerReference
	// RemoveDelay is the longest time that a removal waits for other writes of its shard, by default 500 ms.
	RemoveDelay time.Duration
	// Clock is replaced in tests, and defaults to the real clock.
	Clock clock.WithTicker
	// Lease is the leader election's lease: writes are sent only while time is left, and end with it. If nil, only the
	// epoch keeps earlier processes from writing.
	Lease interface{ Left() time.Duration }
}

// Node returns the node of the log, nil for the whole cluster.
func (l *Log) Node() *volume.Node { return l.cfg.Node }

// Permissions returns the permissions that the log needs. Without one of them TakeOver fails, and no volume is known to
// be settled.
func (l *Log) Permissions() (needed []permission.Permission) {
	verbs := []string{"get", "update"}
	if l.cfg.CreateMissing {
		verbs = append(verbs, "create")
	}
	for _, verb := range verbs {
		needed = append(needed, permission.Permission{Group: coordinationv1.GroupName, Resource: "leases", Verb: verb,
			Namespace: l.cfg.Namespace, Unsafe: true,
			Without: "no volume is provisioned or deleted, because it is not known which are in flight"})
	}
	return needed
}

// Validate returns an error that lists the missing and invalid fields.
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
	c.Shards, c.RemoveDelay = cmp.Or(c.Shards, Shards), cmp.Or(c.RemoveDelay, 500*time.Millisecond)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}
