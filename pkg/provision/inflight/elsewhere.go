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

// Belonging is whose log a Lease is part of, for a process with a log of its own. The zero value is not known.
type Belonging string

const (
	// BelongsUnknown: the Lease does not say of which driver's log it is.
	BelongsUnknown Belonging = ""
	// BelongsHere: it is a shard of the process' own log.
	BelongsHere Belonging = "Here"
	// BelongsToAnotherDriver: it is of another driver's log.
	BelongsToAnotherDriver Belonging = "AnotherDriver"
	// BelongsToAnotherNode: it is of another log than that of this node, which another process reads.
	BelongsToAnotherNode Belonging = "AnotherNode"
	// BelongsElsewhere: it is of a log of the same driver that the process does not read.
	BelongsElsewhere Belonging = "Elsewhere"
)

// belonging decides whose log a Lease of that driver and name is part of. It is a pure function.
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

// Stray is a Lease with entries of the same driver's log that the process does not read.
type Stray struct {
	Lease types.NamespacedName
	// Entries counts those that can be read and those that cannot, without those that are settled.
	Entries int
	// Err says why the whole Lease cannot be read, nil if it can.
	Err error
}

// FindStrays lists the Leases of all namespaces and returns those that hold entries of this driver and belong
// elsewhere; Stats then counts their entries. A log of one node looks for its own name alone, since all nodes look.
// Nothing is settled by what is found.
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

// strays returns the Leases, as listed by LabelLog, that hold entries of the driver and belong elsewhere.
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
