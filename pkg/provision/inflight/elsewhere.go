package inflight

import (
	"context"
	"fmt"
	"maps"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Belonging classifies the log of a Lease from the view of a process with its own log, where the zero value means
// unknown.
type Belonging string

const (
	// BelongsUnknown means that the Lease does not name the driver of its log.
	BelongsUnknown Belonging = ""
	// BelongsHere means that the Lease is a shard of the process' own log.
	BelongsHere Belonging = "Here"
	// BelongsToAnotherDriver means that the Lease is of another driver's log.
	BelongsToAnotherDriver Belonging = "AnotherDriver"
	// BelongsToAnotherNode means that the process has the log of one node, and the Lease is of another log of the driver,
	// which another process reads.
	BelongsToAnotherNode Belonging = "AnotherNode"
	// BelongsElsewhere means that the Lease is of the same driver, but of a log that the process does not read.
	BelongsElsewhere Belonging = "Elsewhere"
)

// belonging is a pure function that classifies the Lease of this driver and name.
func (c Config) belonging(driver string, lease types.NamespacedName) Belonging {
	number, named := strings.CutPrefix(lease.Name, c.Name+"-")
	named = named && len(number) == 1
	switch {
	case driver == "":
		return BelongsUnknown
	case driver != c.Driver:
		return BelongsToAnotherDriver
	case named && lease.Namespace == c.Namespace:
		return BelongsHere
	case !named && c.Shards == 1:
		return BelongsToAnotherNode
	}
	return BelongsElsewhere
}

// Stray is a Lease with entries of the same driver in a log that the process does not read.
type Stray struct {
	Lease types.NamespacedName
	// Entries counts the readable and unreadable entries that are not settled.
	Entries int
	// Err is set if the whole Lease cannot be read.
	Err error
}

// FindStrays lists the Leases of all namespaces and returns the ones that hold entries of this driver and belong
// elsewhere, and whose entries Stats then counts. In a log of one node it looks for that Lease's name only, because
// every node looks for its own. FindStrays never settles an entry that it finds.
func (l *Log) FindStrays(ctx context.Context) ([]Stray, error) {
	options := metav1.ListOptions{LabelSelector: LabelLog + "=true"}
	if l.cfg.Shards == 1 {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.cfg.shard(0)).String()
	}
	leases, err := kube.ListAll(ctx, l.cfg.Leases.Leases(metav1.NamespaceAll).List, options,
		func(o *coordinationv1.Lease) coordinationv1.Lease { return *o })
	if err != nil {
		return nil, fmt.Errorf("list the Leases of in-flight logs: %w", err)
	}
	strays, entries := l.cfg.strays(leases), 0
	for _, stray := range strays {
		entries += stray.Entries
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Elsewhere = entries
	return strays, nil
}

// strays filters Leases, as listed by LabelLog, by entries of the driver that belong elsewhere.
func (c Config) strays(leases []coordinationv1.Lease) []Stray {
	var strays []Stray
	for i := range leases {
		lease := &leases[i]
		v := look(lease, "")
		name := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
		entries := v.entries()
		maps.DeleteFunc(entries, func(key, _ string) bool { return v.settles(key) })
		if n := len(entries); n > 0 && c.belonging(v.meta.Driver, name) == BelongsElsewhere {
			strays = append(strays, Stray{Lease: name, Entries: n, Err: v.err})
		}
	}
	return strays
}
